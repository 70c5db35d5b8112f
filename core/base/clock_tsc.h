/* SPDX-License-Identifier: MIT */
/*
 * CLOCK_MONOTONIC, read seldom: a reading is shared by everybody for as long as the processor's
 * time stamp counter says that it is fresh. Asking the counter takes less than half of what asking
 * the clock does, for the kernel's way to read it waits until the processor has done all before.
 *
 * Every reading is one of CLOCK_MONOTONIC, made at that instant or a little before, and kept in one
 * word that only grows. So, whatever the counter does,
 * - it is never ahead of CLOCK_MONOTONIC;
 * - it never goes back: whoever has a reading has seen the word, or moved it on; whoever begins one
 *   after that (he has learned of it by an acquire) cannot find less there. That is why the
 *   counters of all processors need not agree, nor be read in order, unlike those of a clock that
 *   is computed from them.
 * The counter only decides how far behind it is. With each reading goes what the counter said
 * before it was made; it is asked for again once the counter is TSC_FRESH_NS further (or behind by
 * more, as after a suspension that resets it). CLOCK_MONOTONIC runs faster or slower than the
 * counter, as adjtimex() tells the kernel to: by 0.05 %, the most that NTP has it slew, or at worst
 * by 10 % and up to 12.5 % while a phase is corrected, both when the counter was measured and the
 * other way round later. 1.225 / 0.775 < 2, hence TSC_LAG_NS. To this adds only what a processor
 * does out of order: it may have read the counter while it still waited for memory.
 *
 * A counter that breaks that is found out the next time that the clock is read, and not used any
 * more: it stood still or ran too slowly, or it is behind another processor's. All that such a one
 * could do meanwhile is to let readings be late. So it does not matter either if the kernel itself
 * gives the counter up, and that is not asked for again.
 */
#ifndef WEIR_CORE_BASE_CLOCK_TSC_H
#define WEIR_CORE_BASE_CLOCK_TSC_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How long a reading is fresh: long enough that many share one, too short to be told from being
 * interrupted. */
#define TSC_FRESH_NS 1000
/* So much it can be behind CLOCK_MONOTONIC. */
#define TSC_LAG_NS (UINT64_C(2) * TSC_FRESH_NS)

/* Whether it is used, or why the clock is read each time instead. */
enum clock_tsc_state { TSC_OK, TSC_WENT_BACK, TSC_LOST_TIME, TSC_SHARED };

struct clock_tsc {
    _Atomic uint64_t ticks; /* the counter, no later than `ns` … */
    _Atomic uint64_t ns;    /* … was read; this one first. Never less than before */

    alignas(64) uint64_t fresh_ticks;   /* so many ticks are TSC_FRESH_NS or a little less */
    _Atomic enum clock_tsc_state state; /* changes once */
};

/*
 * Measures the counter, which takes some 20 µs. Returns 0; -ENOMEM; -EOPNOTSUPP (the processor has
 * none that can be used), -EPERM (the process may not read it), -ENODEV (the kernel does not go by
 * it), -ETIME (it cannot be measured against CLOCK_MONOTONIC), or why it cannot be known what the
 * kernel goes by. `*ret` goes back with clock_tsc_free.
 */
int clock_tsc_new(struct clock_tsc **ret);
void clock_tsc_free(struct clock_tsc *tsc);

/* Any thread; never waits, needs no memory. */
uint64_t clock_tsc_now(struct clock_tsc *tsc);
/* Not behind at all, for whoever was woken at an instant, and then for all others. */
uint64_t clock_tsc_now_fresh(struct clock_tsc *tsc);

/* It is not used any more, for this reason unless there was one before. */
void clock_tsc_disable(struct clock_tsc *tsc, enum clock_tsc_state why);

static inline enum clock_tsc_state clock_tsc_state(const struct clock_tsc *tsc)
{
    return atomic_load_explicit(&tsc->state, memory_order_relaxed);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * CLOCK_MONOTONIC with shared readings: all threads share a clock reading while the time stamp
 * counter (TSC) says that it is fresh. Reading the TSC takes less than half the time of reading the
 * clock, because the kernel's vDSO first waits for all earlier instructions.
 *
 * A reading is never ahead of CLOCK_MONOTONIC and never goes back, whatever the TSC does. It lags
 * behind by at most TSC_LAG_NS if the TSC is sound. An unsound TSC is detected at the next clock
 * reading and disabled. README.md has the argument.
 */
#ifndef WEIR_CORE_BASE_CLOCK_TSC_H
#define WEIR_CORE_BASE_CLOCK_TSC_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

/* Time for which a reading is fresh: long enough that many threads share it, too short to be
 * distinguished from an interruption of the thread. */
#define TSC_FRESH_NS 1000
/* Maximum lag behind CLOCK_MONOTONIC. */
#define TSC_LAG_NS (UINT64_C(2) * TSC_FRESH_NS)

/* TSC_OK: readings are shared. Otherwise the reason why the clock is read each time. */
enum clock_tsc_state { TSC_OK, TSC_WENT_BACK, TSC_LOST_TIME, TSC_SHARED };

struct clock_tsc {
    _Atomic uint64_t ticks; /* TSC, read no later than `ns`; stored after it */
    _Atomic uint64_t ns;    /* latest clock reading; only grows */

    alignas(64) uint64_t fresh_ticks;   /* TSC_FRESH_NS or a little less, in ticks */
    _Atomic enum clock_tsc_state state; /* changes once */
};

/*
 * Measures the TSC, which takes some 20 µs. Returns 0; -ENOMEM; -EOPNOTSUPP (the processor has no
 * usable one); -EPERM (the process may not read it); -ENODEV (it is not the kernel's clock source);
 * -ETIME (it cannot be measured against CLOCK_MONOTONIC); or the error of reading the kernel's
 * clock source. The caller frees `*ret` with clock_tsc_free.
 */
int clock_tsc_new(struct clock_tsc **ret);
void clock_tsc_free(struct clock_tsc *tsc);

/* Returns the time, up to TSC_LAG_NS late. Any thread; does not block or allocate. */
uint64_t clock_tsc_now(struct clock_tsc *tsc);
/* Returns a fresh clock reading and shares it. For a thread that was woken at a deadline. */
uint64_t clock_tsc_now_fresh(struct clock_tsc *tsc);

/* Disables the TSC for this reason, unless it is disabled already. */
void clock_tsc_disable(struct clock_tsc *tsc, enum clock_tsc_state why);

/* Returns the state. Relaxed: no other data depends on it, and shared readings stay correct. */
static inline enum clock_tsc_state clock_tsc_state(const struct clock_tsc *tsc)
{
    return atomic_load_explicit(&tsc->state, memory_order_relaxed);
}

#endif

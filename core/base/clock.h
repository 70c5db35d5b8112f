/* SPDX-License-Identifier: MIT */
/* The clock of an instance: the system's, one by the time stamp counter, or an injected one. */
#ifndef WEIR_CORE_BASE_CLOCK_H
#define WEIR_CORE_BASE_CLOCK_H

#include "base/error.h"
#include "os/os.h"
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/algorithm.h>
#include <weir/clock.h>

/*
 * CLOCK_MONOTONIC with readings that threads share while the time stamp counter (TSC) says that
 * they are fresh. Whatever it does, none is ahead of the clock or goes back; by a sound one none is
 * late by more than TSC_LAG_NS. An unsound TSC is disabled at the next reading (README.md).
 */

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
 * clock source. The caller frees `*ret` with os_free().
 */
int clock_tsc_new(struct clock_tsc **ret);

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

/* ---- the clock of an instance ---- */

/* An injected clock that says more is read as this. Nothing is granted as of a later instant. */
#define CLOCK_MAX_NS WEIR_CLOCK_MAX

struct clock {
    struct weir_clock injected;         /* now_ns NULL: none */
    _Atomic uint64_t last_ns;           /* latest reading of the injected clock */
    struct clock_tsc *tsc;              /* reads the system's clock; NULL: it is read each time */
    bool reads_system;                  /* no clock is injected, and tsc is NULL */
    _Atomic uint64_t boottime_ahead_ns; /* of CLOCK_MONOTONIC, when it was last compared */
    _Atomic bool tsc_loss_reported;     /* the warning that tsc was switched off has been logged */
};

/* Returns what a clock says that is injected, or read by the time stamp counter. */
uint64_t clock_now_slow(struct clock *clock);
/* Returns how far the wall clock is ahead, ns; 0 with an injected clock that has none. */
int64_t clock_wall_offset_ns(struct clock *clock);
/* Returns the time, no earlier than an instant at which the thread was woken. Any locks may be
 * held, unless the clock is injected. */
uint64_t clock_now_fresh(struct clock *clock);
/* Logs once that the time stamp counter is no longer used. No lock is held and no transaction is
 * under way: the callback may call the library. */
void clock_report_tsc_loss(struct clock *clock, const struct log_sink *log);

/* Returns whether the loss of the time stamp counter is still to be logged. On every fast path. */
static inline bool clock_must_report_tsc(const struct clock *clock)
{
    return clock->tsc && clock_tsc_state(clock->tsc) != TSC_OK &&
           !atomic_load_explicit(&clock->tsc_loss_reported, memory_order_relaxed);
}

static inline uint64_t clock_now_ns(struct clock *clock)
{
    return clock->reads_system ? os_now_ns() : clock_now_slow(clock);
}

/* What a set needs of the clock beyond its time: the wall clock, or CLOCK_BOOTTIME in place of
 * CLOCK_MONOTONIC. An injected clock knows no suspension: its boottime is its time. */
enum { CLOCK_NEEDS_WALL = 1, CLOCK_NEEDS_BOOTTIME = 2 };

/* Return CLOCK_BOOTTIME, and how far the wall clock is ahead of the clock that the needs name. */
uint64_t clock_boottime_ns(struct clock *clock);
int64_t clock_wall_offset_from_ns(struct clock *clock, unsigned needs);
/* Returns when the clock shows what is `at_ns` by CLOCK_BOOTTIME, if the machine is not suspended
 * before; instants that stand for something else as they are. */
uint64_t clock_from_boottime_ns(struct clock *clock, uint64_t at_ns);

/* Returns the instant given to algorithms, by CLOCK_NEEDS_*; the first one if there are any. */
struct weir_instant clock_instant_slow(struct clock *clock, unsigned needs);
static inline struct weir_instant clock_instant(struct clock *clock, unsigned needs)
{
    return needs || !clock->reads_system ? clock_instant_slow(clock, needs)
                                         : (struct weir_instant){os_now_ns(), 0};
}

/* Returns the time of up to a tick of the kernel ago, for what decides nothing. */
static inline uint64_t clock_now_coarse(struct clock *clock)
{
    return clock->injected.now_ns ? clock_now_slow(clock) : os_now_coarse_ns();
}

#endif

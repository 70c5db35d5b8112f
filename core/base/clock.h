/* SPDX-License-Identifier: MIT */
/* The clock of an instance: the system's, one by the time stamp counter, or an injected one. */
#ifndef WEIR_CORE_BASE_CLOCK_H
#define WEIR_CORE_BASE_CLOCK_H

#include "base/clock_tsc.h"
#include "base/error.h"
#include "os/os.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/algorithm.h>
#include <weir/clock.h>

/* An injected clock that says more is read as this. */
#define CLOCK_MAX_NS ((UINT64_C(1) << 63) - 1)

struct clock {
    struct weir_clock injected;     /* now_ns NULL: none */
    _Atomic uint64_t last_ns;       /* latest reading of the injected clock */
    struct clock_tsc *tsc;          /* reads the system's clock; NULL: it is read each time */
    bool reads_system;              /* no clock is injected, and tsc is NULL */
    _Atomic bool tsc_loss_reported; /* the warning that tsc was switched off has been logged */
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

/* Returns the instant given to algorithms, with the wall clock only if they read it. */
static inline struct weir_instant clock_instant(struct clock *clock, bool with_wall)
{
    return (struct weir_instant){clock_now_ns(clock), with_wall ? clock_wall_offset_ns(clock) : 0};
}

/* Returns the time of up to a tick of the kernel ago, for what decides nothing. */
static inline uint64_t clock_now_coarse(struct clock *clock)
{
    return clock->injected.now_ns ? clock_now_slow(clock) : os_now_coarse_ns();
}

#endif

/* SPDX-License-Identifier: MIT */
/* Reads the clock of an instance: the system's, one by the time stamp counter, or an injected one.
 */
#include "base/clock.h"
#include "base/invariant.h"
#include "base/sched_point.h"

/* Reads the injected clock. If it goes back, the latest reading holds. */
static uint64_t clock_now_injected(struct clock *clock)
{
    uint64_t now = clock->injected.now_ns(clock->injected.userdata), seen;

    if (now > CLOCK_MAX_NS)
        now = CLOCK_MAX_NS;
    seen = shm_raise_seq_cst(&clock->last_ns, now);
    WEIR_INVARIANT(seen <= CLOCK_MAX_NS);
    return now > seen ? now : seen;
}

void clock_report_tsc_loss(struct clock *clock, const struct log_sink *log)
{
    static const char *const why[] = {
        [TSC_WENT_BACK] = "the time stamp counter went back",
        [TSC_LOST_TIME] = "the time stamp counter was too slow",
        [TSC_SHARED] = "a set is shared by processes",
    };

    if (clock_must_report_tsc(clock) &&
        !atomic_exchange_explicit(&clock->tsc_loss_reported, true, memory_order_seq_cst))
        log_write(log, WEIR_LOG_WARNING, "clock: tsc is replaced by CLOCK_MONOTONIC: %s",
                  why[clock_tsc_state(clock->tsc)]);
}

uint64_t clock_now_slow(struct clock *clock)
{
    WEIR_INVARIANT(clock->injected.now_ns || clock->tsc);
    return clock->injected.now_ns ? clock_now_injected(clock) : clock_tsc_now(clock->tsc);
}

uint64_t clock_now_fresh(struct clock *clock)
{
    if (clock->injected.now_ns)
        return clock_now_injected(clock);
    if (!clock->tsc)
        return os_now_ns();
    return clock_tsc_now_fresh(clock->tsc);
}

int64_t clock_wall_offset_ns(struct clock *clock)
{
    if (!clock->injected.now_ns)
        return os_wall_offset_ns();
    return clock->injected.wall_offset_ns ? clock->injected.wall_offset_ns(clock->injected.userdata)
                                          : 0;
}

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

/* Below this, two comparisons of the clocks differ by the time of the readings. */
#define BOOTTIME_SUSPENSION_MIN_NS UINT64_C(1000000)

/* Returns how far CLOCK_BOOTTIME is ahead: one value from suspension to suspension, and never less
 * than it is. Relaxed: each thread compares for itself, and any value stored is as good. */
static uint64_t clock_boottime_ahead_ns(struct clock *clock)
{
    uint64_t ahead = os_boottime_ahead_ns();
    uint64_t seen = atomic_load_explicit(&clock->boottime_ahead_ns, memory_order_relaxed);
    uint64_t difference = ahead > seen ? ahead - seen : seen - ahead;

    if (seen && difference < BOOTTIME_SUSPENSION_MIN_NS)
        return seen;
    atomic_store_explicit(&clock->boottime_ahead_ns, ahead, memory_order_relaxed);
    return ahead;
}

uint64_t clock_boottime_ns(struct clock *clock)
{
    return clock->injected.now_ns ? clock_now_injected(clock) : os_boottime_now_ns();
}

int64_t clock_wall_offset_from_ns(struct clock *clock, unsigned needs)
{
    int64_t offset_ns = clock_wall_offset_ns(clock);

    if (needs & CLOCK_NEEDS_BOOTTIME && !clock->injected.now_ns)
        offset_ns -= (int64_t)clock_boottime_ahead_ns(clock);
    return offset_ns;
}

uint64_t clock_from_boottime_ns(struct clock *clock, uint64_t at_ns)
{
    uint64_t ahead;

    if (clock->injected.now_ns || at_ns > WEIR_INSTANT_MAX)
        return at_ns;
    ahead = clock_boottime_ahead_ns(clock);
    return at_ns > ahead ? at_ns - ahead : 1; /* long ago, and not 0, which may mean something */
}

struct weir_instant clock_instant_slow(struct clock *clock, unsigned needs)
{
    uint64_t now_ns = needs & CLOCK_NEEDS_BOOTTIME ? clock_boottime_ns(clock) : clock_now_ns(clock);

    return (struct weir_instant){
        now_ns, needs & CLOCK_NEEDS_WALL ? clock_wall_offset_from_ns(clock, needs) : 0};
}

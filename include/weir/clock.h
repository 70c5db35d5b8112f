/* SPDX-License-Identifier: MIT */
/*
 * Time. All instants are uint64_t nanoseconds of the instance's clock: CLOCK_MONOTONIC (it stands
 * still while the machine is suspended) unless the program injects its own, for tests and
 * simulations.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <weir/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir weir;

/*
 * A clock of the program's own. `now_ns` may be called from any thread that uses the instance and
 * must not call weir. A reading earlier than one seen before counts as the same instant, and one
 * above 2^63 - 1 as that.
 * `wall_offset_ns` is what must be added to `now_ns` to get nanoseconds since 1970-01-01 UTC; NULL
 * means 0. Only windows anchored to the calendar use it.
 *
 * An injected clock cannot wake anybody: after moving it on, call weir_tick(). Instances that share
 * sets with others, in this process or in other ones, must go by the same clock as these.
 */
struct weir_clock {
    size_t size; /* sizeof(struct weir_clock) */
    uint64_t (*now_ns)(void *userdata);
    int64_t (*wall_offset_ns)(void *userdata);
    void *userdata;
};

/* The instance's clock, now, in nanoseconds. Any thread. Cannot fail. */
WEIR_PUBLIC uint64_t weir_now(weir *w);

/*
 * Decides everything that has become due: grants to waiters whose instant has come, timeouts,
 * expired max_wait; and sees to what other processes did to waiters of this one. Only needed with
 * an injected clock, harmless otherwise. Any thread; never waits for anything to become due.
 * Returns how many waiters were decided, or -ECHILD after fork.
 */
WEIR_PUBLIC int weir_tick(weir *w);

#ifdef __cplusplus
}
#endif
#endif

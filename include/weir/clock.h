/* SPDX-License-Identifier: MIT */
/*
 * Time. All instants are uint64_t nanoseconds of the instance's clock: CLOCK_MONOTONIC (it stands
 * still while the machine is suspended), or readings of it that are shared for a microsecond, unless
 * the program injects its own, for tests and simulations.
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

/*
 * Where the time comes from: options.clock_source, or `clock` of a configuration, or else
 * CLOCK_MONOTONIC, read each time.
 *
 * WEIR_CLOCK_TSC takes less than half of that. It is the same clock; but whoever asks gets what it
 * said up to a microsecond ago, as long as the processor's time stamp counter says that no more has
 * gone by. Such a reading is never ahead of CLOCK_MONOTONIC and never before one that was seen by
 * any thread, whatever the counter does; it is up to 2 µs behind, if the kernel at that moment slews
 * its clock by all that it can, and by what the processor ran ahead of the program when it read the
 * counter. So nothing is granted early; by CLOCK_MONOTONIC two grants may be closer to each other by
 * so much than the limits say, and a wait may end so much before its timeout. A rate whose burst
 * lasts for less than 2 µs is not used up. Who was woken at an instant finds that it has come.
 *
 * It is to be had on x86-64, where the counter is invariant and the kernel itself goes by it. If it
 * cannot be had, or turns out to be slow or to go back, or the instance takes part in a set that
 * processes share, which compare their readings, then the clock is CLOCK_MONOTONIC read each time,
 * for good, and the log callback hears why.
 */
enum weir_clock_source {
    WEIR_CLOCK_DEFAULT = 0,
    WEIR_CLOCK_MONOTONIC = 1,
    WEIR_CLOCK_TSC = 2,
    WEIR_CLOCK_INJECTED = 3 /* an answer only: options.clock */
};

/* What the instance's clock comes from, at this moment. Any thread. Cannot fail. */
WEIR_PUBLIC enum weir_clock_source weir_clock_in_use(weir *w);

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

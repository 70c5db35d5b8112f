/* SPDX-License-Identifier: MIT */
/*
 * Time: the clock of an instance. All times are uint64_t nanoseconds of the instance's clock. That
 * is CLOCK_MONOTONIC, which stops while the machine is suspended (windows of a set with `clock:
 * boottime` go on); or readings of it shared for a microsecond; or a clock injected by the program,
 * for tests and simulations.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <weir/algorithm.h> /* WEIR_CLOCK_MAX */
#include <weir/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir weir;

/*
 * A clock of the program. `now_ns` may be called from any thread that uses the instance and must
 * not call weir. A reading earlier than a previous one counts as that one; a reading above
 * WEIR_CLOCK_MAX, 219 years, counts as that. `wall_offset_ns` is added to `now_ns` to get
 * nanoseconds since 1970-01-01 UTC; NULL means 0. Only windows anchored to the calendar use it. A
 * change of it is a step of the wall clock, after which weir_tick() looks at every wait queue that
 * depends on it: it should change for nothing else.
 *
 * An injected clock wakes no thread: after advancing or stepping it, call weir_tick(). Instances
 * that share sets with others, in this process or in other ones, must use one clock.
 */
struct weir_clock {
    size_t size; /* sizeof(struct weir_clock) */
    uint64_t (*now_ns)(void *userdata);
    int64_t (*wall_offset_ns)(void *userdata);
    void *userdata;
};

/*
 * Source of the time: options.clock_source, or `clock` of a configuration, or else CLOCK_MONOTONIC,
 * read each time.
 *
 * WEIR_CLOCK_TSC takes less than half the time of a reading. A reading is one of CLOCK_MONOTONIC,
 * up to a microsecond old, as long as the processor's time stamp counter says that no more has
 * passed. It is never ahead of CLOCK_MONOTONIC and never before a reading seen by any thread,
 * whatever the counter does. It is up to 2 µs behind, if the kernel slews its clock as fast as it
 * can, plus the time by which the processor read the counter ahead of the program. So nothing is
 * granted early. By CLOCK_MONOTONIC two grants may be closer to each other by so much than the
 * limits say, and a wait may end so much before its timeout. A rate with a burst of less than 2 µs
 * is not used up. A thread that was woken at a deadline finds that the deadline has passed.
 *
 * It is available on x86-64 where the counter is invariant and the kernel itself uses it. It is
 * replaced by CLOCK_MONOTONIC, read each time, if it is not available, is slow or goes back, or if
 * the instance attaches to a shared set: the processes of such a set compare their readings. That
 * is final and is reported to the log callback.
 */
enum weir_clock_source {
    WEIR_CLOCK_DEFAULT = 0,
    WEIR_CLOCK_MONOTONIC = 1,
    WEIR_CLOCK_TSC = 2,
    WEIR_CLOCK_INJECTED = 3 /* only returned: options.clock */
};

/* Returns the source of the instance's clock. It may change to CLOCK_MONOTONIC, as said with its
 * type. Any thread. Cannot fail. [any thread, reads] */
WEIR_PUBLIC enum weir_clock_source weir_clock_in_use(weir *w);

/* Returns the time of the instance's clock. It is in nanoseconds. Any thread. Cannot fail.
 * [any thread, reads] */
WEIR_PUBLIC uint64_t weir_now(weir *w);

/*
 * Decides everything that has become due. These are grants by the passing of time or by a step of
 * the wall clock, timeouts, and expired max_wait. It also handles what other processes did to
 * waiters of this one. Only needed with an injected clock, harmless otherwise. Any thread; never
 * waits for anything to become due. Returns how many waiters were decided, or -ECHILD after fork.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_tick(weir *w);

/*
 * Tells when weir_tick(), or the reap of a completion queue, will have something to decide. For
 * programs with an injected clock: what moves it stops at each such time, and so decides all at
 * its exact time. Stores in `*ret_ns` that time of the instance's clock, ns, which may have passed
 * already; or WEIR_FOREVER: nothing is decided before another call, or a step of the wall clock.
 * Requests of a pool with WEIR_POOL_WAIT_ANY need weir_tick(), also if they are in a completion
 * queue.
 * Waiters that are blocked in weir_acquire, and what other processes do, are not looked at. It may
 * be too early: then nothing is decided, and the next answer is a later one. Any thread. Returns 0,
 * -EINVAL (an argument is NULL) or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_due_at(weir *w, uint64_t *ret_ns);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/*
 * A thread joins the wait queue of a private set while the instance is closed. Each of the two is
 * stopped at any of its steps (fiber.h) until the other is done. No waiter is left in the queue,
 * where it would never be decided.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "api/set_object.h"
#include "base/sched_point.h"
#include "crash_world.h"
#include "stepped.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { HOLDER, NEWCOMER, CLOSER };
enum { STATES = 3 };

static struct fiber fibers[THREADS];
static uint32_t set;         /* that all this is about */
static int result;           /* of the newcomer's call */
static uint32_t told, heard; /* newcomers that saw it themselves; waiters that were notified */

static void run_newcomer(void *unused)
{
    (void)unused;
    result = world_acquire(NEWCOMER, set, 0, 1, MODE_WAIT);
}

static void run_closer(void *unused)
{
    (void)unused;
    atomic_store(world.w->state, INSTANCE_HERE | INSTANCE_CLOSED);
    SCHED_POINT();
    set_shutdown(world.threads[CLOSER], world.sets[set]);
}

/* Nothing is left: no request waits; one does; one did, so that the set is inflated. */
static void prepare(uint32_t state)
{
    atomic_store(world.w->state, INSTANCE_HERE);
    world_restore();
    world_acquire(HOLDER, set, 0, 2, MODE_WAIT);
    if (state > 0)
        expect(world_acquire(HOLDER, set, 1, 1, MODE_WAIT) == 1, "there is no line");
    if (state > 1)
        world_cancel(HOLDER, set, 1);
    fiber_start(&fibers[NEWCOMER], run_newcomer, NULL);
    fiber_start(&fibers[CLOSER], run_closer, NULL);
}

/* Both are done. */
static void check(uint32_t state)
{
    enum record_state was = world_state(NEWCOMER, set, 0);

    expect(fibers[NEWCOMER].state == FIBER_DONE && fibers[CLOSER].state == FIBER_DONE, "held up");
    expect(result == 1 || result == -ESHUTDOWN, "entering came to %d", result);
    expect(was == (result == 1 ? RECORD_SHUT_DOWN : RECORD_FREE), "%d, and its record is %d",
           result, (int)was);
    expect(state != 1 || world_state(HOLDER, set, 1) == RECORD_SHUT_DOWN, "a waiter is left");
    told += result == -ESHUTDOWN;
    heard += result == 1;
    world_check();
    for (uint32_t i = 0; i < 2; i++)
        world_release(HOLDER, set, i, 0);
    world_release(NEWCOMER, set, 0, 0);
    world_check_empty();
}

/* The first thread is stopped after n steps, the second after m, and each goes on to its end.
 * Returns whether both were stopped, so that there may be more steps. */
static bool stop_both(uint32_t first, uint64_t n, uint32_t second, uint64_t m, bool *first_stopped)
{
    bool stopped;

    *first_stopped = fiber_go(&fibers[first], n) == FIBER_READY;
    stopped = fiber_go(&fibers[second], m) == FIBER_READY;
    fiber_go(&fibers[first], 0);
    fiber_go(&fibers[second], 0);
    return stopped;
}

static uint64_t each_step_of_both(uint32_t state, uint32_t first, uint32_t second)
{
    bool first_stopped = true;
    uint64_t rounds = 0;

    for (uint64_t n = 1; first_stopped && !world.failures; n++) {
        bool stopped = true;

        for (uint64_t m = 1; stopped && !world.failures; m++, rounds++) {
            world.where[0] = set;
            world.where[1] = state;
            world.where[2] = n;
            world.where[3] = m;
            prepare(state);
            stopped = stop_both(first, n, second, m, &first_stopped);
            check(state);
        }
    }
    return rounds;
}

static void each_set(const char *what, uint32_t first, uint32_t second)
{
    uint64_t rounds = 0;

    world.what = what;
    world.failures = told = heard = 0;
    for (set = 0; set < SETS; set++)
        for (uint32_t state = 0; state < STATES; state++)
            rounds += each_step_of_both(state, first, second);
    atomic_store(world.w->state, INSTANCE_HERE);
    printf("%s: %lu rounds, %u saw it, %u heard of it\n", what, rounds, told, heard);
    assert_int_equal(world.failures, 0);
    assert_true(told && heard);
}

static void test_newcomer_is_stopped(void **state)
{
    (void)state;
    each_set("a newcomer, and a closing thread", NEWCOMER, CLOSER);
}

static void test_closer_is_stopped(void **state)
{
    (void)state;
    each_set("a closing thread, and a newcomer", CLOSER, NEWCOMER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newcomer_is_stopped),
        cmocka_unit_test(test_closer_is_stopped),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    return cmocka_run_group_tests(tests, stepped_setup_private, stepped_teardown);
}

/* SPDX-License-Identifier: MIT */
/*
 * A strict refund is stopped at any of its steps (fiber.h) while the whole burst comes back and is
 * granted again, that in turn stopped at any of its steps. Whichever state the refund then goes to,
 * it is as of an instant that no grant in that state is after: what it gives back cannot be used at
 * the instant of those grants.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "crash_world.h"
#include "stepped.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { REFUNDER, GREEDY, NEXT };
enum { BURST = 2 };

static struct fiber fibers[THREADS];
static int result; /* of the greedy thread's call */

static void run_refunder(void *unused)
{
    (void)unused;
    world_release(REFUNDER, SET_RATE, 0, 0);
}

static void run_greedy(void *unused)
{
    (void)unused;
    result = world_acquire(GREEDY, SET_RATE, 0, BURST, MODE_TRY);
}

/* One round. Returns whether the refund and the grant were stopped, so that there may be more
 * steps. */
static void round_of(uint64_t n, uint64_t m, bool *refund_stopped, bool *grant_stopped)
{
    world_restore();
    expect(world_acquire(REFUNDER, SET_RATE, 0, 1, MODE_TRY) == 0, "the first unit is refused");
    fiber_start(&fibers[REFUNDER], run_refunder, NULL);
    fiber_start(&fibers[GREEDY], run_greedy, NULL);
    *refund_stopped = fiber_go(&fibers[REFUNDER], n) == FIBER_READY;
    world_pass(BURST * INTERVAL_NS);
    *grant_stopped = fiber_go(&fibers[GREEDY], m) == FIBER_READY;
    fiber_go(&fibers[REFUNDER], 0);
    fiber_go(&fibers[GREEDY], 0);
    expect(fibers[REFUNDER].state == FIBER_DONE && fibers[GREEDY].state == FIBER_DONE, "held up");
    if (result == -EAGAIN) /* its reading of the clock was before the refund's */
        run_greedy(NULL);
    expect(result == 0, "the burst is refused: %d", result);
    expect(world_acquire(NEXT, SET_RATE, 0, 1, MODE_TRY) == -EAGAIN, "more than the burst");
    world_pass(INTERVAL_NS);
    expect(world_acquire(NEXT, SET_RATE, 0, 1, MODE_TRY) == 0, "less than the rate");
}

static void no_step_of_a_refund_gives_back_too_much(void **state)
{
    bool refund_stopped = true;
    uint64_t rounds = 0;

    (void)state;
    world.what = "a strict refund, and a grant";
    world.failures = 0;
    world.sets[SET_RATE]->limits.items->refund = REFUND_STRICT;
    for (uint64_t n = 1; refund_stopped && !world.failures; n++) {
        bool grant_stopped = true;

        for (uint64_t m = 1; grant_stopped && !world.failures; m++, rounds++) {
            world.where[0] = n;
            world.where[1] = m;
            round_of(n, m, &refund_stopped, &grant_stopped);
        }
    }
    world.sets[SET_RATE]->limits.items->refund = REFUND_YES;
    printf("%s: %lu rounds\n", world.what, rounds);
    assert_int_equal(world.failures, 0);
    assert_true(rounds > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_step_of_a_refund_gives_back_too_much)};
    int r;

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    r = cmocka_run_group_tests_name("private", tests, stepped_setup_private, stepped_teardown);
    return r ? r : cmocka_run_group_tests_name("shared", tests, stepped_setup, stepped_teardown);
}

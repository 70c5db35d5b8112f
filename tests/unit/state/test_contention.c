/* SPDX-License-Identifier: MIT */
/* Contention: a thread that has lost often sets the yield hint, clears it again, and holds up no
 * thread that can do without. */
#include "api/instance.h"
#include "lib/world.h"
#include "state/contention.h"

static unsigned pressed(const struct set_head *set)
{
    return atomic_load(&set->yield_hint);
}

static void a_thread_that_lost_often_sets_the_hint(void **state)
{
    struct set_head set = {0};
    unsigned turn = 0;

    (void)state;
    for (unsigned i = 1; i <= CONTENTION_TURNS + 2; i++) {
        assert_int_equal(pressed(&set), i > CONTENTION_TURNS);
        contention_backoff(false, &set, &turn);
        assert_int_equal(turn, i < CONTENTION_TURNS ? i : CONTENTION_TURNS);
    }
    contention_clear(&set, 0); /* another thread, which has not set it */
    assert_int_equal(pressed(&set), 1);
    contention_clear(&set, turn);
    assert_int_equal(pressed(&set), 0);
}

/* It was stopped, or took the slow path: each time that it sets the hint counts once. */
static void no_thread_waits_long_for_one_that_does_not_come(void **state)
{
    struct set_head set = {.yield_hint = 1};

    (void)state;
    contention_yield(&set);
    assert_int_equal(pressed(&set), 0);
}

static void what_the_dead_have_left_holds_up_no_set(void **state)
{
    struct set_head *head;

    (void)state;
    world_limits("{ type: call, algorithm: gcra, capacity: 10, window: 10s },"
                 " { type: resource, key: r, capacity: 2 }");
    release(granted(NULL));
    head = region_block(world.set->region, world.set->head_unit);
    for (int i = 0; i < 3; i++) {
        weir_acquisition *a;

        atomic_store(&head->yield_hint, 1);
        a = granted(NULL);
        assert_int_equal(pressed(head), 0);
        atomic_store(&head->yield_hint, 1);
        release(a); /* which is nothing new */
        assert_int_equal(pressed(head), 1);
    }
    assert_int_equal(limit_stats(1).held, 0);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_thread_that_lost_often_sets_the_hint),
        leak_checked_test(no_thread_waits_long_for_one_that_does_not_come),
        leak_checked_test(what_the_dead_have_left_holds_up_no_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

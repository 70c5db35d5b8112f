/* SPDX-License-Identifier: MIT */
/* Contention: a thread that has lost twice waits for its turn, gets it from the thread that works
 * on the set, and holds up no thread that can do without. */
#include "api/instance.h"
#include "lib/world.h"
#include "state/contention.h"

#define OTHER_OPERATIONS (CONTENTION_OPERATIONS + 1) /* until it has given its turn */

static struct {
    const struct region *region;
    uint32_t set, own, other; /* units */
    struct set_head *head;
} turns;

static struct thread_head *thread_head(uint32_t unit)
{
    return region_block(turns.region, unit);
}

/* A set of several limits, the calling thread, and another one that is only a place in memory. */
static void turns_open(void)
{
    world_limits("{ type: call, algorithm: gcra, capacity: 1000, window: 10s },"
                 " { type: resource, key: r, capacity: 2 }");
    release(granted(NULL));
    turns.region = world.set->region;
    turns.set = world.set->head_unit;
    turns.head = region_block(turns.region, turns.set);
    turns.own = thread_ctx_for_set(thread_ctx_self, world.set->number)->unit;
    turns.other = version_new_thread(world.set->region);
    assert_true(turns.own && turns.other);
}

static void a_thread_that_lost_waits_for_its_turn_the_second_time(void **state)
{
    unsigned losses = 0;

    (void)state;
    turns_open();
    thread_head(turns.own)->turn_done = 1;
    thread_head(turns.own)->turn_has_come = 1;
    contention_backoff(turns.region, turns.set, turns.own, &losses);
    assert_int_equal(losses, 1);
    assert_int_equal(thread_head(turns.own)->turn_has_come, 1); /* no wait has begun */
    contention_backoff(turns.region, turns.set, turns.own, &losses);
    assert_int_equal(losses, 2);
    assert_int_equal(thread_head(turns.own)->turn_has_come, 0);
    assert_int_equal(thread_head(turns.own)->turn_done, 0);
    assert_int_equal(turns.head->next_turn, 0); /* as nothing changed the set */
    world_close();
}

static void a_turn_is_given_after_so_many_operations(void **state)
{
    (void)state;
    turns_open();
    for (unsigned round = 0; round < 2; round++) {
        thread_head(turns.other)->turn_has_come = 0;
        turns.head->next_turn = turns.other;
        for (unsigned i = 1; i <= OTHER_OPERATIONS; i++) {
            assert_int_equal(thread_head(turns.other)->turn_has_come, 0);
            assert_int_equal(turns.head->next_turn, turns.other);
            release(granted(NULL));
        }
        assert_int_equal(thread_head(turns.other)->turn_has_come, 1);
        assert_int_equal(thread_head(turns.own)->turn_done, 0);
        assert_int_equal(turns.head->next_turn, 0); /* nor does the other thread come */
    }
    world_close();
}

static void a_third_thread_takes_no_place(void **state)
{
    unsigned losses = 1;

    (void)state;
    turns_open();
    turns.head->next_turn = turns.other;
    contention_backoff(turns.region, turns.set, turns.own, &losses);
    assert_int_equal(turns.head->next_turn, turns.other);
    world_close();
}

/* A thread may have ended, or was killed. */
static void what_was_left_holds_up_no_set(void **state)
{
    (void)state;
    turns_open();
    turns.head->next_turn = turns.other;
    for (unsigned n = 0; turns.head->next_turn; n++) {
        assert_true(n < OTHER_OPERATIONS);
        release(granted(NULL));
    }
    assert_int_equal(limit_stats(1).held, 0);
    world_close();
}

static void a_release_goes_on(void **state)
{
    weir_acquisition *a;

    (void)state;
    turns_open();
    a = granted(NULL);
    thread_head(turns.own)->turn_done = CONTENTION_OPERATIONS;
    turns.head->next_turn = turns.other;
    release(a); /* which is nothing new */
    assert_int_equal(turns.head->next_turn, turns.other);
    assert_int_equal(thread_head(turns.other)->turn_has_come, 0);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_thread_that_lost_waits_for_its_turn_the_second_time),
        leak_checked_test(a_turn_is_given_after_so_many_operations),
        leak_checked_test(a_third_thread_takes_no_place),
        leak_checked_test(what_was_left_holds_up_no_set),
        leak_checked_test(a_release_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Holders and waiters of a set: in which order, of which process, at which place, how much. */
#include "api/instance.h"
#include "api/set_object.h"
#include "base/long_look.h"
#include "lib/world.h"
#include <unistd.h>

#define LIMITS                                                                                     \
    "{ type: resource, key: a, capacity: 10 }, { type: resource, key: b, capacity: 10 },"          \
    "{ type: resource, key: a, capacity: 20 }"

static struct weir_holder holders[64];

static int look(void)
{
    memset(holders, 0xff, sizeof(holders));
    return weir_set_holders(world.set, holders, 64);
}

static void assert_amounts(const struct weir_holder *holder, uint64_t a, uint64_t b)
{
    uint64_t amounts[4] = {77, 77, 77, 77};

    assert_int_equal(weir_set_holder_amounts(world.set, holder, amounts, 4), 3);
    assert_int_equal(amounts[0], a);
    assert_int_equal(amounts[1], b);
    assert_int_equal(amounts[2], a);
    assert_int_equal(amounts[3], 77);
}

static void holders_have_no_position(void **state)
{
    weir_acquisition *first, *second;

    (void)state;
    world_limits(LIMITS);
    assert_int_equal(look(), 0);
    first = granted(ASK({"a", 3}, {"b", 0}));
    advance(SECOND);
    second = granted(ASK({"a", 0}, {"b", 9}));
    assert_int_equal(look(), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(holders[i].process, getpid());
        assert_int_equal(holders[i].thread, gettid());
        assert_int_equal(holders[i].waiting, 0);
        assert_int_equal(holders[i].position, 0);
        assert_int_equal(holders[i].since_ns, START + (unsigned)i * SECOND);
    }
    assert_amounts(&holders[0], 3, 0);
    assert_amounts(&holders[1], 0, 9);
    release(first);
    release(second);
    world_close();
}

/* Records are used again in an order of their own: the wait queue is what counts. */
static void the_wait_queue_is_numbered_from_its_head(void **state)
{
    weir_acquisition *all, *waiting[20];

    (void)state;
    world_limits(LIMITS);
    for (int round = 0; round < 3; round++) {
        all = granted(ASK({"a", 10}, {"b", 0}));
        for (unsigned i = 0; i < 20; i++) {
            waiting[i] = pending(ASK({"a", i % 10 + 1}, {"b", 0}));
            if (i % 3 == 0) /* several begin to wait at one instant */
                advance(MS);
        }
        release_expecting(waiting[0], 0); /* the head, */
        release_expecting(waiting[7], 0); /* and another one */
        assert_int_equal(look(), 19);
        assert_int_equal(holders[0].position, 0);
        for (unsigned seen = 0, i = 1; i < 19; i++) {
            unsigned position = holders[i].position;

            assert_int_equal(holders[i].waiting, 1);
            assert_in_range(position, 1, 18);
            assert_false(seen & 1u << position);
            seen |= 1u << position;
            /* Places 1 … 6 are those of waiting[1 … 6], 7 … 18 those of waiting[8 … 19]. */
            assert_amounts(&holders[i], (position + (position > 6)) % 10 + 1, 0);
        }
        release(all);
        for (unsigned i = 1; i < 20; i++)
            if (i != 7)
                weir_release(&waiting[i]);
    }
    world_close();
}

static void amounts_of_a_holder_that_is_gone(void **state)
{
    weir_acquisition *all, *waits;
    struct weir_holder held, waiting;
    uint64_t amounts[3];

    (void)state;
    world_limits(LIMITS);
    all = granted(ASK({"a", 10}, {"b", 1}));
    advance(MS);
    waits = pending(ASK({"a", 2}, {"b", 1}));
    assert_int_equal(look(), 2);
    held = holders[0];
    waiting = holders[1];
    assert_amounts(&held, 10, 1);
    assert_amounts(&waiting, 2, 1);
    release(all);
    assert_int_equal(weir_set_holder_amounts(world.set, &held, amounts, 3), -ESRCH);
    assert_int_equal(weir_set_holder_amounts(world.set, &waiting, amounts, 3), -ESRCH);
    assert_int_equal(look(), 1);
    assert_amounts(&holders[0], 2, 1);
    release(waits);
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], amounts, 3), -ESRCH);
    all = granted(ASK({"a", 1}, {"b", 1})); /* in the same record, most likely */
    assert_int_equal(weir_set_holder_amounts(world.set, &held, amounts, 3), -ESRCH);
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], amounts, 3), -ESRCH);
    release(all);
    world_close();
}

static void amounts_of_no_holder(void **state)
{
    struct weir_holder nobody = {0};
    weir_acquisition *all;
    uint64_t amounts[3];

    (void)state;
    world_limits(LIMITS);
    all = granted(ASK({"a", 1}, {"b", 1}));
    for (uint64_t id = 0; id < UINT64_C(1) << 28; id = id < 20000 ? id + 1 : 2 * id) {
        nobody.id = id | UINT64_C(1) << 40;
        assert_int_equal(weir_set_holder_amounts(world.set, &nobody, amounts, 3), -ESRCH);
    }
    assert_int_equal(look(), 1);
    assert_int_equal(weir_set_holder_amounts(world.set, NULL, amounts, 3), -EINVAL);
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], NULL, 3), -EINVAL);
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], NULL, 0), 3);
    release(all);
    world_close();
    world_set("");
    assert_int_equal(weir_set_holder_amounts(world.set, &holders[0], amounts, 3), -ESRCH);
    world_close();
}

static const struct weir_holder *waiter_at(uint32_t position)
{
    int n = look();

    for (int i = 0; i < n; i++)
        if (holders[i].position == position)
            return &holders[i];
    fail();
    return NULL;
}

/* Asserts what the first waiter waits for: `after_ns` is by time alone. */
static void assert_waits_for(const char *key, uint64_t after_ns)
{
    struct weir_refusal found = {.size = sizeof(found)};

    assert_int_equal(weir_set_waiter_refusal(world.set, waiter_at(1), &found), 0);
    assert_string_equal(found.key, key);
    assert_string_equal(found.set, weir_set_name(world.set));
    assert_int_equal(found.retry_after_ns, after_ns);
}

static void a_first_waiter_waits_for_a_resource(void **state)
{
    struct weir_refusal found = {.size = sizeof(found), .key = "untouched"};
    weir_acquisition *holds, *first, *second;

    (void)state;
    world_limits(LIMITS);
    holds = granted(ASK({"a", 4}, {"b", 10}));
    first = pending(ASK({"a", 7}, {"b", 1}));
    second = pending(ASK({"a", 1}, {"b", 0}));
    /* All limits are in the way: the one that is told is the first of the latest. */
    assert_waits_for("a", WEIR_FOREVER);
    assert_int_equal(weir_set_waiter_refusal(world.set, waiter_at(2), &found), 1);
    assert_string_equal(found.key, "untouched");
    weir_release(&first);
    assert_int_equal(weir_acquisition_result(second), 0);
    first = pending(ASK({"a", 0}, {"b", 1}));
    assert_waits_for("b", WEIR_FOREVER);
    release(holds);
    weir_release(&first);
    weir_release(&second);
    world_close();
}

static void a_first_waiter_waits_for_time(void **state)
{
    weir_acquisition *holds, *waits, *ahead;
    uint64_t at_ns;

    (void)state;
    world_limits("{ type: call, key: c, algorithm: gcra, capacity: 10, window: 10s }, "
                 "{ type: resource, key: r, capacity: 2 }");
    holds = granted(ASK({"c", 10}, {"r", 1}));
    waits = pending(ASK({"c", 3}, {"r", 1}));
    assert_waits_for("c", 3 * SECOND);
    advance(SECOND);
    assert_waits_for("c", 2 * SECOND);
    advance(2 * SECOND);
    assert_int_equal(weir_acquisition_result(waits), 0);
    weir_release(&waits);
    weir_release(&holds);
    assert_int_equal(reserve(ASK({"c", 1}, {"r", 0}), &ahead, &at_ns), 0);
    waits = pending(ASK({"c", 0}, {"r", 1}));
    assert_waits_for("", SECOND);
    weir_release(&waits);
    weir_release(&ahead);
    world_close();
}

static void what_is_no_first_waiter(void **state)
{
    struct weir_refusal found = {.size = sizeof(found)}, small = {.size = 8};
    weir_acquisition *holds, *waits;
    struct weir_holder gone;

    (void)state;
    world_limits(LIMITS);
    holds = granted(ASK({"a", 10}, {"b", 0}));
    waits = pending(ASK({"a", 1}, {"b", 0}));
    gone = *waiter_at(1);
    assert_int_equal(weir_set_waiter_refusal(NULL, &gone, &found), -EINVAL);
    assert_int_equal(weir_set_waiter_refusal(world.set, NULL, &found), -EINVAL);
    assert_int_equal(weir_set_waiter_refusal(world.set, &gone, NULL), -EINVAL);
    assert_int_equal(weir_set_waiter_refusal(world.set, &gone, &small), -EINVAL);
    assert_int_equal(look(), 2);
    assert_int_equal(holders[0].waiting, 0);
    assert_int_equal(weir_set_waiter_refusal(world.set, &holders[0], &found), -EINVAL);
    weir_release(&waits);
    assert_int_equal(weir_set_waiter_refusal(world.set, &gone, &found), -ESRCH);
    release(holds);
    world_close();
}

/* ---- looks of another thread ---- */

/* Threads that need the lock of the instance do not wait for a look; else it waits for itself. */
static void a_look_takes_no_lock(void **state)
{
    weir_acquisition *held;

    (void)state;
    world_limits(LIMITS);
    held = granted(ASK({"a", 3}, {"b", 0}));
    assert_int_equal(look(), 1);
    assert_int_equal(pthread_mutex_lock(&world.w->lock), 0);
    assert_int_equal(look(), 1);
    assert_amounts(&holders[0], 3, 0);
    assert_int_equal(set_holders_oldest(world.set, holders, 2), 1);
    pthread_mutex_unlock(&world.w->lock);
    release(held);
    world_close();
}

static void the_oldest_holders_and_waiters_are_listed(void **state)
{
    weir_acquisition *held[10], *waiting[9];

    (void)state;
    world_limits(LIMITS);
    for (unsigned i = 0; i < 10; i++, advance(SECOND))
        held[i] = granted(ASK({"a", 1}, {"b", 0}));
    for (unsigned i = 0; i < 9; i++, advance(SECOND))
        waiting[i] = pending(ASK({"a", i + 1}, {"b", 0}));
    memset(holders, 0xff, sizeof(holders));
    assert_int_equal(set_holders_oldest(world.set, holders, 3), 6);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(holders[i].process, getpid());
        assert_int_equal(holders[i].waiting, i >= 3);
        assert_int_equal(holders[i].position, i >= 3 ? i - 2 : 0);
        assert_int_equal(holders[i].since_ns, START + (i + (i >= 3 ? 7 : 0)) * SECOND);
    }
    for (unsigned i = 9; i-- > 0;)
        weir_release(&waiting[i]);
    for (unsigned i = 0; i < 10; i++)
        release(held[i]);
    world_close();
}

/* Positions are those of the queue, also of those that come behind waiters that are not listed. */
static void a_position_counts_all_waiters(void **state)
{
    weir_acquisition *outer, *held, *nested, *waiting[4];
    struct weir_request *request = ASK({"a", 9}, {"b", 0});

    (void)state;
    world_limits(LIMITS);
    outer = granted(ASK({"a", 1}, {"b", 0}));
    held = granted(ASK({"a", 9}, {"b", 0}));
    for (unsigned i = 0; i < 4; i++, advance(SECOND))
        waiting[i] = pending(ASK({"a", 2}, {"b", 0}));
    request->within = outer;
    nested = pending(request); /* the youngest, and the first in the queue */
    assert_int_equal(set_holders_oldest(world.set, holders, 2), 4);
    for (unsigned i = 2; i < 4; i++) {
        assert_int_equal(holders[i].since_ns, START + (i - 2) * SECOND);
        assert_int_equal(holders[i].position, i);
    }
    weir_release(&nested);
    for (unsigned i = 4; i-- > 0;)
        weir_release(&waiting[i]);
    release(held);
    release(outer);
    world_close();
}

static bool goes_on(void *userdata)
{
    unsigned *left = userdata;

    return (*left)-- != 0;
}

static void look_at_stats(void)
{
    struct weir_set_stats found = {.size = sizeof(found)};
    struct weir_limit_stats limits[2];

    assert_int_equal(weir_set_stats(world.set, &found, limits, 2), 2);
}

static void look_at_subjects(void)
{
    struct weir_subjects_stats found = {.size = sizeof(found)};

    assert_int_equal(weir_set_subjects(world.set, &found), 1);
}

static void look_at_the_oldest(void)
{
    assert_true(set_holders_oldest(world.set, holders, 2) <= 3);
}

static void look_at_classes(void)
{
    struct weir_class_stats classes[2];

    assert_int_equal(weir_set_classes(world.set, classes, 2), 2);
}

static void look_at_what_a_waiter_waits_for(void)
{
    static struct weir_holder waiter = {.id = 0};
    struct weir_refusal found = {.size = sizeof(found)};

    if (!waiter.id)
        waiter = holders[set_holders_oldest(world.set, holders, 2) - 1];
    assert_true(weir_set_waiter_refusal(world.set, &waiter, &found) >= 0);
}

/* Takes as many steps as there are, or ends with the question that is answered with no. */
static void expect_look(void (*look_at)(void), uint64_t least)
{
    unsigned left = UINT32_MAX;
    struct long_look whole = {.goes_on = goes_on, .userdata = &left}, ended = whole;

    look_at(); /* what is found once is found here */
    long_look_self = &whole;
    look_at();
    assert_true(whole.steps >= least && !whole.has_ended);
    assert_int_equal(UINT32_MAX - left, (whole.steps + LONG_LOOK_STEPS - 1) / LONG_LOOK_STEPS);
    left = 1;
    long_look_self = &ended;
    look_at();
    assert_true(ended.has_ended);
    /* After the last question, parts of the call ask once each. */
    assert_in_range(ended.steps, LONG_LOOK_STEPS + 1, LONG_LOOK_STEPS + 4);
    long_look_self = NULL;
    look_at();
}

static struct weir_request *of_subject(struct weir_request *request, unsigned i)
{
    static unsigned subject;

    subject = i;
    request->subject = &subject;
    request->subject_size = sizeof(subject);
    return request;
}

static void a_look_ends_when_it_is_to(void **state)
{
    enum { MANY = 2200 };
    static weir_acquisition *held[MANY];
    weir_acquisition *waits;

    (void)state;
    world_set("priorities: 2, limits: [ { type: resource, key: a, capacity: 2200 } ]");
    for (unsigned i = 0; i < MANY; i++)
        held[i] = granted(ASK({"a", 1}));
    expect_look(look_at_the_oldest, MANY);
    expect_look(look_at_classes, MANY);
    for (unsigned i = 0; i < MANY; i++)
        release(held[i]);
    world_close();

    world_set("subjects: { max: 2300 }, limits: [ { type: resource, key: a, capacity: 1 }, "
              "{ type: resource, key: b, capacity: 1 } ]");
    for (unsigned i = 0; i < MANY; i++) {
        held[i] = granted(of_subject(ASK({"a", 1}), i));
    }
    expect_look(look_at_stats, 2 * MANY);
    expect_look(look_at_subjects, MANY);
    expect_look(look_at_the_oldest, MANY);
    waits = pending(of_subject(ASK({"a", 1}), MANY - 1));
    expect_look(look_at_what_a_waiter_waits_for, MANY);
    release(waits);
    for (unsigned i = 0; i < MANY; i++)
        release(held[i]);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(holders_have_no_position),
        leak_checked_test(the_wait_queue_is_numbered_from_its_head),
        leak_checked_test(amounts_of_a_holder_that_is_gone),
        leak_checked_test(amounts_of_no_holder),
        leak_checked_test(a_first_waiter_waits_for_a_resource),
        leak_checked_test(a_first_waiter_waits_for_time),
        leak_checked_test(what_is_no_first_waiter),
        leak_checked_test(a_look_takes_no_lock),
        leak_checked_test(the_oldest_holders_and_waiters_are_listed),
        leak_checked_test(a_position_counts_all_waiters),
        leak_checked_test(a_look_ends_when_it_is_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

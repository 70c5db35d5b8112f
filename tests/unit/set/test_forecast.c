/* SPDX-License-Identifier: MIT */
/* The forecast of a wait: a lower bound that counts the waiters ahead; exact in simple cases. */
#include "lib/world.h"
#include <pthread.h>

/* One token per second, ten at once. */
#define RATE "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s }"
#define SLOT "{ type: resource, key: r, capacity: 1 }"

/* Seconds until `request` would be granted. */
static uint64_t forecast(const struct weir_request *request)
{
    uint64_t at = 0;

    assert_int_equal(weir_set_ready_at(world.set, request, &at), 0);
    assert_true(at >= world.now);
    assert_int_equal((at - world.now) % SECOND, 0);
    return (at - world.now) / SECOND;
}

static void without_waiters_it_is_when_the_limits_say(void **state)
{
    (void)state;
    world_limits(RATE);
    assert_int_equal(forecast(ASK({"k", 10})), 0);
    assert_int_equal(take(ASK({"k", 10})), 0);
    assert_int_equal(forecast(ASK({"k", 1})), 1);
    assert_int_equal(forecast(ASK({"k", 10})), 10);
    assert_int_equal(forecast(ASK({"k", 0})), 0);
    world_close();
}

static void it_counts_the_waiters_ahead(void **state)
{
    weir_acquisition *waiters[4];

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(forecast(ASK({"k", 3})), 3 * i + 3);
        waiters[i] = pending(ASK({"k", 3}));
    }
    assert_int_equal(forecast(ASK({"k", 1})), 13);
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 13 * SECOND);
    /* What it says comes true: nothing else happens. */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(advance(3 * SECOND - 1), 0);
        assert_int_equal(advance(1), 1);
        assert_int_equal(forecast(ASK({"k", 1})), (uint64_t)(3 * (3 - i) + 1));
    }
    for (int i = 0; i < 4; i++)
        release(waiters[i]);
    world_close();
}

static void a_request_for_nothing_else_comes_after_the_waiters(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(RATE "," SLOT);
    assert_int_equal(take(ASK({"k", 10}, {"r", 0})), 0);
    a = pending(ASK({"k", 7}));
    assert_int_equal(forecast(ASK({"r", 1})), 7); /* disjoint keys, but the wait queue is one */
    release(a);
    world_close();
}

static void resources_count_as_available(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits(RATE "," SLOT);
    holder = granted(ASK({"r", 1}, {"k", 8}));
    assert_int_equal(forecast(ASK({"r", 1})), 0);
    assert_int_equal(forecast(ASK({"r", 1}, {"k", 4})), 2);
    a = pending(ASK({"r", 1}, {"k", 2}));
    assert_int_equal(forecast(ASK({"r", 1}, {"k", 4})), 4);
    release(a);
    release_used(holder, "k", 8);
    world_close();
}

static void a_waiter_for_one_rate_takes_the_others_once(void **state)
{
    weir_acquisition *holder, *a;

    (void)state;
    world_limits("{ type: rate, key: j, algorithm: token_bucket, capacity: 10, window: 10s }," RATE
                 "," SLOT);
    holder = granted(ASK({"r", 1}, {"j", 5}, {"k", 10}));
    a = pending(ASK({"r", 1}, {"j", 3}, {"k", 1}));
    /* In a second there are 6 of j, of which it takes 3. */
    assert_int_equal(forecast(ASK({"r", 1}, {"j", 9})), 7);
    release(a);
    assert_int_equal(weir_update(holder, "j", 5), 0);
    release_used(holder, "k", 10);
    world_close();
}

static void it_forgets_a_waiter_that_left_the_wait_queue(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = pending(ASK({"k", 2}));
    b = pending(ASK({"k", 5}));
    c = pending(with_timeout(ASK({"k", 1}), SECOND));
    assert_int_equal(forecast(ASK({"k", 1})), 9);
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(forecast(ASK({"k", 1})), 4);
    advance(SECOND); /* the timeout */
    assert_int_equal(weir_acquisition_result(c), -ETIMEDOUT);
    assert_int_equal(forecast(ASK({"k", 1})), 2);
    release(b); /* releasing what left already changes nothing */
    release(c);
    assert_int_equal(forecast(ASK({"k", 1})), 2);
    release(a);
    world_close();
}

static void it_knows_of_refunds(void **state)
{
    weir_acquisition *used, *a;

    (void)state;
    world_limits(RATE);
    used = granted(ASK({"k", 10}));
    a = pending(ASK({"k", 6}));
    assert_int_equal(forecast(ASK({"k", 1})), 7);
    assert_int_equal(weir_update(used, "k", 8), 0);
    assert_int_equal(forecast(ASK({"k", 1})), 7); /* an update alone gives nothing back */
    release(used);
    assert_int_equal(forecast(ASK({"k", 1})), 5);
    advance(4 * SECOND - 1); /* and the head comes that much earlier */
    assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
    advance(1);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_used(a, "k", 6);
    world_close();
}

static void it_knows_of_debts(void **state)
{
    weir_acquisition *used, *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s,"
                 " overuse: charge }");
    used = granted(ASK({"k", 10}));
    a = pending(ASK({"k", 1}));
    assert_int_equal(weir_update(used, "k", 13), 0);
    release(used);
    assert_int_equal(forecast(ASK({"k", 1})), 5);
    assert_int_equal(advance(SECOND), 0); /* the instant that was armed before */
    assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
    assert_int_equal(advance(3 * SECOND), 1);
    release(a);
    world_close();
}

static void it_knows_of_hand_overs(void **state)
{
    weir_acquisition *holder, *a, *b;

    (void)state;
    world_limits(RATE "," SLOT);
    holder = granted(ASK({"r", 1}, {"k", 9}));
    a = pending(ASK({"r", 1}, {"k", 1})); /* waits for the slot alone */
    b = pending(ASK({"r", 0}, {"k", 4}));
    assert_int_equal(forecast(ASK({"r", 0}, {"k", 1})), 5);
    advance(2 * SECOND);
    assert_int_equal(forecast(ASK({"r", 0}, {"k", 1})), 3);
    release_used(holder, "k", 9); /* a is granted two seconds late */
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(forecast(ASK({"r", 0}, {"k", 1})), 3);
    release(b);
    assert_int_equal(forecast(ASK({"r", 0}, {"k", 1})), 0);
    release_used(a, "k", 1);
    world_close();
}

static void it_knows_of_a_barging_request(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set("fair: false, limits: [ " RATE " ]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = pending(ASK({"k", 5}));
    assert_int_equal(forecast(ASK({"k", 1})), 6);
    world.now += 2 * SECOND;
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(forecast(ASK({"k", 1})), 6);
    release(a);
    world_close();
}

/* A bucket that overflows while a slot is held loses tokens, which an old forecast cannot know: it
 * may be too early, never too late. */
static void it_is_a_lower_bound(void **state)
{
    weir_acquisition *holder, *a, *b = NULL;
    uint64_t foreseen;

    (void)state;
    world_limits(RATE "," SLOT);
    holder = granted(ASK({"r", 1}, {"k", 1}));
    a = pending(ASK({"r", 1}, {"k", 10}));
    foreseen = world.now + forecast(ASK({"r", 0}, {"k", 5})) * SECOND;
    advance(60 * SECOND);
    release_used(holder, "k", 1);
    assert_int_equal(weir_acquisition_result(a), 0);
    b = pending(ASK({"r", 0}, {"k", 5}));
    advance(5 * SECOND);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_true(world.now >= foreseen);
    release_used(a, "k", 10);
    release_used(b, "k", 5);
    world_close();
}

/* A thread that reaps or ticks late grants late; and a window that begins later may let in two
 * waiters for which it had forecast different instants. */
static void it_is_one_although_a_waiter_was_granted_late(void **state)
{
    weir_acquisition *a, *b, *c = NULL;

    (void)state;
    world_limits("{ type: rate, key: w, algorithm: fixed_window, capacity: 2, window: 10s }," RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = pending(ASK({"k", 2}, {"w", 1}));  /* at 2, when a window begins */
    b = pending(ASK({"k", 10}, {"w", 1})); /* at 12, when the next one does */
    assert_int_equal(forecast(ASK({"w", 2})), 22);
    world.now += 5 * SECOND;
    assert_int_equal(forecast(ASK({"w", 2})), 10); /* a is next, for a window that lasts until 15 */
    assert_int_equal(advance(0), 1);
    assert_int_equal(forecast(ASK({"w", 2})), 10);
    assert_int_equal(weir_submit(world.pool, with_max_wait(ASK({"w", 2}), 11 * SECOND), &c, NULL),
                     1);
    assert_int_equal(advance(7 * SECOND), 1);
    assert_int_equal(advance(3 * SECOND), 1);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(weir_acquisition_result(c), 0);
    assert_int_equal(weir_release(&a), -EPROTO);
    assert_int_equal(weir_release(&b), -EPROTO);
    release_used(c, "w", 2);
    world_close();
}

static void it_holds_for_every_algorithm_together(void **state)
{
    weir_acquisition *waiters[3];

    (void)state;
    world_limits(
        "{ type: rate, key: a, algorithm: gcra, capacity: 10, window: 10s },"
        "{ type: rate, key: b, algorithm: sliding_window, capacity: 2, window: 7s },"
        "{ type: rate, key: c, algorithm: fixed_window, capacity: 3, window: 20s },"
        "{ type: rate, key: d, algorithm: leaky_bucket, mode: shaper, capacity: 4, window: 12s }");
    assert_int_equal(take(ASK({"a", 9}, {"b", 1}, {"c", 1}, {"d", 1})), 0);
    assert_int_equal(forecast(ASK({"a", 3})), 2);
    assert_int_equal(forecast(ASK({"b", 2})), 7);
    assert_int_equal(forecast(ASK({"c", 3})), 20);
    assert_int_equal(forecast(ASK({"d", 1})), 3);
    waiters[0] = pending(ASK({"a", 3}));           /* at 2 */
    waiters[1] = pending(ASK({"b", 1}, {"d", 2})); /* at 3, behind d */
    assert_int_equal(forecast(ASK({"b", 2})), 10); /* both entries of b are gone */
    assert_int_equal(forecast(ASK({"a", 1})), 3);  /* not before the one ahead */
    waiters[2] = pending(ASK({"a", 4}, {"c", 3})); /* at 20 */
    assert_int_equal(forecast(ASK({"d", 1})), 20);
    for (int i = 0; i < 3; i++) {
        static const uint64_t at[] = {2, 3, 20};

        advance(START + at[i] * SECOND - 1 - world.now);
        assert_int_equal(weir_acquisition_result(waiters[i]), -EINPROGRESS);
        advance(1);
        assert_int_equal(weir_acquisition_result(waiters[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_release(&waiters[i]), -EPROTO);
    world_close();
}

/*
 * A cancel makes the next forecast walk the wait queue: it must come out the same for a long one.
 */
static void a_long_wait_queue_is_walked_correctly(void **state)
{
    static weir_acquisition *waiters[500];

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    for (int i = 0; i < 500; i++)
        waiters[i] = pending(ASK({"k", 2}));
    assert_int_equal(forecast(ASK({"k", 1})), 1001);
    for (int i = 0; i < 500; i += 5)
        assert_int_equal(weir_cancel(waiters[i]), 0);
    assert_int_equal(forecast(ASK({"k", 1})), 801);
    for (int i = 0; i < 500; i++)
        release(waiters[i]);
    assert_int_equal(forecast(ASK({"k", 1})), 1);
    world_close();
}

static void refusals_of_ready_at_are_those_of_a_request(void **state)
{
    uint64_t at = 7;

    (void)state;
    world_limits(RATE "," SLOT);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"k", 11}), &at), -ERANGE);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"r", 2}), &at), -ERANGE);
    assert_int_equal(weir_set_ready_at(world.set, strict(ASK({"x", 2})), &at), -ENOENT);
    assert_int_equal(at, 7);
    assert_int_equal(stats().refused_impossible, 0); /* nothing was asked for */
    world_close();
}

/* A set that changes whenever the forecasting thread has read it. */

static weir_pool *unruly;
static unsigned readings, readings_max;
static _Thread_local bool forecasting;

static void *come_and_go(void *unused)
{
    weir_acquisition *a = NULL;

    (void)unused;
    assert_int_equal(weir_submit(unruly, ASK({"k", 1}), &a, NULL), 1);
    assert_int_equal(weir_release(&a), 0);
    return NULL;
}

/* A thread that reads the set reads the clock next. */
static uint64_t unruly_clock(void *unused)
{
    pthread_t thread;

    (void)unused;
    if (forecasting && readings < readings_max) {
        readings++;
        assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return START;
}

static void it_comes_even_if_the_set_never_stands_still(void **state)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = unruly_clock};
    struct weir_options options = {.size = sizeof(options),
                                   .text = "version: 1\nsets: { s: { limits: [ " RATE " ] } }\n",
                                   .clock = &clock};
    struct weir_refusal refused = {.size = sizeof(refused)};
    weir_acquisition *waiter = NULL, *a = NULL;
    weir *w = NULL;

    (void)state;
    readings = 0;
    readings_max = 500;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&unruly, w, "s", 0, NULL), 0);
    assert_int_equal(weir_take(unruly, ASK({"k", 10}), NULL), 0);
    assert_int_equal(weir_submit(unruly, ASK({"k", 5}), &waiter, NULL), 1);
    come_and_go(NULL); /* what was projected holds no more */
    forecasting = true;
    assert_int_equal(weir_try_acquire(unruly, ASK({"k", 2}), &a, &refused), -EAGAIN);
    forecasting = false;
    assert_true(readings < 100);
    assert_in_range(refused.retry_after_ns, 2 * SECOND, 7 * SECOND); /* a lower bound */
    assert_int_equal(weir_release(&waiter), 0);
    weir_pool_close(unruly);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(without_waiters_it_is_when_the_limits_say),
        leak_checked_test(it_counts_the_waiters_ahead),
        leak_checked_test(a_request_for_nothing_else_comes_after_the_waiters),
        leak_checked_test(resources_count_as_available),
        leak_checked_test(a_waiter_for_one_rate_takes_the_others_once),
        leak_checked_test(it_forgets_a_waiter_that_left_the_wait_queue),
        leak_checked_test(it_knows_of_refunds),
        leak_checked_test(it_knows_of_debts),
        leak_checked_test(it_knows_of_hand_overs),
        leak_checked_test(it_knows_of_a_barging_request),
        leak_checked_test(it_is_a_lower_bound),
        leak_checked_test(it_is_one_although_a_waiter_was_granted_late),
        leak_checked_test(it_holds_for_every_algorithm_together),
        leak_checked_test(a_long_wait_queue_is_walked_correctly),
        leak_checked_test(it_comes_even_if_the_set_never_stands_still),
        leak_checked_test(refusals_of_ready_at_are_those_of_a_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

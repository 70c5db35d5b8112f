/* SPDX-License-Identifier: MIT */
/* Reservations: the instant of the grant, what comes later until then, and taking them back. */
#include "lib/world.h"
#include <sched.h>

/* Ten per ten seconds: one per second once the ten are gone. */
#define RATE  "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s }"
#define CALLS "{ type: call, key: c, algorithm: gcra, capacity: 10, window: 10s }"
#define SLOT  "{ type: resource, key: r, capacity: 1 }"
#define SPACED                                                                                     \
    "{ type: call, key: c, algorithm: leaky_bucket, mode: shaper, capacity: 10, window: 10s }"
#define LOG   "{ type: call, key: c, algorithm: sliding_window, capacity: 2, window: 10s }"
#define FIXED "{ type: call, key: c, algorithm: fixed_window, capacity: 2, window: 10s }"

/* A reservation that must be had, and the instant of it. */
static weir_acquisition *reserved_at(const struct weir_request *request, uint64_t *ret_at_ns)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(reserve(request, &acquisition, ret_at_ns), 0);
    assert_non_null(acquisition);
    assert_true(*ret_at_ns >= world.now);
    return acquisition;
}

/* The same for an instant that is so many seconds after the beginning. */
static weir_acquisition *reserved(const struct weir_request *request, uint64_t seconds)
{
    uint64_t at = 0;
    weir_acquisition *acquisition = reserved_at(request, &at);

    assert_int_equal(at, START + seconds * SECOND);
    return acquisition;
}

static void refused(const struct weir_request *request, uint64_t retry_after_ns)
{
    weir_acquisition *acquisition = NULL;
    uint64_t at = 7;

    assert_int_equal(reserve(request, &acquisition, &at), -EAGAIN);
    assert_null(acquisition);
    assert_int_equal(at, 7);
    assert_string_equal(refusal.set, "main");
    assert_int_equal(refusal.retry_after_ns, retry_after_ns);
}

static void to(uint64_t seconds)
{
    assert_true(START + seconds * SECOND >= world.now);
    advance(START + seconds * SECOND - world.now);
}

/* The same behind waiters, or for want of a resource. */
static void refused_for(const struct weir_request *request, const char *key,
                        uint64_t retry_after_ns)
{
    weir_acquisition *acquisition = NULL;
    uint64_t at = 7;

    assert_int_equal(reserve(request, &acquisition, &at), -EAGAIN);
    assert_null(acquisition);
    assert_int_equal(at, 7);
    assert_forecast(key, retry_after_ns);
}

/* The instant at which limits may see one that is so long after the beginning. */
static uint64_t ticks_up_to(uint64_t ns)
{
    return (ns + TICK - 1) / TICK * TICK;
}

/* Instants */

static void a_bucket_is_emptied_and_then_paced(void **state)
{
    (void)state;
    world_limits(RATE);
    release_used(reserved(ASK({"k", 7}), 0), "k", 7);
    release_used(reserved(ASK({"k", 3}), 0), "k", 3);
    release_used(reserved(ASK({"k", 1}), 1), "k", 1);
    release_used(reserved(ASK({"k", 1}), 2), "k", 1);
    release_used(reserved(ASK({"k", 4}), 6), "k", 4);
    world.now += SECOND; /* the clock is behind what is reserved */
    release_used(reserved(ASK({"k", 1}), 7), "k", 1);
    to(9); /* ahead of it */
    release_used(reserved(ASK({"k", 2}), 9), "k", 2);
    release_used(reserved(ASK({"k", 1}), 10), "k", 1);
    world_close();
}

/* Three per second: an instant is rounded up where it is told, and no error adds up. */
static void instants_are_exact(void **state)
{
    (void)state;
    world_limits("{ type: call, key: c, algorithm: leaky_bucket, mode: shaper, capacity: 3,"
                 " window: 1s }");
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t at = 0;

        release(reserved_at(NULL, &at));
        assert_int_equal(at, START + ticks_up_to((i * SECOND + 2) / 3));
    }
    world_close();
}

static void every_algorithm_is_paced(void **state)
{
    (void)state;
    world_limits(SPACED);
    for (uint64_t i = 0; i < 5; i++)
        release(reserved(NULL, i));
    world_close();
    world_limits(CALLS);
    for (uint64_t i = 0; i < 15; i++)
        release(reserved(NULL, i < 10 ? 0 : i - 9));
    world_close();
    world_limits(LOG);
    release(reserved(NULL, 0));
    to(4);
    release(reserved(NULL, 4));
    for (uint64_t i = 1; i < 4; i++) {
        release(reserved(NULL, 10 * i));
        release(reserved(NULL, 10 * i + 4));
    }
    world_close();
    world_limits(FIXED);
    to(3);
    for (uint64_t i = 0; i < 8; i++)
        release(reserved(NULL, 3 + i / 2 * 10));
    world_close();
}

/* What reservations come to is what the same requests come to as waiters, one by one. */
static void as_in_line(const char *limits, const uint64_t (*amounts)[2], size_t n)
{
    weir_acquisition *acquisitions[16];
    uint64_t at[16];

    world_limits(limits);
    for (size_t i = 0; i < n; i++) {
        acquisitions[i] = reserved_at(ASK({"a", amounts[i][0]}, {"b", amounts[i][1]}), &at[i]);
        assert_true(i == 0 || at[i] >= at[i - 1]);
    }
    for (size_t i = 0; i < n; i++)
        release_expecting(acquisitions[i], -EPROTO);
    world_close();
    world_limits(limits);
    for (size_t i = 0; i < n; i++)
        assert_true(submit(ASK({"a", amounts[i][0]}, {"b", amounts[i][1]}), &acquisitions[i]) >= 0);
    for (size_t i = 0; i < n; i++) {
        if (at[i] > world.now) {
            advance(at[i] - TICK - world.now);
            assert_int_equal(weir_acquisition_result(acquisitions[i]), -EINPROGRESS);
            advance(TICK);
        }
        assert_int_equal(weir_acquisition_result(acquisitions[i]), 0);
    }
    for (size_t i = 0; i < n; i++)
        release_expecting(acquisitions[i], -EPROTO);
    world_close();
}

static void reservations_come_when_waiters_would(void **state)
{
    static const uint64_t amounts[16][2] = {{5, 1}, {5, 0}, {1, 1}, {0, 4}, {3, 3}, {0, 1},
                                            {9, 0}, {1, 1}, {2, 2}, {1, 0}, {0, 5}, {7, 1},
                                            {1, 1}, {1, 1}, {4, 0}, {1, 2}};
    static const char *const limits[] = {
        "{ type: rate, key: a, algorithm: token_bucket, capacity: 10, window: 7s },"
        "{ type: rate, key: b, algorithm: sliding_window, capacity: 5, window: 3s }",
        "{ type: rate, key: a, algorithm: gcra, capacity: 13, window: 999983us, burst: 9 },"
        "{ type: rate, key: b, algorithm: leaky_bucket, mode: shaper, capacity: 7, window: 1ms }",
        "{ type: rate, key: a, algorithm: fixed_window, capacity: 11, window: 5s },"
        "{ type: rate, key: a, algorithm: leaky_bucket, capacity: 9, window: 2s },"
        "{ type: rate, key: b, algorithm: token_bucket, capacity: 6, window: 4s },"
        "{ type: rate, key: b, algorithm: sliding_window, segments: 7, capacity: 8, window: 9s }"};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        as_in_line(limits[i], amounts, 16);
    if (backend->has & HAS_NANOSECONDS)
        as_in_line(
            "{ type: rate, key: a, algorithm: gcra, capacity: 13, window: 999983ns, burst: 9 },"
            "{ type: rate, key: b, algorithm: sliding_window, capacity: 7, window: 1ms }",
            amounts, 16);
}

/*
 * The reason why a reservation is not a debt: of two limits, one makes it wait. The other, full by
 * now, must not fill up meanwhile as if nothing were taken, and then give all it has at that
 * instant, too.
 */
static void a_full_bucket_gives_no_more_than_its_burst_around_the_instant(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s },"
                 "{ type: call, key: c, algorithm: fixed_window, capacity: 1, window: 100s }");
    assert_int_equal(take(ASK({"k", 0})), 0);
    a = reserved(ASK({"k", 10}), 100);
    to(100);
    assert_int_equal(take(ASK({"k", 1}, {"c", 0})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    release_used(a, "k", 10);
    world_close();
}

/* Until then */

static void nothing_is_granted_before_the_instant(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_limits(RATE "," CALLS "," SLOT);
    assert_int_equal(take(ASK({"k", 10}, {"r", 0})), 0);
    a = reserved(ASK({"k", 5}, {"c", 0}, {"r", 0}), 5);
    for (uint64_t now = 0; now < 5 * SECOND; now += SECOND - TICK) {
        world.now = START + now;
        assert_int_equal(take(ASK({"k", 1}, {"r", 0})), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, 6 * SECOND - now);
        assert_string_equal(refusal.key, "k");
        assert_int_equal(try_acquire(ASK({"r", 1}, {"c", 0}), &b), -EAGAIN); /* of another limit */
        assert_int_equal(refusal.retry_after_ns, 5 * SECOND - now);
        assert_string_equal(refusal.key, "");
        assert_ready_at(ASK({"r", 1}, {"c", 0}), START + 5 * SECOND);
    }
    to(5);
    release_used(a, "k", 5);
    release(granted(ASK({"r", 1})));
    assert_int_equal(take(ASK({"k", 1}, {"r", 0})), -EAGAIN);
    to(6);
    assert_int_equal(take(ASK({"k", 1}, {"r", 0})), 0);
    world_close();
}

static void newcomers_of_an_unfair_set_neither(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_set("fair: false, limits: [" RATE "," CALLS "]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 2}), 2);
    assert_int_equal(take(ASK({"c", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 2 * SECOND);
    to(2);
    assert_int_equal(take(ASK({"c", 1})), 0);
    release_used(a, "k", 2);
    /* They do overtake waiters with what is there now, reserved or not; but only with that. */
    b = pending(ASK({"k", 5}));
    release(reserved(ASK({"c", 1}), 2));
    to(3);
    release_used(reserved(ASK({"k", 1}), 3), "k", 1);
    refused_for(ASK({"k", 1}), "k", 6 * SECOND); /* behind the waiters */
    release(b);
    world_close();
}

/* Nor do they reserve what comes later, while others wait for it. */
static void a_reservation_for_later_passes_no_waiter(void **state)
{
    weir_acquisition *a, *b = NULL;
    uint64_t at = 0;

    (void)state;
    world_set("fair: false, limits: [" RATE "]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = pending(ASK({"k", 5}));
    assert_int_equal(reserve(ASK({"k", 1}), &b, &at), -EAGAIN);
    assert_null(b);
    assert_int_equal(stats().refused_busy, 1);
    advance(SECOND);
    release_used(reserved(ASK({"k", 1}), 1), "k", 1); /* it is there now */
    release(a);
    world_close();
}

static void waiters_behind_get_exactly_their_instants(void **state)
{
    weir_acquisition *a, *b, *waiters[3];

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 2}), 2);
    b = reserved(ASK({"k", 1}), 3);
    to(1);
    assert_ready_at(ASK({"k", 2}), START + 5 * SECOND);
    for (uint64_t i = 0; i < 3; i++) {
        waiters[i] = pending(ASK({"k", 1}));
        assert_ready_at(ASK({"k", 2}), START + (6 + i) * SECOND);
    }
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(advance(START + (4 + i) * SECOND - 1 - world.now), 0);
        assert_int_equal(advance(1), 1);
        assert_int_equal(weir_acquisition_result(waiters[i]), 0);
        release_used(waiters[i], "k", 1);
    }
    assert_int_equal(stats().wait_ns_max, 5 * SECOND);
    assert_int_equal(stats().wait_ns_sum, (3 + 4 + 5) * SECOND);
    release_used(a, "k", 2);
    release_used(b, "k", 1);
    world_close();
}

/* Released by another thread meanwhile, or looked at: that does not make any turn come. */
static void a_release_before_the_instant_hands_nothing_over(void **state)
{
    weir_acquisition *holder, *a, *waiter;

    (void)state;
    world_limits(RATE "," SLOT);
    holder = granted(ASK({"k", 10}, {"r", 1}));
    a = reserved(ASK({"k", 1}, {"r", 0}), 1);
    waiter = pending(ASK({"r", 1}));
    release_used(holder, "k", 0); /* everything back: ten, and the resource */
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    assert_ready_at(ASK({"k", 9}, {"r", 0}), START + SECOND);
    assert_int_equal(advance(SECOND - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    release_used(a, "k", 1);
    world_close();
}

static void deadlines_behind_a_reservation_count_from_now(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 3}), 3);
    assert_int_equal(submit(with_max_wait(ASK({"k", 1}), 4 * SECOND - 1), &b), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 4 * SECOND);
    assert_int_equal(submit(with_timeout(ASK({"k", 1}), SECOND), &b), 1);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(weir_acquisition_result(b), -ETIMEDOUT);
    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    assert_int_equal(weir_acquisition_refusal(b, &refusal), 0);
    assert_forecast("k", 3 * SECOND);
    release(b);
    assert_int_equal(submit(with_max_wait(ASK({"k", 1}), 3 * SECOND + TICK), &b), 1);
    assert_int_equal(advance(3 * SECOND), 1);
    assert_int_equal(weir_acquisition_result(b), 0);
    release_used(b, "k", 1);
    release_used(a, "k", 3);
    world_close();
}

/* Time passes, and what an engine decides meanwhile is known. Otherwise it is left to the next call
 * to decide. */
static void pass_to(uint64_t ns)
{
    if (backend->is_remote)
        advance(ns - world.now);
    else
        world.now = ns;
}

static void so_do_submissions_to_a_queue(void **state)
{
    struct weir_completion done[4];
    weir_queue *queue = NULL;
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 2}), 2);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"k", 1}), 7 + i, NULL, NULL), 0);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, with_timeout(ASK({"k", 1}), SECOND), 9, NULL, NULL),
        0);
    assert_int_equal(weir_queue_reap(queue, done, 4), 0);
    settle();
    pass_to(START + SECOND);
    assert_int_equal(weir_queue_reap(queue, done, 4), 1);
    assert_int_equal(done[0].user_data, 9);
    assert_int_equal(done[0].result, -ETIMEDOUT);
    refusal = done[0].refusal;
    assert_forecast("k", 4 * SECOND); /* as of the reap */
    for (uint64_t i = 0; i < 2; i++) {
        pass_to(START + (3 + i) * SECOND - 1);
        assert_int_equal(weir_queue_reap(queue, done, 4), 0);
        pass_to(START + (3 + i) * SECOND);
        assert_int_equal(weir_queue_reap(queue, done, 4), 1);
        assert_int_equal(done[0].user_data, 7 + i);
        assert_int_equal(done[0].result, 0);
        release_used(done[0].acquisition, "k", 1);
    }
    release_used(a, "k", 2);
    weir_queue_close(queue);
    world_close();
}

/* An engine tells the instant of a reservation by a reading of the instance's clock that is later
 * than its own: what is behind that instant need not be behind the one that was told. */
static void on_the_real_clock_a_blocked_caller_comes_after_it(void **state)
{
    weir_acquisition *a = NULL, *b = NULL, *c = NULL;
    uint64_t began, first = 0, second = 0;

    (void)state;
    world_real("limits: [ { type: call, key: c, algorithm: gcra, capacity: 100, window: 1s } ]");
    began = weir_now(world.w);
    assert_int_equal(take(ASK({"c", 100})), 0);
    assert_int_equal(weir_reserve(world.pool, NULL, &a, &first, NULL), 0);
    assert_int_equal(weir_reserve(world.pool, NULL, &b, &second, NULL), 0);
    assert_true(first >= began + 10 * MS && second >= began + 20 * MS);
    assert_true(second <= first + 10 * MS || !(backend->has & HAS_OWN_CLOCK));
    assert_int_equal(weir_acquire(world.pool, with_timeout(ASK({"c", 1}), 60 * SECOND), &c, NULL),
                     0);
    assert_true(weir_now(world.w) > second || !(backend->has & HAS_OWN_CLOCK));
    assert_true(weir_now(world.w) >= began + 30 * MS);
    release(a);
    release(b);
    release(c);
    world_close();
}

static void on_the_real_clock_a_submitted_one_comes_after_it(void **state)
{
    weir_acquisition *a = NULL, *b = NULL;
    struct weir_holder holders[2];
    uint64_t began, at = 0;

    (void)state;
    world_real("limits: [ { type: call, key: c, algorithm: gcra, capacity: 5, window: 1s } ]");
    began = weir_now(world.w);
    assert_int_equal(take(ASK({"c", 5})), 0);
    assert_int_equal(weir_reserve(world.pool, NULL, &a, &at, NULL), 0);
    assert_int_equal(weir_submit(world.pool, NULL, &b, NULL), 1);
    while (weir_acquisition_result(b) == -EINPROGRESS)
        sched_yield();
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_true(weir_now(world.w) >= began + 400 * MS);
    assert_int_equal(weir_set_holders(world.set, holders, 2), 2);
    assert_int_equal(holders[0].since_ns, at);
    assert_true(holders[1].since_ns >= at + 200 * MS || !(backend->has & HAS_OWN_CLOCK));
    release(a);
    release(b);
    world_close();
}

/* Refusals */

static void waiters_come_first(void **state)
{
    weir_acquisition *holder, *waiter, *a;

    (void)state;
    world_limits(RATE "," SLOT);
    holder = granted(ASK({"k", 8}));
    waiter = pending(ASK({"k", 1})); /* for the resource */
    refused_for(ASK({"k", 1}, {"r", 0}), "r", 0);
    release(waiter);
    release_used(holder, "k", 8);
    waiter = pending(ASK({"k", 4}, {"r", 0}));
    refused_for(ASK({"k", 1}, {"r", 0}), "k", 3 * SECOND);
    assert_int_equal(stats().refused_busy, 2);
    assert_int_equal(stats().refused_max_wait, 0);
    to(2);
    release_used(waiter, "k", 4);
    a = reserved(ASK({"k", 1}, {"r", 0}), 3);
    release_used(a, "k", 1);
    world_close();
}

static void max_wait_bounds_how_far_ahead(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set("max_wait: 4s, limits: [" RATE "]");
    assert_int_equal(take(ASK({"k", 10})), 0);
    refused(with_max_wait(ASK({"k", 3}), 3 * SECOND - 1), 3 * SECOND);
    assert_string_equal(refusal.key, "k");
    release_used(reserved(with_max_wait(ASK({"k", 3}), 3 * SECOND), 3), "k", 3);
    refused(ASK({"k", 2}), 5 * SECOND);
    a = reserved(ASK({"k", 1}), 4);
    refused(ASK({"k", 1}), 5 * SECOND);
    world.now += SECOND;
    release_used(reserved(ASK({"k", 1}), 5), "k", 1);
    release_used(reserved(with_max_wait(ASK({"k", 9}), WEIR_FOREVER), 14), "k", 9);
    /* How long a caller would wait for it does not matter: none waits. */
    release_used(reserved(with_timeout(with_max_wait(ASK({"k", 1}), WEIR_FOREVER), SECOND), 15),
                 "k", 1);
    assert_int_equal(stats().refused_max_wait, 3);
    assert_int_equal(stats().refused_busy, 0);
    assert_int_equal(limit_stats(0).refused, 3);
    release_used(a, "k", 1);
    world_close();
}

static void an_instant_that_is_not_foreseen_is_eagain(void **state)
{
    weir_acquisition *a;

    (void)state;
    needs(HAS_OTHER_RESERVATIONS);
    world_limits("{ type: rate, key: k, algorithm: stock }");
    a = reserved(ASK({"k", 8}), 0);
    refused(ASK({"k", 3}), WEIR_FOREVER);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(stats().refused_busy, 1);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    release_used(reserved(ASK({"k", 3}), 0), "k", 3);
    world_close();
}

static void an_algorithm_that_the_engine_lacks_grants_nothing_in_advance(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t at = 7;

    (void)state;
    if (backend->has & HAS_OTHER_RESERVATIONS)
        skip_because("the engine has all algorithms");
    world_limits("{ type: rate, key: k, algorithm: stock }, "
                 "{ type: rate, key: own, algorithm: gcra, capacity: 9, window: 1s }");
    assert_int_equal(reserve(ASK({"k", 1}), &a, &at), -EOPNOTSUPP);
    assert_null(a);
    assert_int_equal(at, 7);
    assert_int_equal(stats().granted, 0);
    release_used(reserved(ASK({"own", 3}), 0), "own", 3);
    world_close();
}

/* Instants are up to WEIR_CLOCK_MAX. */
static void nor_is_one_at_the_end_of_time(void **state)
{
    const uint64_t window = UINT64_C(1) << 62;
    weir_acquisition *a, *waiter;
    uint64_t at = 0;

    (void)state;
    needs(HAS_NANOSECONDS);
    world_limits("{ type: call, key: c, algorithm: token_bucket, capacity: 1,"
                 " window: 4611686018427387904ns }");
    assert_int_equal(take(NULL), 0);
    a = reserved_at(NULL, &at);
    assert_int_equal(at, START + window);
    refused(NULL, 2 * window);
    world.now = START + window - 1;
    assert_int_equal(take(NULL), -EAGAIN);
    waiter = pending(NULL);
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    release(waiter);
    release(a);
    world_close();
}

/* A grant as of a later instant would not fit into the word. */
static void a_word_is_reserved_up_to_the_end_of_the_clock(void **state)
{
    const uint64_t window = UINT64_C(1) << 60;
    weir_acquisition *a;
    uint64_t at = 0;

    (void)state;
    needs(HAS_NANOSECONDS);
    world_limits("{ type: call, key: c, algorithm: gcra, capacity: 1,"
                 " window: 1152921504606846976ns }");
    assert_int_equal(take(NULL), 0);
    for (uint64_t i = 1; i <= 5; i++) {
        a = reserved_at(NULL, &at);
        assert_int_equal(at, START + i * window);
        release(a);
    }
    refused(NULL, 6 * window);
    world.now = WEIR_CLOCK_MAX;
    assert_int_equal(take(NULL), -EAGAIN);
    refused(NULL, START + 1);
    world_close();
}

static void resources_must_be_left_out(void **state)
{
    weir_acquisition *holder, *a = NULL;
    uint64_t at = 7;

    (void)state;
    world_limits(CALLS "," SLOT);
    assert_int_equal(reserve(NULL, &a, &at), -EINVAL);
    assert_string_equal(refusal.key, "r");
    assert_int_equal(reserve(ASK({"c", 1}), &a, &at), -EINVAL);
    assert_int_equal(reserve(ASK({"r", 1}, {"c", 0}), &a, &at), -EINVAL);
    assert_null(a);
    assert_int_equal(at, 7);
    holder = granted(ASK({"r", 1}));
    release(reserved(ASK({"r", 0}), 0));
    release(holder);
    world_close();
}

static void what_is_wrong_with_others_is_wrong_with_it(void **state)
{
    bool has_stingy = backend->has & HAS_OTHER_RESERVATIONS;
    weir_acquisition *a = NULL;
    uint64_t at = 7;

    (void)state;
    world_limits(has_stingy ? RATE ", { type: rate, key: s, algorithm: stingy }" : RATE);
    assert_int_equal(weir_reserve(world.pool, ASK({"k", 1}), NULL, &at, NULL), -EINVAL);
    assert_int_equal(weir_reserve(world.pool, ASK({"k", 1}), &a, NULL, NULL), -EINVAL);
    assert_int_equal(weir_reserve(NULL, ASK({"k", 1}), &a, &at, NULL), -EINVAL);
    assert_int_equal(reserve(NULL, &a, &at), -EINVAL);
    assert_int_equal(reserve(ASK({"k", 11}), &a, &at), -ERANGE);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
    if (has_stingy) {
        assert_int_equal(reserve(ASK({"s", 2}), &a, &at), -ERANGE);
        assert_string_equal(refusal.key, "s");
        assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
    }
    assert_int_equal(reserve(strict(ASK({"x", 1})), &a, &at), -ENOENT);
    assert_null(a);
    assert_int_equal(at, 7);
    assert_int_equal(stats().refused_impossible, has_stingy ? 2 : 1);
    assert_int_equal(stats().refused_unknown, 1);
    assert_int_equal(stats().granted, 0);
    assert_int_equal(available(0), 10);
    world_close();
}

/* Taking back */

static void canceling_gives_the_amounts_back_but_not_the_instant(void **state)
{
    struct picture before;
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 5}), 5);
    before = picture();
    assert_int_equal(before.set.held, 1);
    assert_int_equal(before.limits[0].available, 0); /* then */
    to(1);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(weir_acquisition_result(a), -ECANCELED);
    assert_int_equal(weir_cancel(a), -EALREADY);
    assert_int_equal(weir_update(a, "k", 1), -EINVAL);
    assert_int_equal(available(0), 5); /* then, too */
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 4 * SECOND);
    release(a);
    assert_int_equal(stats().granted, 2);
    assert_int_equal(stats().canceled, 1);
    assert_int_equal(stats().released, 1);
    assert_int_equal(stats().refunded, 1);
    assert_int_equal(stats().held, 0);
    assert_int_equal(limit_stats(0).granted, 15);
    assert_int_equal(limit_stats(0).refunded, 5);
    to(5);
    assert_int_equal(take(ASK({"k", 6})), -EAGAIN);
    assert_int_equal(take(ASK({"k", 5})), 0);
    world_close();
}

/* What is available is told as of the instant, also where a state does not know it itself. */
static void what_is_available_is_reported_as_of_the_instant(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: call, key: c, algorithm: gcra, capacity: 10, window: 10s }");
    assert_int_equal(take(ASK({"c", 10})), 0);
    a = reserved(ASK({"c", 4}), 4);
    assert_int_equal(available(0), 0);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(available(0), 4);
    to(3);
    assert_int_equal(available(0), 4);
    to(5);
    assert_int_equal(available(0), 5);
    release(a);
    world_close();
}

static void one_in_the_middle_moves_up_those_behind_it(void **state)
{
    weir_acquisition *a, *b, *c, *waiter;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 1}), 1);
    b = reserved(ASK({"k", 2}), 3);
    c = reserved(ASK({"k", 1}), 4);
    waiter = pending(ASK({"k", 3})); /* at 7 */
    to(2);
    assert_int_equal(weir_cancel(b), 0);
    assert_ready_at(ASK({"k", 1}), START + 6 * SECOND);
    assert_int_equal(advance(3 * SECOND - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release_used(waiter, "k", 3);
    release_used(a, "k", 1);
    release(b);
    release_used(c, "k", 1);
    world_close();
}

/* What goes back is what the algorithm's refund gives for a grant of that instant. */
static void a_log_forgets_the_entry_of_that_instant(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    world_limits(LOG);
    assert_int_equal(take(NULL), 0);
    to(4);
    assert_int_equal(take(NULL), 0);
    a = reserved(NULL, 10);
    b = reserved(NULL, 14);
    c = reserved(NULL, 20);
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(available(0), 1);
    release(b);
    b = reserved(NULL, 20);              /* not 24 */
    assert_int_equal(weir_cancel(a), 0); /* no longer in the window */
    release(a);
    a = reserved(NULL, 30);
    release(a);
    release(b);
    release(c);
    world_close();
}

static void a_window_forgets_only_what_is_in_it(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(FIXED);
    assert_int_equal(take(ASK({"c", 2})), 0);
    a = reserved(ASK({"c", 2}), 10);
    b = reserved(ASK({"c", 2}), 20);
    to(5);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(available(0), 0);
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(available(0), 2);
    release(a);
    release(b);
    release(reserved(NULL, 20));
    release(reserved(NULL, 20));
    release(reserved(NULL, 30));
    world_close();
}

/* Of the last reservation; the unit of the instant itself has left by then, and by now then. */
static void a_shaper_takes_back_what_comes_after_the_instant(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(SPACED);
    release(reserved(NULL, 0));
    a = reserved(ASK({"c", 2}), 1);
    b = reserved(ASK({"c", 3}), 3);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    a = reserved(NULL, 6);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    assert_ready_at(NULL, START + 7 * SECOND);
    release_used(b, "c", 3);
    a = reserved(ASK({"c", 3}), 7);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    release(reserved(NULL, 8));
    world_close();
}

static void after_the_instant_it_can_still_be_taken_back(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(RATE "," CALLS);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 2}), 2);
    to(4);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(available(0), 4);
    assert_int_equal(available(1), 10);
    release(a);
    world_close();
}

/* As in any other case of an unused grant, whether the limit refunds or not. */
static void everything_goes_back_even_where_nothing_is_refunded(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s,"
                 " refund: false }");
    a = reserved(ASK({"k", 10}), 0);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    release_used(reserved(ASK({"k", 10}), 0), "k", 0);
    release_used(reserved(ASK({"k", 1}), 1), "k", 1);
    world_close();
}

static void once_it_is_updated_it_is_used(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    a = reserved(ASK({"k", 10}), 0);
    assert_int_equal(weir_update(a, "r", 1), 0); /* unknown, but something was done with it */
    assert_int_equal(weir_cancel(a), -EALREADY);
    release_expecting(a, -EPROTO);
    a = reserved(ASK({"k", 4}), 4);
    assert_int_equal(weir_update(a, NULL, 1), -EINVAL); /* changes nothing */
    assert_int_equal(weir_update(a, "k", 1), 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    assert_int_equal(weir_acquisition_result(a), 0);
    release(a);
    assert_int_equal(available(0), 3); /* of four, one was used */
    assert_int_equal(stats().canceled, 0);
    assert_int_equal(stats().missing_update, 1);
    world_close();
}

static void a_released_one_counts_as_used(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(RATE "," CALLS);
    a = reserved(ASK({"k", 10}), 0);
    release_expecting(a, -EPROTO);
    assert_int_equal(available(0), 0);
    a = reserved(ASK({"k", 0}), 0);
    release(a);
    assert_int_equal(available(1), 8);
    assert_int_equal(stats().released, 2);
    assert_int_equal(stats().canceled, 0);
    assert_int_equal(stats().refunded, 0);
    assert_int_equal(stats().missing_update, 1);
    world_close();
}

static void overuse_is_charged_where_it_is_used_already(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s,"
                 " overuse: charge }");
    assert_int_equal(take(ASK({"k", 10})), 0);
    release_used(reserved(ASK({"k", 2}), 2), "k", 5);
    release_used(reserved(ASK({"k", 1}), 6), "k", 1);
    world_close();
}

/* Looking */

static void it_is_a_holder_since_its_instant(void **state)
{
    struct weir_holder holder;
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 3}), 3);
    assert_int_equal(weir_set_holders(world.set, &holder, 1), 1);
    assert_int_equal(holder.since_ns, START + 3 * SECOND);
    assert_false(holder.waiting);
    assert_int_equal(stats().held, 1);
    assert_int_equal(stats().granted_waited, 0);
    /* Of the limit what is told is what it will be at that instant. */
    assert_int_equal(available(0), 0);
    to(3);
    assert_int_equal(available(0), 0);
    to(4);
    assert_int_equal(available(0), 1);
    release_used(a, "k", 3);
    world_close();
}

static void its_descriptor_is_readable_at_once(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(CALLS);
    assert_int_equal(take(ASK({"c", 10})), 0);
    a = reserved(NULL, 1);
    assert_true(readable(weir_acquisition_fd(a)));
    assert_int_equal(weir_cancel(a), 0); /* the descriptor tells of nothing new */
    assert_true(readable(weir_acquisition_fd(a)));
    release(a);
    world_close();
}

static void balancers_see_it_coming(void **state)
{
    static const char *const expected[] = {"a", "b", "a", "b"};

    (void)state;
    needs(HAS_EXACT_FORECASTS);
    world_open("version: 1\nsets: {\n"
               " a: { limits: [ { type: call, algorithm: gcra, capacity: 1, window: 1s } ] },\n"
               " b: { limits: [ { type: call, algorithm: gcra, capacity: 1, window: 1s } ] }\n"
               " }\npools: { p: { balancer: earliest, sets: [a, b] } }\n",
               "p");
    for (uint64_t i = 0; i < 4; i++) {
        weir_acquisition *a = reserved(NULL, i / 2);

        assert_string_equal(weir_acquisition_set(a), expected[i]);
        release(a);
    }
    world_close();
}

/* Nothing */

static void nothing_is_reserved_at_once(void **state)
{
    weir_acquisition *a, *b;
    /* Of a set that processes share, an acquisition of nothing is nowhere held. */
    const int nowhere_held = backend->is_shared && !backend->is_remote;

    (void)state;
    for (int i = 0; i < 2; i++) {
        world_limits(i ? RATE : "");
        if (i)
            b = reserved(ASK({"k", 10}), 0);
        a = reserved(i ? ASK({"k", 0}) : NULL, 0);
        assert_int_equal(weir_acquisition_result(a), 0);
        assert_int_equal(stats().held, i + 1 - (i ? nowhere_held : 0));
        assert_int_equal(weir_cancel(a), 0);
        assert_int_equal(weir_acquisition_result(a), -ECANCELED);
        assert_int_equal(weir_cancel(a), -EALREADY);
        assert_int_equal(stats().held, i);
        release(a);
        a = reserved(i ? ASK({"k", 0}) : NULL, 0);
        release(a);
        assert_int_equal(stats().granted, 2 + i);
        assert_int_equal(stats().canceled, 1);
        assert_int_equal(stats().released, 2);
        if (i)
            release_used(b, "k", 10);
        world_close();
    }
}

/* Closing */

static void it_outlives_its_instance(void **state)
{
    weir_acquisition *a, *b, *c = NULL, *waiter;
    uint64_t at = 7;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    a = reserved(ASK({"k", 2}), 2);
    b = reserved(ASK({"k", 2}), 4);
    waiter = pending(ASK({"k", 1}));
    world.w = weir_close(world.w);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_acquisition_result(waiter), -ESHUTDOWN);
    assert_int_equal(reserve(ASK({"k", 1}), &c, &at), -ESHUTDOWN);
    assert_null(c);
    assert_int_equal(at, 7);
    assert_int_equal(weir_cancel(a), 0);
    release(a);
    release_used(b, "k", 1);
    release(waiter);
    assert_int_equal(available(0), 3);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_bucket_is_emptied_and_then_paced),
        leak_checked_test(instants_are_exact),
        leak_checked_test(every_algorithm_is_paced),
        leak_checked_test(reservations_come_when_waiters_would),
        leak_checked_test(a_full_bucket_gives_no_more_than_its_burst_around_the_instant),
        leak_checked_test(nothing_is_granted_before_the_instant),
        leak_checked_test(newcomers_of_an_unfair_set_neither),
        leak_checked_test(a_reservation_for_later_passes_no_waiter),
        leak_checked_test(waiters_behind_get_exactly_their_instants),
        leak_checked_test(so_do_submissions_to_a_queue),
        leak_checked_test(a_release_before_the_instant_hands_nothing_over),
        leak_checked_test(deadlines_behind_a_reservation_count_from_now),
        leak_checked_test(on_the_real_clock_a_blocked_caller_comes_after_it),
        leak_checked_test(on_the_real_clock_a_submitted_one_comes_after_it),
        leak_checked_test(waiters_come_first),
        leak_checked_test(max_wait_bounds_how_far_ahead),
        leak_checked_test(an_instant_that_is_not_foreseen_is_eagain),
        leak_checked_test(an_algorithm_that_the_engine_lacks_grants_nothing_in_advance),
        leak_checked_test(nor_is_one_at_the_end_of_time),
        leak_checked_test(a_word_is_reserved_up_to_the_end_of_the_clock),
        leak_checked_test(resources_must_be_left_out),
        leak_checked_test(what_is_wrong_with_others_is_wrong_with_it),
        leak_checked_test(canceling_gives_the_amounts_back_but_not_the_instant),
        leak_checked_test(what_is_available_is_reported_as_of_the_instant),
        leak_checked_test(one_in_the_middle_moves_up_those_behind_it),
        leak_checked_test(a_log_forgets_the_entry_of_that_instant),
        leak_checked_test(a_window_forgets_only_what_is_in_it),
        leak_checked_test(a_shaper_takes_back_what_comes_after_the_instant),
        leak_checked_test(after_the_instant_it_can_still_be_taken_back),
        leak_checked_test(everything_goes_back_even_where_nothing_is_refunded),
        leak_checked_test(once_it_is_updated_it_is_used),
        leak_checked_test(a_released_one_counts_as_used),
        leak_checked_test(overuse_is_charged_where_it_is_used_already),
        leak_checked_test(it_is_a_holder_since_its_instant),
        leak_checked_test(its_descriptor_is_readable_at_once),
        leak_checked_test(balancers_see_it_coming),
        leak_checked_test(nothing_is_reserved_at_once),
        leak_checked_test(it_outlives_its_instance),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * The contract, sentence by sentence: quantities, what the algorithms do through the core, and
 * limit types. Waiting is in test_waiting.c, pools and names in test_pool.c; the algorithms by
 * themselves are tested against exact models in tests/algorithms.
 */
#include "lib/world.h"
#include <time.h>

#define RATE     "{ type: rate, key: tokens, algorithm: token_bucket, capacity: 10, window: 10s }"
#define CALL     "{ type: call, algorithm: token_bucket, capacity: 5, window: 5s }"
#define RESOURCE "{ type: resource, key: slots, capacity: 3 }"

enum { IS_RATE = 0, IS_CALL = 1, IS_RESOURCE = 2 };

static void open_all_types(void)
{
    world_limits(RATE "," CALL "," RESOURCE);
}

/* Quantities */

static void the_default_clock_is_monotonic(void **state)
{
    struct timespec before, after;
    uint64_t now;

    (void)state;
    world_real("limits: []");
    clock_gettime(CLOCK_MONOTONIC, &before);
    now = weir_now(world.w);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(now >= (uint64_t)before.tv_sec * SECOND + (uint64_t)before.tv_nsec);
    assert_true(now <= (uint64_t)after.tv_sec * SECOND + (uint64_t)after.tv_nsec);
    world_close();
}

static void a_clock_can_be_injected(void **state)
{
    (void)state;
    world_limits(RATE);
    assert_int_equal(weir_now(world.w), START);
    world.now += 17;
    assert_int_equal(weir_now(world.w), START + 17);
    world_close();
}

static void an_earlier_reading_counts_as_the_same_instant(void **state)
{
    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"tokens", 10})), 0);
    world.now += 2 * SECOND;
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    world.now -= SECOND;
    assert_int_equal(available(0), 1);
    assert_int_equal(weir_now(world.w), START + 2 * SECOND);
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    world.now += SECOND;
    assert_int_equal(take(ASK({"tokens", 1})), -EAGAIN);
    world.now += SECOND;
    assert_int_equal(take(ASK({"tokens", 1})), 0);
    world_close();
}

static void an_amount_of_0_is_granted_and_changes_nothing(void **state)
{
    struct picture before, after;

    (void)state;
    open_all_types();
    assert_int_equal(take(ASK({"tokens", 10}, {"call_count", 5}, {"slots", 0})), 0);
    before = picture();
    assert_int_equal(take(ASK({"tokens", 0}, {"call_count", 0}, {"slots", 0})), 0);
    release(granted(ASK({"tokens", 0}, {"call_count", 0}, {"slots", 0})));
    after = picture();
    before.set.granted += 2;
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.taken, 2);
    world_close();
}

static void ready_at_is_the_first_whole_tick(void **state)
{
    const uint64_t at = START + (333333334 + TICK - 1) / TICK * TICK;
    uint64_t ignored;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 3, window: 1s }");
    assert_int_equal(take(ASK({"k", 3})), 0);
    assert_ready_at(ASK({"k", 1}), at);
    world.now = at - TICK;
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, TICK);
    world.now = at;
    assert_int_equal(take(ASK({"k", 1})), 0);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"k", 4}), &ignored), -ERANGE);
    world_close();
}

/* The k-th unit of 3 per second comes at k/3 s, rounded up, however often one looks between. */
static void instants_do_not_drift(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket", "leaky_bucket"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 3, window: 1s }", algorithms[i]);
        world_limits(limit);
        assert_int_equal(take(ASK({"k", 3})), 0);
        for (uint64_t k = 1; k <= 3000; k++) {
            uint64_t ready = (k * SECOND + 2) / 3;

            ready += (TICK - ready % TICK) % TICK;
            world.now = START + ready - TICK;
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world.now += TICK;
            assert_int_equal(take(ASK({"k", 1})), 0);
        }
        world_close();
    }
}

static void what_cannot_be_represented_is_refused(void **state)
{
    struct weir_error error = {0};
    struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { s: { limits: [ { type: rate, key: k, algorithm: token_bucket,"
                " capacity: 1, window: 3s, every: 1s } ] } }\n"};
    weir *w = NULL;

    (void)state;
    assert_int_equal(weir_open(&w, &options, &error), -EINVAL);
    assert_null(w);
    assert_non_null(strstr(error.message, "whole number"));
}

/* Algorithms: the column "refund k by default", and `refund:` */

struct refund_case {
    const char *algorithm, *refund;
    uint64_t available; /* after 8 of 10 were taken, and 5 of them not used */
};

static void check_refund(const struct refund_case *refund)
{
    char limit[256];
    weir_acquisition *a;

    snprintf(limit, sizeof(limit),
             "{ type: rate, key: k, algorithm: %s, capacity: 10, window: 10s %s }",
             refund->algorithm, refund->refund);
    world_limits(limit);
    a = granted(ASK({"k", 8}));
    assert_int_equal(available(0), 2);
    release_used(a, "k", 3);
    if (available(0) != refund->available)
        fail_msg("%s %s: %u available", refund->algorithm, refund->refund, (unsigned)available(0));
    assert_int_equal(limit_stats(0).refunded, refund->available - 2);
    assert_int_equal(stats().refunded, refund->available != 2);
    world_close();
}

static void refunds_by_default_follow_the_table(void **state)
{
    static const struct refund_case cases[] = {{"token_bucket", "", 7},
                                               {"gcra", "", 7},
                                               {"leaky_bucket", "", 2},
                                               {"sliding_window", "", 2},
                                               {"fixed_window", "", 2}};

    (void)state;
    for (size_t i = 0; i < 5; i++)
        check_refund(&cases[i]);
}

static void refund_in_the_configuration_overrides_the_default(void **state)
{
    static const struct refund_case cases[] = {
        {"token_bucket", ", refund: false", 2}, {"gcra", ", refund: false", 2},
        {"leaky_bucket", ", refund: true", 7},  {"sliding_window", ", refund: true", 7},
        {"fixed_window", ", refund: true", 7},
    };

    (void)state;
    for (size_t i = 0; i < 5; i++)
        check_refund(&cases[i]);
}

static void fixed_window_refunds_only_within_the_window_of_the_grant(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: fixed_window, capacity: 10, window: 10s,"
                 " refund: true }");
    a = granted(ASK({"k", 8}));
    advance(10 * SECOND);
    assert_int_equal(take(ASK({"k", 9})), 0);
    release_used(a, "k", 0);
    assert_int_equal(available(0), 1);
    world_close();
}

static void sliding_window_refund_shrinks_the_entry_of_the_grant(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: sliding_window, capacity: 10, window: 10s,"
                 " refund: true }");
    a = granted(ASK({"k", 4}));
    advance(SECOND);
    assert_int_equal(take(ASK({"k", 4})), 0);
    release_used(a, "k", 1);
    assert_int_equal(available(0), 5);
    advance(9 * SECOND); /* the shrunk entry leaves with the 1 unit that was used */
    assert_int_equal(available(0), 6);
    advance(SECOND);
    assert_int_equal(available(0), 10);
    world_close();
}

/* The algorithm decides what a release does, in one word and in a version block. */
static void a_resource_is_released_by_its_algorithm(void **state)
{
    weir_acquisition *a, *waiting;

    (void)state;
    needs(HAS_OTHER_ALGORITHMS);
    world_limits("{ type: resource, key: k, algorithm: worn }");
    a = granted(ASK({"k", 4}));
    assert_int_equal(available(0), 6);
    release(a);
    assert_int_equal(available(0), 9);
    a = granted(ASK({"k", 9}));
    waiting = pending(ASK({"k", 8}));
    release(a);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(available(0), 0);
    release(waiting);
    assert_int_equal(available(0), 7);
    a = granted(ASK({"k", 7}));
    assert_int_equal(weir_cancel(a), -EALREADY);
    release(a);
    assert_int_equal(available(0), 6);
    world_close();
}

static void with_the_same_burst_gcra_and_token_bucket_decide_alike(void **state)
{
    unsigned seed = 7;

    (void)state;
    world_open("version: 1\nsets:\n"
               "  a: { limits: [ { type: rate, key: k, algorithm: gcra, capacity: 7, window: 1s,"
               " burst: 12 } ] }\n"
               "  b: { limits: [ { type: rate, key: k, algorithm: token_bucket, capacity: 7,"
               " window: 1s, burst: 12 } ] }\n",
               "a");
    weir_pool *b = pool_open("b", 0);

    for (int i = 0; i < 5000; i++) {
        seed = seed * 1103515245 + 12345;
        world.now += (seed >> 8) % (SECOND / 2);
        uint64_t amount = 1 + (seed >> 4) % 12;
        int r = take(ASK({"k", amount}));
        uint64_t retry = refusal.retry_after_ns;

        assert_int_equal(weir_take(b, ASK({"k", amount}), &refusal), r);
        assert_int_equal(refusal.retry_after_ns, retry);
    }
    weir_pool_close(b);
    world_close();
}

static void fixed_window_anchored_to_the_epoch_follows_the_wall_clock(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: k, algorithm: fixed_window, capacity: 2, window: 1d,"
                 " anchor: epoch }");
    /* 5 ticks to midnight */
    world.wall = (int64_t)(20000 * UINT64_C(86400) * SECOND - START - 5 * TICK);
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 5 * TICK);
    world.now += 5 * TICK;
    assert_int_equal(take(ASK({"k", 2})), 0);
    world_close();
}

static void leaky_queue_grants_when_the_first_unit_may_leave(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: k, algorithm: leaky_bucket, mode: shaper, capacity: 10,"
                 " window: 10s }");
    assert_int_equal(take(ASK({"k", 3})), 0);
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, 3 * SECOND);
    world.now += 3 * SECOND;
    assert_int_equal(take(ASK({"k", 1})), 0);
    world_close();
}

static void balances_after_charged_overuse_never_fall_below_minus_b(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 10, window: 10s,"
                 " overuse: charge }",
                 algorithms[i]);
        world_limits(limit);
        release_used(granted(ASK({"k", 10})), "k", 1000000);
        assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, 11 * SECOND); /* from -10 to 1 */
        world_close();
    }
}

/* Limit types: the table */

static void a_rate_is_not_acquired_unless_asked_for(void **state)
{
    (void)state;
    open_all_types();
    release(granted(ASK({"slots", 1})));
    assert_int_equal(available(IS_RATE), 10);
    assert_int_equal(limit_stats(IS_RATE).granted, 0);
    world_close();
}

static void a_call_is_always_included_with_1(void **state)
{
    (void)state;
    open_all_types();
    release(granted(ASK({"slots", 1})));
    assert_int_equal(available(IS_CALL), 4);
    assert_int_equal(limit_stats(IS_CALL).granted, 1);
    world_close();
}

static void a_resource_is_always_included_with_1(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"call_count", 1}));
    assert_int_equal(limit_stats(IS_RESOURCE).held, 1);
    assert_int_equal(available(IS_RESOURCE), 2);
    release(a);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 0);
    world_close();
}

static void the_default_key_of_a_call_is_call_count(void **state)
{
    (void)state;
    open_all_types();
    assert_string_equal(limit_stats(IS_CALL).key, "call_count");
    world_close();
}

static void a_rate_needs_an_update_before_release(void **state)
{
    (void)state;
    open_all_types();
    release_expecting(granted(ASK({"tokens", 1})), -EPROTO);
    assert_int_equal(stats().missing_update, 1);
    release_used(granted(ASK({"tokens", 1})), "tokens", 1);
    assert_int_equal(stats().missing_update, 1);
    world_close();
}

static void usage_up_to_what_was_requested_refunds_the_rest(void **state)
{
    (void)state;
    open_all_types();
    release_used(granted(ASK({"tokens", 10})), "tokens", 4);
    assert_int_equal(available(IS_RATE), 6);
    assert_int_equal(limit_stats(IS_RATE).refunded, 6);
    release_used(granted(ASK({"tokens", 6})), "tokens", 6);
    assert_int_equal(available(IS_RATE), 0);
    world_close();
}

static void a_call_of_amount_1_is_updated_automatically(void **state)
{
    (void)state;
    open_all_types();
    release(granted(ASK({"call_count", 1})));
    assert_int_equal(stats().missing_update, 0);
    assert_int_equal(available(IS_CALL), 4);
    world_close();
}

static void a_call_above_1_needs_an_update(void **state)
{
    (void)state;
    open_all_types();
    release_expecting(granted(ASK({"call_count", 2})), -EPROTO);
    assert_int_equal(available(IS_CALL), 3);
    release_used(granted(ASK({"call_count", 3})), "call_count", 0);
    assert_int_equal(available(IS_CALL), 3);
    release_used(granted(ASK({"call_count", 3})), "call_count", 3);
    assert_int_equal(available(IS_CALL), 0);
    world_close();
}

static void a_resource_needs_no_update(void **state)
{
    (void)state;
    open_all_types();
    release(granted(ASK({"slots", 3})));
    assert_int_equal(stats().missing_update, 0);
    assert_int_equal(stats().refunded, 0);
    world_close();
}

/* Limit types: the sentences */

static void asking_for_nothing_takes_every_default(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(CALL "," RESOURCE);
    a = granted(NULL);
    assert_int_equal(limit_stats(0).granted, 1);
    assert_int_equal(limit_stats(1).held, 1);
    release(a);
    release(granted(ASK_DEFAULTS));
    assert_int_equal(limit_stats(0).granted, 2);
    world_close();
}

static void a_call_without_a_pool_or_without_a_place_for_its_result_is_einval(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_all_types();
    assert_int_equal(weir_take(NULL, ASK_DEFAULTS, NULL), -EINVAL);
    assert_int_equal(weir_try_acquire(NULL, ASK_DEFAULTS, &a, NULL), -EINVAL);
    assert_int_equal(weir_submit(NULL, ASK_DEFAULTS, &a, NULL), -EINVAL);
    assert_int_equal(weir_acquire(NULL, ASK_DEFAULTS, &a, NULL), -EINVAL);
    assert_int_equal(weir_try_acquire(world.pool, ASK_DEFAULTS, NULL, NULL), -EINVAL);
    assert_int_equal(weir_submit(world.pool, ASK_DEFAULTS, NULL, NULL), -EINVAL);
    assert_int_equal(weir_acquire(world.pool, ASK_DEFAULTS, NULL, NULL), -EINVAL);
    assert_null(a);
    world_close();
}

static void asking_for_nothing_of_a_set_with_a_rate_is_einval(void **state)
{
    weir_acquisition *a = NULL;
    struct picture before, after;
    uint64_t at = 7;

    (void)state;
    open_all_types();
    before = picture();
    assert_int_equal(try_acquire(NULL, &a), -EINVAL);
    assert_int_equal(try_acquire(ASK_DEFAULTS, &a), -EINVAL);
    assert_int_equal(submit(NULL, &a), -EINVAL);
    assert_int_equal(weir_acquire(world.pool, NULL, &a, NULL), -EINVAL);
    assert_int_equal(take(NULL), -EINVAL);
    assert_int_equal(weir_set_ready_at(world.set, NULL, &at), -EINVAL);
    assert_null(a);
    assert_int_equal(at, 7);
    after = picture();
    assert_same_limits(&before, &after);
    world_close();
}

static void an_unknown_key_is_skipped_with_one_warning_per_key_and_set(void **state)
{
    (void)state;
    world_open("version: 1\nsets: { one: { limits: [ " RESOURCE " ] },"
               " two: { limits: [ " RESOURCE " ] } }\n",
               "one");
    weir_pool *two = pool_open("two", 0);
    weir_acquisition *a;

    release(granted(ASK({"nonsense", 3})));
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "nonsense"));
    assert_non_null(strstr(world.log[0], "`one`"));
    release(granted(ASK({"nonsense", 3})));
    assert_int_equal(world.logged, 1);
    release(granted(ASK({"rubbish", 3})));
    assert_int_equal(world.logged, 2);
    assert_int_equal(weir_try_acquire(two, ASK({"nonsense", 3}), &a, NULL), 0);
    assert_int_equal(world.logged, 3);
    assert_non_null(strstr(world.log[2], "`two`"));
    release(a);
    weir_pool_close(two);
    world_close();
}

static void foreseeing_warns_of_nothing(void **state)
{
    uint64_t at;

    (void)state;
    world_limits(RESOURCE);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"nonsense", 3}), &at), 0);
    assert_int_equal(at, world.now);
    assert_int_equal(world.logged, 0);
    world_close();
}

static void calls_and_resources_are_included_even_if_every_key_is_unknown(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"nonsense", 3}));
    assert_int_equal(limit_stats(IS_CALL).granted, 1);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 1);
    assert_int_equal(limit_stats(IS_RATE).granted, 0);
    release(a);
    world_close();
}

static void a_strict_request_makes_an_unknown_key_enoent(void **state)
{
    weir_acquisition *a = NULL;
    struct picture before, after;

    (void)state;
    open_all_types();
    before = picture();
    assert_int_equal(try_acquire(strict(ASK({"slots", 1}, {"nonsense", 1})), &a), -ENOENT);
    assert_null(a);
    assert_string_equal(refusal.key, "nonsense");
    assert_string_equal(refusal.set, "main");
    assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
    assert_int_equal(take(strict(ASK({"nonsense", 1}))), -ENOENT);
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.refused_unknown, 2);
    assert_int_equal(world.logged, 0);
    release(granted(strict(ASK({"slots", 1}))));
    world_close();
}

static void a_strict_set_makes_an_unknown_key_enoent(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    world_set("strict: true, limits: [ " RESOURCE " ]");
    assert_int_equal(try_acquire(ASK({"nonsense", 1}), &a), -ENOENT);
    a = granted(NULL);
    assert_int_equal(weir_update(a, "nonsense", 1), -ENOENT);
    release(a);
    assert_int_equal(world.logged, 0);
    world_close();
}

static void the_same_for_update(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"slots", 1}));
    assert_int_equal(weir_update(a, "nonsense", 5), 0);
    assert_int_equal(weir_update(a, "nonsense", 6), 0);
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "nonsense"));
    release(a);
    a = granted(strict(ASK({"slots", 1})));
    assert_int_equal(weir_update(a, "nonsense", 5), -ENOENT);
    release(a);
    assert_int_equal(world.logged, 1);
    world_close();
}

static void an_explicit_0_leaves_a_limit_out_and_needs_no_update(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"tokens", 0}, {"call_count", 0}, {"slots", 1}));
    assert_int_equal(limit_stats(IS_CALL).granted, 0);
    assert_int_equal(limit_stats(IS_RATE).granted, 0);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 1);
    release(a);
    assert_int_equal(stats().missing_update, 0);
    world_close();
}

static void an_amount_above_the_capacity_is_erange_at_once(void **state)
{
    static const char *const keys[] = {"tokens", "call_count", "slots"};
    static const uint64_t most[] = {10, 5, 3};
    struct picture before, after;
    weir_acquisition *a = NULL;

    (void)state;
    open_all_types();
    before = picture();
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(submit(ASK({keys[i], most[i] + 1}), &a), -ERANGE);
        assert_string_equal(refusal.key, keys[i]);
        assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
        assert_int_equal(try_acquire(ASK({keys[i], UINT64_MAX}), &a), -ERANGE);
        assert_int_equal(weir_acquire(world.pool, ASK({keys[i], most[i] + 1}), &a, NULL), -ERANGE);
        assert_int_equal(take(ASK({"slots", 0}, {keys[i], most[i] + 1})),
                         i == 2 ? -EINVAL : -ERANGE);
    }
    after = picture();
    assert_null(a);
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.waiting, 0);
    assert_int_equal(after.set.refused_impossible, 11);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(after.limits[i].refused, i == 2 ? 3 : 4);
    release_expecting(granted(ASK({"tokens", 10}, {"call_count", 5}, {"slots", 3})), -EPROTO);
    world_close();
}

/*
 * The algorithm announced that it could: it is refused all the same, and no request waits for it.
 */
static void an_amount_that_an_algorithm_never_grants_is_erange(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    needs(HAS_OTHER_ALGORITHMS);
    world_set("limits: [ { type: rate, key: k, algorithm: stingy } ]");
    for (int i = 0; i < 3; i++) {
        int r = i == 0   ? submit(ASK({"k", 5}), &a)
                : i == 1 ? try_acquire(ASK({"k", 5}), &a)
                         : weir_acquire(world.pool, ASK({"k", 5}), &a, &refusal);

        assert_int_equal(r, -ERANGE);
        assert_string_equal(refusal.key, "k");
        assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
        refusal.key = "";
        refusal.retry_after_ns = 0;
    }
    assert_int_equal(take(ASK({"k", 5})), -ERANGE);
    assert_string_equal(refusal.key, "k");
    assert_null(a);
    assert_int_equal(stats().waiting, 0);
    assert_int_equal(stats().refused_impossible, 4);
    release_used(granted(ASK({"k", 1})), "k", 1);
    world_close();
}

static void an_amount_above_the_burst_is_erange(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s, burst: 4 }");
    assert_int_equal(take(ASK({"k", 5})), -ERANGE);
    assert_int_equal(take(ASK({"k", 4})), 0);
    world_close();
}

/* One limit after the other refuses; the others must not notice. */
static void all_or_nothing(void **state)
{
    static const char *const keys[] = {"tokens", "call_count", "slots"};
    weir_acquisition *a, *b = NULL;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct picture before, after;

        open_all_types();
        a = granted(ASK({"tokens", i == 0 ? 10 : 1}, {"call_count", i == 1 ? 5 : 1},
                        {"slots", i == 2 ? 3 : 1}));
        before = picture();
        for (int turn = 0; turn < 3; turn++)
            assert_int_equal(try_acquire(ASK({"tokens", 2}, {"call_count", 2}, {"slots", 2}), &b),
                             -EAGAIN);
        assert_null(b);
        assert_string_equal(refusal.key, keys[i]);
        after = picture();
        assert_same_limits(&before, &after);
        assert_int_equal(after.set.refused_busy, 3);
        assert_int_equal(after.limits[i].refused, 3);
        assert_int_equal(after.limits[(i + 1) % 3].refused, 0);
        release_expecting(a, -EPROTO);
        world_close();
    }
}

static void every_limit_of_a_request_is_taken_at_one_instant(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_all_types();
    a = granted(ASK({"tokens", 10}, {"slots", 3}));
    b = pending(ASK({"tokens", 5}, {"slots", 1}));
    advance(5 * SECOND); /* the tokens are there, the slot is not */
    assert_int_equal(available(IS_RATE), 5);
    assert_int_equal(limit_stats(IS_CALL).granted, 1);
    release_used(a, "tokens", 10);
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(available(IS_RATE), 0);
    assert_int_equal(limit_stats(IS_CALL).granted, 2);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 1);
    release_used(b, "tokens", 5);
    world_close();
}

static void the_last_update_before_release_counts(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"tokens", 10}));
    assert_int_equal(weir_update(a, "tokens", 9), 0);
    assert_int_equal(weir_update(a, "tokens", 1), 0);
    assert_int_equal(weir_update(a, "tokens", 3), 0);
    assert_int_equal(available(IS_RATE), 0);
    release(a);
    assert_int_equal(available(IS_RATE), 7);
    world_close();
}

static void overuse_of_a_rate_warns_and_is_accepted(void **state)
{
    (void)state;
    open_all_types();
    release_used(granted(ASK({"tokens", 2})), "tokens", 5);
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "tokens"));
    assert_int_equal(stats().overused, 1);
    assert_int_equal(limit_stats(IS_RATE).overused, 3);
    release_used(granted(ASK({"tokens", 2})), "tokens", 5);
    assert_int_equal(world.logged, 1); /* once */
    assert_int_equal(limit_stats(IS_RATE).overused, 6);
    world_close();
}

static void overuse_is_ignored_by_default(void **state)
{
    (void)state;
    open_all_types();
    release_used(granted(ASK({"tokens", 2})), "tokens", 5);
    assert_int_equal(available(IS_RATE), 8);
    world_close();
    world_limits("{ type: rate, key: tokens, algorithm: gcra, capacity: 10, window: 10s,"
                 " overuse: ignore }");
    release_used(granted(ASK({"tokens", 2})), "tokens", 5);
    assert_int_equal(available(IS_RATE), 8);
    world_close();
}

static void charged_overuse_becomes_debt(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 10, window: 10s,"
                 " overuse: charge }",
                 algorithms[i]);
        world_limits(limit);
        release_used(granted(ASK({"k", 2})), "k", 5);
        assert_int_equal(available(0), 5);
        release_used(granted(ASK({"k", 5})), "k", 7);
        assert_int_equal(available(0), 0);
        assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, 3 * SECOND); /* from -2 to 1 */
        world_close();
    }
}

/* However much was used: everything comes back, and there is no more debt than the burst. */
static void overuse_of_any_size_is_released(void **state)
{
    static const uint64_t used[] = {UINT64_C(1) << 50, UINT64_C(1) << 53, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s,"
                     " overuse: charge }," RESOURCE);
        release_used(granted(ASK({"k", 1}, {"slots", 3})), "k", used[i]);
        assert_int_equal(limit_stats(1).held, 0);
        assert_int_equal(take(ASK({"k", 1}, {"slots", 0})), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, 11 * SECOND); /* from -10 to 1 */
        world_close();
    }
}

static void a_call_used_above_its_amount_is_erange(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"call_count", 3}));
    assert_int_equal(weir_update(a, "call_count", 4), -ERANGE);
    assert_int_equal(weir_update(a, "call_count", 3), 0);
    release(a);
    world_close();
}

static void a_call_of_amount_1_accepts_only_1(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"call_count", 1}));
    assert_int_equal(weir_update(a, "call_count", 0), -ERANGE);
    assert_int_equal(weir_update(a, "call_count", 2), -ERANGE);
    assert_int_equal(weir_update(a, "call_count", 1), 0);
    release(a);
    assert_int_equal(available(IS_CALL), 4);
    world_close();
}

static void an_update_of_a_resource_is_einval(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"slots", 2}));
    assert_int_equal(weir_update(a, "slots", 1), -EINVAL);
    assert_int_equal(weir_update(a, "slots", 2), -EINVAL);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 2);
    release(a);
    assert_int_equal(limit_stats(IS_RESOURCE).held, 0);
    world_close();
}

static void a_refused_update_changes_nothing(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"tokens", 5}, {"call_count", 3}));
    assert_int_equal(weir_update(a, "tokens", 2), 0);
    assert_int_equal(weir_update(a, "call_count", 1), 0);
    assert_int_equal(weir_update(a, "call_count", 4), -ERANGE);
    assert_int_equal(weir_update(a, "slots", 0), -EINVAL);
    assert_int_equal(weir_update(a, NULL, 0), -EINVAL);
    release(a);
    assert_int_equal(available(IS_RATE), 8);
    assert_int_equal(available(IS_CALL), 4);
    world_close();
}

/* A refused update is not one that counts as made. */
static void a_refused_update_leaves_the_update_missing(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"call_count", 3}));
    assert_int_equal(weir_update(a, "call_count", 4), -ERANGE);
    release_expecting(a, -EPROTO);
    world_close();
}

static void an_update_of_what_is_not_granted_is_einval(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    open_all_types();
    a = granted(ASK({"slots", 3}));
    b = pending(ASK({"slots", 1}, {"tokens", 3}));
    assert_int_equal(weir_update(b, "tokens", 1), -EINVAL);
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(weir_update(b, "tokens", 1), -EINVAL);
    release(b);
    assert_int_equal(weir_update(a, "tokens", 1), -EINVAL); /* was left out */
    release(a);
    world_close();
}

static void take_is_final_at_once(void **state)
{
    struct weir_set_stats s;

    (void)state;
    world_limits(RATE "," CALL);
    assert_int_equal(take(ASK({"tokens", 4}, {"call_count", 2})), 0);
    assert_int_equal(available(0), 6);
    assert_int_equal(available(1), 3);
    s = stats();
    assert_int_equal(s.taken, 1);
    assert_int_equal(s.granted, 1);
    assert_int_equal(s.held, 0);
    assert_int_equal(s.missing_update, 0);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
    world_close();
}

static void take_needs_resources_left_out_explicitly(void **state)
{
    struct picture before, after;

    (void)state;
    open_all_types();
    before = picture();
    assert_int_equal(take(ASK({"tokens", 1})), -EINVAL);
    assert_int_equal(take(ASK({"slots", 1})), -EINVAL);
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(take(ASK({"tokens", 1}, {"slots", 0})), 0);
    world_close();
}

/* Keys and amounts, right and wrong, for the limit `key` of capacity 5. */
enum { KEYS = 6, AMOUNTS = 5, ODD_AMOUNTS = KEYS * AMOUNTS };

static struct weir_amount odd_amount(const char *key, unsigned i)
{
    static const uint64_t amounts[AMOUNTS] = {1, 0, 5, 6, UINT64_MAX};
    static char same[64], longer[64], shorter[64];
    const char *const keys[KEYS] = {same, key, longer, shorter, "other", NULL};

    snprintf(same, sizeof(same), "%s", key);
    snprintf(longer, sizeof(longer), "%s2", key);
    snprintf(shorter, sizeof(shorter), "%.3s", key);
    return (struct weir_amount){keys[i / AMOUNTS], amounts[i % AMOUNTS]};
}

/* Takes, or acquires and releases. */
static int ask_either(weir_pool *pool, const struct weir_request *request, bool takes)
{
    weir_acquisition *a = NULL;
    int r;

    refusal = (struct weir_refusal){.size = sizeof(refusal)};
    if (takes)
        return weir_take(pool, request, &refusal);
    r = weir_try_acquire(pool, request, &a, &refusal);
    assert_true((r == 0) == (a != NULL));
    weir_release(&a);
    return r;
}

/* Both have the same limit; the other one has another beside it, which is left out of the request.
 */
static void expect_alike(weir_pool *other, const struct weir_amount *asked, size_t n, unsigned how)
{
    struct weir_amount beside[3] = {{0}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = asked, .amounts_n = n, .flags = how & WEIR_STRICT};
    const char *key;
    int r = ask_either(world.pool, &request, how & 2);

    key = refusal.key;
    for (size_t i = 0; i < n; i++)
        beside[i] = asked[i];
    beside[n] = (struct weir_amount){"beside", 0};
    request.amounts = beside;
    request.amounts_n = n + 1;
    assert_int_equal(ask_either(other, &request, how & 2), r);
    assert_true(!key == !refusal.key);
    if (key)
        assert_string_equal(refusal.key, key);
}

static void a_limit_alone_is_asked_for_as_any_other(void **state)
{
    static const char *const keys[] = {"tokens", "call_count", "slots"};
    static const char *const limits[] = {
        "{ type: rate, key: tokens, algorithm: gcra, capacity: 5, window: 1h }",
        "{ type: call, algorithm: gcra, capacity: 5, window: 1h }",
        "{ type: resource, key: slots, capacity: 5 }"};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        char text[512];
        weir_pool *other;

        snprintf(text, sizeof(text),
                 "version: 1\nsets: { main: { limits: [ %s ] }, other: { limits: "
                 "[ %s, { type: resource, key: beside, capacity: 1 } ] } }\n",
                 limits[i], limits[i]);
        world_open(text, "main");
        other = pool_open("other", 0);
        for (unsigned how = 0; how < 4; how++) {
            if (i != IS_RATE)
                expect_alike(other, NULL, 0, how);
            for (unsigned j = 0; j < ODD_AMOUNTS * (ODD_AMOUNTS + 1); j++) {
                const struct weir_amount asked[2] = {
                    odd_amount(keys[i], j % ODD_AMOUNTS),
                    odd_amount(keys[i], j / ODD_AMOUNTS % ODD_AMOUNTS)};

                expect_alike(other, asked, j < ODD_AMOUNTS ? 1 : 2, how);
            }
        }
        weir_pool_close(other);
        world_close();
    }
}

static void release_gives_everything_back_whatever_else_is_wrong(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"tokens", 5}, {"slots", 3}, {"call_count", 3}));
    assert_int_equal(weir_update(a, "call_count", 1), 0);
    release_expecting(a, -EPROTO); /* tokens were not updated: they count as used */
    assert_int_equal(limit_stats(IS_RESOURCE).held, 0);
    assert_int_equal(available(IS_RATE), 5);
    assert_int_equal(available(IS_CALL), 4);
    assert_int_equal(stats().missing_update, 1);
    assert_int_equal(stats().released, 1);
    assert_int_equal(stats().held, 0);
    world_close();
}

static void release_gives_back_exactly_once(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_all_types();
    a = granted(ASK({"slots", 2}));
    assert_int_equal(weir_release(&a), 0);
    assert_null(a);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(weir_release(NULL), 0);
    settle();
    assert_int_equal(limit_stats(IS_RESOURCE).held, 0);
    assert_int_equal(stats().released, 1);
    world_close();
}

static void releasing_what_was_never_granted_gives_nothing_back(void **state)
{
    weir_acquisition *a, *b, *c = NULL, *d, *e;
    struct picture before, after;

    (void)state;
    open_all_types();
    a = granted(ASK({"slots", 3}, {"tokens", 4}));
    before = picture();
    assert_int_equal(try_acquire(ASK({"slots", 1}, {"tokens", 4}), &c), -EAGAIN);
    assert_int_equal(weir_release(&c), 0);
    b = pending(ASK({"slots", 1}, {"tokens", 4}));
    release(b);
    d = pending(with_timeout(ASK({"slots", 1}, {"tokens", 1}), 5));
    e = pending(with_max_wait(ASK({"slots", 1}, {"tokens", 1}), 6));
    advance(10);
    assert_int_equal(weir_acquisition_result(d), -ETIMEDOUT);
    assert_int_equal(weir_acquisition_result(e), -EAGAIN);
    release(d);
    release(e);
    b = pending(ASK({"slots", 1}, {"tokens", 4}));
    assert_int_equal(weir_cancel(b), 0);
    release(b);
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(after.set.released, 0);
    assert_int_equal(after.limits[IS_RESOURCE].held, 3);
    release_used(a, "tokens", 4);
    world_close();
}

static void the_config_map_travels_with_every_acquisition(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set("config: { region: us-east-1, endpoint: 'https://us.example' }, limits: [ " RESOURCE
              " ]");
    a = granted(NULL);
    assert_string_equal(weir_acquisition_set(a), "main");
    assert_string_equal(weir_acquisition_config(a, "region"), "us-east-1");
    assert_string_equal(weir_acquisition_config(a, "endpoint"), "https://us.example");
    assert_null(weir_acquisition_config(a, "absent"));
    assert_null(weir_acquisition_config(a, ""));
    assert_string_equal(weir_set_config(world.set, "region"), "us-east-1");
    world_close();
    /* It lives as long as the acquisition, not as the instance. */
    assert_string_equal(weir_acquisition_config(a, "region"), "us-east-1");
    assert_string_equal(weir_acquisition_set(a), "main");
    release(a);
}

static void a_definition_in_code_is_copied(void **state)
{
    char name[] = "coded", value[] = "before", key[] = "slots";
    struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = key, .capacity = 1};
    struct weir_setting setting = {"where", value};
    struct weir_set_spec set = {.size = sizeof(set),
                                .name = name,
                                .limits = &limit,
                                .limits_n = 1,
                                .config = &setting,
                                .config_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_pool *pool = NULL;
    weir_acquisition *a;

    (void)state;
    world_limits(RESOURCE);
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &a, NULL), 0);
    memset(value, 'x', sizeof(value) - 1);
    memset(name, 'x', sizeof(name) - 1);
    memset(key, 'x', sizeof(key) - 1);
    assert_string_equal(weir_acquisition_config(a, "where"), "before");
    assert_string_equal(weir_acquisition_set(a), "coded");
    release(a);
    weir_pool_close(pool);
    world_close();
}

/* Requests */

static void a_key_asked_for_twice_is_einval(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    open_all_types();
    assert_int_equal(try_acquire(ASK({"slots", 1}, {"slots", 1}), &a), -EINVAL);
    assert_string_equal(refusal.key, "slots");
    assert_int_equal(try_acquire(ASK({NULL, 1}), &a), -EINVAL);
    assert_null(a);
    world_close();
}

static void keys_are_compared_by_content(void **state)
{
    char key[] = "slots";

    (void)state;
    open_all_types();
    release(granted(strict(ASK({key, 1}))));
    world_close();
}

static void malformed_requests_are_einval(void **state)
{
    struct weir_request small = {.size = sizeof(small) - 1}, flags = {.size = sizeof(flags)};
    struct weir_request missing = {.size = sizeof(missing), .amounts_n = 1};
    const struct weir_request *wrong[] = {&small, &flags, &missing};
    weir_acquisition *a = NULL;
    uint64_t at;

    (void)state;
    flags.flags = 1u << 31;
    world_limits(RESOURCE);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(try_acquire(wrong[i], &a), -EINVAL);
        assert_int_equal(submit(wrong[i], &a), -EINVAL);
        assert_int_equal(weir_acquire(world.pool, wrong[i], &a, NULL), -EINVAL);
        assert_int_equal(take(wrong[i]), -EINVAL);
        assert_int_equal(weir_set_ready_at(world.set, wrong[i], &at), -EINVAL);
    }
    assert_null(a);
    assert_int_equal(stats().granted, 0);
    world_close();
}

static void a_refusal_of_unknown_size_stays_untouched(void **state)
{
    struct weir_refusal small = {.size = sizeof(small) - 1, .retry_after_ns = 42};
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_limits(RESOURCE);
    a = granted(ASK({"slots", 3}));
    assert_int_equal(weir_try_acquire(world.pool, NULL, &b, &small), -EAGAIN);
    assert_int_equal(small.retry_after_ns, 42);
    assert_null(small.key);
    assert_int_equal(weir_try_acquire(world.pool, NULL, &b, NULL), -EAGAIN);
    release(a);
    world_close();
}

static void several_limits_may_share_a_key(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s },"
                 "{ type: rate, key: k, algorithm: fixed_window, capacity: 100, window: 60s,"
                 " refund: true }");
    a = granted(ASK({"k", 8}));
    assert_int_equal(available(0), 2);
    assert_int_equal(available(1), 92);
    release_used(a, "k", 5);
    assert_int_equal(available(0), 5);
    assert_int_equal(available(1), 95);
    assert_int_equal(take(ASK({"k", 11})), -ERANGE);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_default_clock_is_monotonic),
        leak_checked_test(a_clock_can_be_injected),
        leak_checked_test(an_earlier_reading_counts_as_the_same_instant),
        leak_checked_test(an_amount_of_0_is_granted_and_changes_nothing),
        leak_checked_test(ready_at_is_the_first_whole_tick),
        leak_checked_test(instants_do_not_drift),
        leak_checked_test(what_cannot_be_represented_is_refused),
        leak_checked_test(refunds_by_default_follow_the_table),
        leak_checked_test(refund_in_the_configuration_overrides_the_default),
        leak_checked_test(fixed_window_refunds_only_within_the_window_of_the_grant),
        leak_checked_test(sliding_window_refund_shrinks_the_entry_of_the_grant),
        leak_checked_test(a_resource_is_released_by_its_algorithm),
        leak_checked_test(with_the_same_burst_gcra_and_token_bucket_decide_alike),
        leak_checked_test(fixed_window_anchored_to_the_epoch_follows_the_wall_clock),
        leak_checked_test(leaky_queue_grants_when_the_first_unit_may_leave),
        leak_checked_test(balances_after_charged_overuse_never_fall_below_minus_b),
        leak_checked_test(a_rate_is_not_acquired_unless_asked_for),
        leak_checked_test(a_call_is_always_included_with_1),
        leak_checked_test(a_resource_is_always_included_with_1),
        leak_checked_test(the_default_key_of_a_call_is_call_count),
        leak_checked_test(a_rate_needs_an_update_before_release),
        leak_checked_test(usage_up_to_what_was_requested_refunds_the_rest),
        leak_checked_test(a_call_of_amount_1_is_updated_automatically),
        leak_checked_test(a_call_above_1_needs_an_update),
        leak_checked_test(a_resource_needs_no_update),
        leak_checked_test(asking_for_nothing_takes_every_default),
        leak_checked_test(a_call_without_a_pool_or_without_a_place_for_its_result_is_einval),
        leak_checked_test(asking_for_nothing_of_a_set_with_a_rate_is_einval),
        leak_checked_test(an_unknown_key_is_skipped_with_one_warning_per_key_and_set),
        leak_checked_test(foreseeing_warns_of_nothing),
        leak_checked_test(calls_and_resources_are_included_even_if_every_key_is_unknown),
        leak_checked_test(a_strict_request_makes_an_unknown_key_enoent),
        leak_checked_test(a_strict_set_makes_an_unknown_key_enoent),
        leak_checked_test(the_same_for_update),
        leak_checked_test(an_explicit_0_leaves_a_limit_out_and_needs_no_update),
        leak_checked_test(an_amount_above_the_capacity_is_erange_at_once),
        leak_checked_test(an_amount_that_an_algorithm_never_grants_is_erange),
        leak_checked_test(an_amount_above_the_burst_is_erange),
        leak_checked_test(all_or_nothing),
        leak_checked_test(every_limit_of_a_request_is_taken_at_one_instant),
        leak_checked_test(the_last_update_before_release_counts),
        leak_checked_test(overuse_of_a_rate_warns_and_is_accepted),
        leak_checked_test(overuse_is_ignored_by_default),
        leak_checked_test(charged_overuse_becomes_debt),
        leak_checked_test(overuse_of_any_size_is_released),
        leak_checked_test(a_call_used_above_its_amount_is_erange),
        leak_checked_test(a_call_of_amount_1_accepts_only_1),
        leak_checked_test(an_update_of_a_resource_is_einval),
        leak_checked_test(a_refused_update_changes_nothing),
        leak_checked_test(a_refused_update_leaves_the_update_missing),
        leak_checked_test(an_update_of_what_is_not_granted_is_einval),
        leak_checked_test(take_is_final_at_once),
        leak_checked_test(take_needs_resources_left_out_explicitly),
        leak_checked_test(a_limit_alone_is_asked_for_as_any_other),
        leak_checked_test(release_gives_everything_back_whatever_else_is_wrong),
        leak_checked_test(release_gives_back_exactly_once),
        leak_checked_test(releasing_what_was_never_granted_gives_nothing_back),
        leak_checked_test(the_config_map_travels_with_every_acquisition),
        leak_checked_test(a_definition_in_code_is_copied),
        leak_checked_test(a_key_asked_for_twice_is_einval),
        leak_checked_test(keys_are_compared_by_content),
        leak_checked_test(malformed_requests_are_einval),
        leak_checked_test(a_refusal_of_unknown_size_stays_untouched),
        leak_checked_test(several_limits_may_share_a_key),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Mistakes of other limiters, each as a test; the limiter that made it stands beside it. */
#include "lib/world.h"
#include <pthread.h>
#include <sched.h>

#define SLOT "{ type: resource, key: r, capacity: 1 }"
#define RATE "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s }"

/* So often a loop goes round: less often where each round is a message to an engine, or several. */
static uint64_t rounds(uint64_t n)
{
    return backend->is_remote ? n / 20 : n;
}

static uint64_t ticks_up_to(uint64_t ns)
{
    return (ns + TICK - 1) / TICK * TICK;
}

/* Lost permits */

/* Netflix concurrency-limits #179, failsafe #400: a timeout racing a grant loses the token. The
 * clock stands still while the grant, the timeout and the caller's look come in every order. */
static void a_timeout_racing_a_grant_does_not_lose_the_permit(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        weir_acquisition *holder, *a;

        world_limits(SLOT);
        holder = granted(NULL);
        a = pending(with_timeout(ASK_DEFAULTS, 5 * TICK));
        world.now += 5 * TICK;
        if (order & 1)
            advance(0);
        release(holder);
        if (order & 2)
            advance(0);
        if (weir_acquisition_result(a) != -ETIMEDOUT)
            assert_int_equal(weir_acquisition_result(a), 0);
        if (!backend->is_remote || order & 1)
            assert_int_equal(weir_acquisition_result(a), order & 1 ? -ETIMEDOUT : 0);
        release(a);
        assert_int_equal(limit_stats(0).held, 0);
        release(granted(NULL));
        world_close();
    }
}

static void *wait_briefly(void *argument)
{
    unsigned *granted_n = argument;

    for (int i = 0; i < 300; i++) {
        weir_acquisition *a = NULL;
        int r =
            weir_acquire(world.pool, with_timeout(ASK_DEFAULTS, 1 + (uint64_t)i * 300), &a, NULL);

        if (r == 0)
            ++*granted_n;
        else if (r != -ETIMEDOUT)
            abort();
        weir_release(&a);
    }
    return NULL;
}

/* The same with real threads: whatever happened, in the end everything is there. */
static void timeouts_and_grants_of_threads_lose_nothing(void **state)
{
    unsigned granted_n[4] = {0};
    pthread_t threads[4];

    (void)state;
    world_real("limits: [ " SLOT " ]");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_briefly, &granted_n[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    settle();
    assert_int_equal(stats().granted, granted_n[0] + granted_n[1] + granted_n[2] + granted_n[3]);
    assert_int_equal(stats().granted, stats().released);
    assert_int_equal(stats().timed_out, 1200 - stats().granted);
    assert_int_equal(stats().waiting, 0);
    assert_int_equal(limit_stats(0).held, 0);
    release(granted(NULL));
    world_close();
}

/* Concurry: an exception before the update leaks the resource. */
static void a_release_without_an_update_gives_the_resource_back(void **state)
{
    (void)state;
    world_limits(SLOT "," RATE);
    release_expecting(granted(ASK({"k", 3})), -EPROTO);
    assert_int_equal(limit_stats(0).held, 0);
    release_used(granted(ASK({"k", 3})), "k", 0);
    world_close();
}

/* Permits from nowhere */

/* Concurry: releasing a failed try inflates capacity. */
static void releasing_a_failed_try_does_not_inflate_capacity(void **state)
{
    weir_acquisition *a, *none = NULL;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
        assert_int_equal(weir_release(&none), 0);
    }
    assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
    assert_int_equal(limit_stats(0).held, 1);
    release(a);
    assert_int_equal(available(0), 1);
    world_close();
}

/* bucket4j #417: a negative amount mints tokens. Amounts are unsigned: -1 is a very large one. */
static void a_negative_amount_mints_nothing(void **state)
{
    static const uint64_t amounts[] = {(uint64_t)-1, (uint64_t)-10, UINT64_C(1) << 63,
                                       (uint64_t)INT64_MIN + 5};
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(take(ASK({"k", amounts[i]})), -ERANGE);
        assert_int_equal(available(0), 10);
        a = granted(ASK({"k", 5}));
        release_used(a, "k", amounts[i]); /* overuse, ignored */
        assert_int_equal(available(0), 5);
        world.now += 5 * SECOND;
    }
    world_close();
}

static void a_huge_overuse_that_is_charged_mints_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_limits(i ? "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s,"
                         " overuse: charge }"
                       : "{ type: rate, key: k, algorithm: token_bucket, capacity: 10,"
                         " window: 10s, overuse: charge }");
        release_used(granted(ASK({"k", 5})), "k", UINT64_MAX);
        assert_int_equal(available(0), 0);
        assert_int_equal(take(ASK({"k", 10})), -EAGAIN);
        assert_int_equal(refusal.retry_after_ns, 20 * SECOND);
        world_close();
    }
}

/* Refund and cancel */

/* golang/go #56924, #69419, #52584: canceling gives back too much or too little; 1 ns of rounding
 * breaks a chain. 7 per second is no whole number of nanoseconds. */
static void a_chain_of_cancels_gives_back_exactly_what_was_taken(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_acquisition *waiters[20];
        char limit[200];
        uint64_t unchanged;

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 7, window: 1s }", algorithms[i]);
        world_limits(limit);
        assert_int_equal(take(ASK({"k", 7})), 0);
        world.now += 333 * TICK;
        assert_int_equal(take(ASK({"k", 5})), -EAGAIN);
        unchanged = refusal.retry_after_ns;
        for (uint64_t turn = 0; turn < rounds(60); turn++) {
            for (uint64_t j = 0; j < 20; j++)
                waiters[j] = pending(ASK({"k", 1 + j % 7}));
            for (uint64_t j = 0; j < 20; j++) {
                uint64_t n = (j * 7 + turn) % 20;

                assert_int_equal(weir_cancel(waiters[n]), 0);
                release(waiters[n]);
            }
            assert_int_equal(take(ASK({"k", 5})), -EAGAIN);
            assert_int_equal(refusal.retry_after_ns, unchanged);
        }
        world_close();
    }
}

/* The same for grants that are refunded in full: the k-th unit still comes at k/7 s, rounded up. */
static void a_chain_of_refunds_gives_back_exactly_what_was_taken(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 7, window: 1s }", algorithms[i]);
        world_limits(limit);
        assert_int_equal(take(ASK({"k", 7})), 0);
        for (uint64_t k = 1; k <= rounds(3000); k++) {
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world.now += refusal.retry_after_ns;
            assert_int_equal(world.now, START + ticks_up_to((k * SECOND + 6) / 7));
            for (int turn = 0; turn < 3; turn++)
                release_used(granted(ASK({"k", 1})), "k", 0);
            assert_int_equal(take(ASK({"k", 1})), 0);
        }
        world_close();
    }
}

/* bucket4j: an interrupted waiter's tokens vanish. */
static void a_waiter_that_gives_up_takes_nothing_along(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    for (uint64_t i = 1; i < 10; i++) {
        a = pending(with_timeout(ASK({"k", 10}), SECOND));
        advance(SECOND);
        assert_int_equal(weir_acquisition_result(a), -ETIMEDOUT);
        release(a);
        assert_int_equal(available(0), i);
    }
    advance(SECOND);
    assert_int_equal(take(ASK({"k", 10})), 0);
    world_close();
}

/* Several limits at once */

/* dotnet #113314, envoy ratelimit #440, #427, #185: a denied request is charged all the same. */
static void a_denied_request_is_charged_nowhere(void **state)
{
    struct picture before, after;
    weir_acquisition *none = NULL;

    (void)state;
    world_limits("{ type: rate, key: a, algorithm: gcra, capacity: 9, window: 9s },"
                 "{ type: rate, key: b, algorithm: sliding_window, capacity: 9, window: 9s },"
                 "{ type: rate, key: c, algorithm: fixed_window, capacity: 9, window: 9s },"
                 "{ type: rate, key: d, algorithm: leaky_bucket, capacity: 9, window: 9s },"
                 "{ type: rate, key: e, algorithm: token_bucket, capacity: 2, window: 9s }");
    assert_int_equal(take(ASK({"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1})), 0);
    before = picture();
    for (int i = 0; i < 10; i++) {
        assert_int_equal(take(ASK({"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 2})), -EAGAIN);
        assert_string_equal(refusal.key, "e");
        assert_int_equal(try_acquire(ASK({"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 2}), &none),
                         -EAGAIN);
        assert_int_equal(submit(with_max_wait(ASK({"a", 1}, {"b", 1}, {"e", 2}), 1), &none),
                         -EAGAIN);
    }
    after = picture();
    assert_same_limits(&before, &after);
    world_close();
}

/* limitador #506, litellm #27001: reserve an upper bound, update it to what was really used. */
static void reserve_then_settle(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: tokens, algorithm: token_bucket, capacity: 90k, window: 60s },"
                 "{ type: call, algorithm: gcra, capacity: 100, window: 60s }");
    for (int i = 0; i < 20; i++)
        release_used(granted(ASK({"tokens", 8000})), "tokens", 1000);
    assert_int_equal(available(0), 70000);
    assert_int_equal(limit_stats(0).refunded, 140000);
    world_close();
}

/* Arithmetic */

/* redis-cell #80, #50: rates above 1000/s fail. envoy #16407: 3000 configured gives 2500. dotnet
 * #74056: 1/s became 1 per 1.5 s. Counted over seconds of asking every so often. */
static void the_rate_configured_is_the_rate_given(void **state)
{
    static const uint64_t rates[] = {1, 3, 999, 3000, 999983, 1000000, 50000000};
    static const char *const algorithms[] = {"gcra", "token_bucket", "leaky_bucket"};
    const uint64_t seconds = backend->is_remote ? 1 : 10;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof(rates) / sizeof(*rates); j++) {
            uint64_t granted_n = 0;
            char limit[200];

            snprintf(limit, sizeof(limit),
                     "{ type: rate, key: k, algorithm: %s, capacity: %llu, window: 1s }",
                     algorithms[i], (unsigned long long)rates[j]);
            world_limits(limit);
            assert_int_equal(take(ASK({"k", rates[j]})), 0);
            for (uint64_t turn = 0; turn < 20 * seconds; turn++) {
                uint64_t n;

                world.now += 50 * MS;
                n = available(0);
                assert_int_equal(take(ASK({"k", n})), 0);
                granted_n += n;
            }
            assert_int_equal(granted_n, seconds * rates[j]);
            world_close();
        }
    }
}

/* One at a time, each taken as soon as it is there. */
static void one_per_second_is_one_per_second(void **state)
{
    static const char *const algorithms[] = {"gcra",         "token_bucket",
                                             "leaky_bucket", "sliding_window",
                                             "fixed_window", "leaky_bucket, mode: shaper"};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, capacity: 1, window: 1s, algorithm: %s }", algorithms[i]);
        world_limits(limit);
        for (uint64_t n = 0; n < 100; n++) {
            assert_int_equal(take(ASK({"k", 1})), 0);
            world.now += SECOND - TICK;
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world.now += TICK;
        }
        world_close();
    }
}

/* redis-cell #41: a limit of zero crashes the server. */
static void a_limit_of_zero_is_refused_by_the_configuration(void **state)
{
    static const char *const limits[] = {
        "{ type: rate, key: k, algorithm: gcra, capacity: 0, window: 1s }",
        "{ type: rate, key: k, algorithm: token_bucket, capacity: 1, window: 0s }",
        "{ type: rate, key: k, algorithm: sliding_window, capacity: 0, window: 1s }",
        "{ type: rate, key: k, algorithm: token_bucket, capacity: 1, window: 1s, burst: 0 }",
        "{ type: resource, key: k, capacity: 0 }",
        "{ type: resource, key: k, capacity: -1 }",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        struct weir_error error = {0};
        char text[256];
        struct weir_options options = {.size = sizeof(options), .text = text};
        weir *w = NULL;

        snprintf(text, sizeof(text), "version: 1\nsets: { s: { limits: [ %s ] } }\n", limits[i]);
        assert_int_equal(weir_open(&w, &options, &error), -EINVAL);
        assert_null(w);
        assert_int_equal(error.line, 2);
    }
}

/* bucket4j #51: overflow after long idleness. */
static void long_idleness_overflows_nothing(void **state)
{
    static const char *const limits[] = {
        "{ type: rate, key: k, algorithm: gcra, capacity: 1000000000, window: 1s }",
        "{ type: rate, key: k, algorithm: gcra, capacity: 999983, window: 1s, burst: 10 }",
        "{ type: rate, key: k, algorithm: token_bucket, capacity: 1000000000, window: 1s }",
        "{ type: rate, key: k, algorithm: token_bucket, capacity: 1, window: 1d }",
        "{ type: rate, key: k, algorithm: leaky_bucket, capacity: 1000000000, window: 1s }",
        "{ type: rate, key: k, algorithm: sliding_window, capacity: 1000, window: 1d }",
        "{ type: rate, key: k, algorithm: fixed_window, capacity: 1000000000, window: 1s }",
    };

    (void)state;
    needs(HAS_LONG_IDLENESS);
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        uint64_t all;

        world_limits(limits[i]);
        all = limit_stats(0).capacity;
        for (int turn = 0; turn < 3; turn++) {
            assert_int_equal(available(0), all);
            assert_int_equal(take(ASK({"k", all})), 0);
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world.now += UINT64_C(70) * 365 * 86400 * SECOND;
        }
        world_close();
    }
}

/* All the idleness that a clock has room for, in one span, on one word and on more. */
static void two_centuries_of_idleness_are_forgotten(void **state)
{
    static const uint64_t spans[] = {(UINT64_C(1) << 62) - 1, UINT64_C(1) << 62,
                                     (UINT64_C(1) << 62) + 1, WEIR_CLOCK_MAX - START};
    static const char *const limits[] = {
        "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 1s }",
        "{ type: rate, key: k, algorithm: gcra, capacity: 1, window: 13000d }",
        "{ type: rate, key: k, algorithm: gcra, capacity: 3, window: 1s }",
        "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 1s }",
        "{ type: rate, key: k, algorithm: leaky_bucket, capacity: 10, window: 1s }",
        "{ type: rate, key: k, algorithm: sliding_window, capacity: 10, window: 1s }",
        "{ type: rate, key: k, algorithm: fixed_window, capacity: 10, window: 1s }",
    };

    (void)state;
    needs(HAS_LONG_IDLENESS);
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        for (size_t k = 0; k < sizeof(spans) / sizeof(*spans); k++) {
            uint64_t all;

            world_limits(limits[i]);
            all = limit_stats(0).capacity;
            assert_int_equal(take(ASK({"k", all})), 0);
            world.now += spans[k];
            assert_int_equal(available(0), all);
            assert_int_equal(take(ASK({"k", all})), 0);
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world_close();
        }
    }
}

/* Concurry: a fraction dropped at every check starves a leaky bucket for ever. */
static void frequent_looks_do_not_slow_the_drain(void **state)
{
    static const char *const algorithms[] = {"leaky_bucket", "token_bucket", "gcra"};
    const uint64_t window = rounds(10000);

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 3, window: %lluns }",
                 algorithms[i], (unsigned long long)(window * TICK));
        world_limits(limit);
        assert_int_equal(take(ASK({"k", 3})), 0);
        for (uint64_t ticks = 1; ticks <= window; ticks++) {
            world.now += TICK;
            assert_int_equal(available(0), 3 * ticks / window);
            assert_int_equal(take(ASK({"k", 3})), ticks == window ? 0 : -EAGAIN);
        }
        world_close();
    }
}

/* Clocks */

/* tikv/pd #10745: a stale reading mints tokens. Readings of several threads come in any order. The
 * clock of a server goes back by a second at most: beyond that it was set. */
static void a_stale_reading_mints_nothing(void **state)
{
    static const char *const algorithms[] = {"gcra", "token_bucket", "leaky_bucket",
                                             "sliding_window", "fixed_window"};
    const uint64_t back = backend->has & HAS_OWN_CLOCK ? 19 * SECOND : SECOND;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        char limit[200];

        snprintf(limit, sizeof(limit),
                 "{ type: rate, key: k, algorithm: %s, capacity: 10, window: 10s }", algorithms[i]);
        world_limits(limit);
        assert_int_equal(take(ASK({"k", 10})), 0);
        world.now += 20 * SECOND;
        assert_int_equal(take(ASK({"k", 10})), 0);
        for (int j = 0; j < 100; j++) {
            world.now -= back;
            assert_int_equal(available(0), 0);
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
            world.now += back;
            assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
        }
        world_close();
    }
}

/* Concurry: a step back of the wall clock loses tokens. Only calendar windows know it. */
static void a_step_back_of_the_wall_clock_loses_nothing(void **state)
{
    (void)state;
    world_limits(RATE ",{ type: rate, key: day, algorithm: fixed_window, anchor: epoch,"
                      " capacity: 10, window: 1d }");
    world.wall = (int64_t)(UINT64_C(20000) * 86400 * SECOND);
    assert_int_equal(take(ASK({"k", 5}, {"day", 5})), 0);
    world.wall -= (int64_t)(3600 * SECOND);
    assert_int_equal(available(0), 5);
    assert_int_equal(available(1), 5);
    assert_int_equal(take(ASK({"k", 5}, {"day", 5})), 0);
    assert_int_equal(take(ASK({"day", 1})), -EAGAIN);
    world_close();
}

/* Waiting */

/* dotnet #92557, #77991: Retry-After is wrong. Coming back then is enough, and not a tick earlier.
 */
static void retry_after_is_right_behind_waiters_too(void **state)
{
    weir_acquisition *waiters[5], *none = NULL;
    const uint64_t at = START + ticks_up_to((17 * SECOND + 6) / 7);

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 7, window: 1s }");
    assert_int_equal(take(ASK({"k", 7})), 0);
    for (int i = 0; i < 5; i++)
        waiters[i] = pending(ASK({"k", 3}));
    assert_int_equal(try_acquire(ASK({"k", 2}), &none), -EAGAIN);
    assert_forecast("k", at - START);
    for (uint64_t i = 1; i <= 5; i++)
        advance(START + ticks_up_to((3 * i * SECOND + 6) / 7) - world.now);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weir_acquisition_result(waiters[i]), 0);
        release_used(waiters[i], "k", 3);
    }
    world.now = at - TICK;
    assert_int_equal(take(ASK({"k", 2})), -EAGAIN);
    world.now = at;
    assert_int_equal(take(ASK({"k", 2})), 0);
    world_close();
}

/* shuttle #167, dotnet #77180: canceling the head must look at the next one, and the one after. */
static void canceling_the_head_rechecks_all_that_it_held_up(void **state)
{
    weir_acquisition *holder, *head, *next[3];

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 4 }");
    holder = granted(ASK({"r", 1}));
    head = pending(ASK({"r", 4}));
    for (int i = 0; i < 3; i++)
        next[i] = pending(ASK({"r", 1}));
    assert_int_equal(weir_cancel(head), 0);
    settle();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_acquisition_result(next[i]), 0);
        release(next[i]);
    }
    release(head);
    release(holder);
    world_close();
}

struct sleeper {
    pthread_t thread;
    int result;
};

static void *sleep_in_line(void *argument)
{
    struct sleeper *sleeper = argument;
    weir_acquisition *a = NULL;

    sleeper->result = weir_acquire(world.pool, NULL, &a, NULL);
    weir_release(&a);
    return NULL;
}

/* async-lock #23, governor's documentation: thundering herds. One release wakes one sleeper, which
 * wakes the next: as many wake-ups as grants, and none for nothing. */
static void a_release_wakes_one(void **state)
{
    enum { N = 16 };
    struct sleeper sleepers[N];
    struct fake_os_counts before, after;
    weir_acquisition *holder;

    (void)state;
    needs(HAS_SINGLE_WAKES);
    world_real("limits: [ " SLOT " ]");
    holder = granted(NULL);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&sleepers[i].thread, NULL, sleep_in_line, &sleepers[i]), 0);
        while (fake_os_counts().futex_wait <= i)
            sched_yield();
    }
    before = fake_os_counts();
    release(holder);
    for (int i = 0; i < N; i++) {
        pthread_join(sleepers[i].thread, NULL);
        assert_int_equal(sleepers[i].result, 0);
    }
    after = fake_os_counts();
    assert_int_equal(after.futex_wake - before.futex_wake, N);
    assert_int_equal(after.futex_wait - before.futex_wait, 0);
    world_close();
}

/* Concurry: timeouts overshoot by a polling interval. */
static void timeouts_do_not_overshoot(void **state)
{
    weir_acquisition *holder, *waiters[10];

    (void)state;
    world_limits(SLOT);
    holder = granted(NULL);
    for (uint64_t i = 0; i < 10; i++)
        waiters[i] = pending(with_timeout(ASK_DEFAULTS, (1 + (i * 7 % 10) * 3) * TICK));
    for (uint64_t ticks = 1; ticks <= 30; ticks++) {
        advance(TICK);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(weir_acquisition_result(waiters[i]),
                             ticks >= 1 + (i * 7 % 10) * 3 ? -ETIMEDOUT : -EINPROGRESS);
    }
    for (int i = 0; i < 10; i++)
        release(waiters[i]);
    release(holder);
    world_close();
}

/* A large request is not starved by small ones that would always fit. */
static void a_large_request_is_not_starved(void **state)
{
    weir_acquisition *small = NULL, *large, *other = NULL;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 4 }");
    small = granted(ASK({"r", 2}));
    large = pending(ASK({"r", 4}));
    for (int i = 0; i < 100; i++)
        assert_int_equal(try_acquire(ASK({"r", 1}), &other), -EAGAIN);
    release(small);
    assert_int_equal(weir_acquisition_result(large), 0);
    release(large);
    world_close();
}

/* Memory */

/* dotnet #124557, gubernator #98: unbounded growth. Unknown keys are remembered up to a bound. */
static void unknown_keys_do_not_pile_up(void **state)
{
    uint64_t blocks = 0;

    (void)state;
    world_limits(SLOT);
    for (uint64_t i = 0; i < (backend->is_remote ? 200 : 1000); i++) {
        char key[32];

        snprintf(key, sizeof(key), "nonsense-%u", (unsigned)i);
        release(granted(ASK({key, 1})));
        if (i == 100)
            blocks = fake_os_live().blocks; /* their bytes are rounded as the allocator likes */
    }
    assert_int_equal(fake_os_live().blocks, blocks);
    assert_int_equal(world.logged, 65); /* 64 keys, and that there will be no more */
    world_close();
}

/* What was used once is used again. */
static void a_busy_program_does_not_grow(void **state)
{
    weir_acquisition *held[100];
    uint64_t blocks = 0;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 50 }");
    for (uint64_t turn = 0; turn < rounds(60); turn++) {
        for (int i = 0; i < 100; i++)
            held[i] = i < 50 ? granted(NULL) : pending(NULL);
        for (int i = 0; i < 100; i++)
            release(held[(i * 37) % 100]);
        if (turn == 0)
            blocks = fake_os_live().blocks; /* their bytes are rounded as the allocator likes */
    }
    assert_int_equal(fake_os_live().blocks, blocks);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_timeout_racing_a_grant_does_not_lose_the_permit),
        leak_checked_test(timeouts_and_grants_of_threads_lose_nothing),
        leak_checked_test(a_release_without_an_update_gives_the_resource_back),
        leak_checked_test(releasing_a_failed_try_does_not_inflate_capacity),
        leak_checked_test(a_negative_amount_mints_nothing),
        leak_checked_test(a_huge_overuse_that_is_charged_mints_nothing),
        leak_checked_test(a_chain_of_cancels_gives_back_exactly_what_was_taken),
        leak_checked_test(a_chain_of_refunds_gives_back_exactly_what_was_taken),
        leak_checked_test(a_waiter_that_gives_up_takes_nothing_along),
        leak_checked_test(a_denied_request_is_charged_nowhere),
        leak_checked_test(reserve_then_settle),
        leak_checked_test(the_rate_configured_is_the_rate_given),
        leak_checked_test(one_per_second_is_one_per_second),
        leak_checked_test(a_limit_of_zero_is_refused_by_the_configuration),
        leak_checked_test(long_idleness_overflows_nothing),
        leak_checked_test(two_centuries_of_idleness_are_forgotten),
        leak_checked_test(frequent_looks_do_not_slow_the_drain),
        leak_checked_test(a_stale_reading_mints_nothing),
        leak_checked_test(a_step_back_of_the_wall_clock_loses_nothing),
        leak_checked_test(retry_after_is_right_behind_waiters_too),
        leak_checked_test(canceling_the_head_rechecks_all_that_it_held_up),
        leak_checked_test(a_release_wakes_one),
        leak_checked_test(timeouts_do_not_overshoot),
        leak_checked_test(a_large_request_is_not_starved),
        leak_checked_test(unknown_keys_do_not_pile_up),
        leak_checked_test(a_busy_program_does_not_grow),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

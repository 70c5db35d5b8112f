/* SPDX-License-Identifier: MIT */
/* Counters: every field of weir_set_stats and weir_limit_stats; the histogram; holders. */
#include "lib/world.h"
#include "limit/counters.h"
#include <pthread.h>

#define RATE "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s }"
#define CALL "{ type: call, algorithm: gcra, capacity: 6, window: 6s }"
#define SLOT "{ type: resource, key: r, capacity: 2 }"

static void a_new_set_has_counted_nothing(void **state)
{
    static const struct weir_set_stats none = {.size = sizeof(none)};
    struct weir_set_stats s;

    (void)state;
    world_limits(RATE "," CALL "," SLOT);
    s = stats();
    assert_memory_equal(&s, &none, sizeof(s));
    world_close();
}

static void limits_describe_themselves(void **state)
{
    struct picture p;

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s,"
                 " burst: 4 }," CALL "," SLOT);
    p = picture();
    assert_int_equal(p.limits[0].type, WEIR_LIMIT_RATE);
    assert_string_equal(p.limits[0].key, "k");
    assert_string_equal(p.limits[0].algorithm, "token_bucket");
    assert_int_equal(p.limits[0].capacity, 4);
    assert_int_equal(p.limits[0].available, 4);
    assert_int_equal(p.limits[1].type, WEIR_LIMIT_CALL);
    assert_string_equal(p.limits[1].key, "call_count");
    assert_string_equal(p.limits[1].algorithm, "gcra");
    assert_int_equal(p.limits[1].capacity, 6);
    assert_int_equal(p.limits[2].type, WEIR_LIMIT_RESOURCE);
    assert_string_equal(p.limits[2].key, "r");
    assert_null(p.limits[2].algorithm);
    assert_int_equal(p.limits[2].capacity, 2);
    assert_int_equal(weir_set_limits(world.set), 3);
    world_close();
}

/* Each counter moves by what happened, and no other does. */
static void every_counter_counts_its_own(void **state)
{
    struct weir_set_stats expected = {.size = sizeof(expected)}, s;
    weir_acquisition *a, *b, *c = NULL;

    (void)state;
    world_set("max_waiters: 1, limits: [ " RATE "," CALL "," SLOT " ]");
    a = granted(ASK({"k", 10}, {"call_count", 2}));
    expected.granted++, expected.held++;
    assert_int_equal(take(ASK({"call_count", 1}, {"r", 0})), 0);
    expected.granted++, expected.taken++;
    assert_int_equal(try_acquire(ASK({"k", 1}), &c), -EAGAIN);
    assert_int_equal(take(ASK({"k", 1}, {"r", 0})), -EAGAIN);
    expected.refused_busy += 2;
    assert_int_equal(submit(with_max_wait(ASK({"k", 2}), 1), &c), -EAGAIN);
    expected.refused_max_wait++;
    b = pending(with_timeout(ASK({"r", 2}), 5));
    assert_int_equal(submit(ASK({"r", 1}), &c), -ENOBUFS);
    expected.refused_full++;
    expected.waiting++;
    assert_int_equal(take(ASK({"k", 11}, {"r", 0})), -ERANGE);
    expected.refused_impossible++;
    assert_int_equal(take(strict(ASK({"x", 1}))), -ENOENT);
    expected.refused_unknown++;
    s = stats();
    assert_memory_equal(&s, &expected, sizeof(s));

    advance(5);
    expected.timed_out++;
    release(b);
    b = pending(with_max_wait(ASK({"r", 2}), 5));
    advance(5);
    expected.refused_max_wait++;
    release(b);
    b = pending(ASK({"r", 2}));
    assert_int_equal(weir_cancel(b), 0);
    expected.canceled++;
    release(b);
    b = pending(ASK({"r", 2}));
    release(b);
    expected.canceled++;
    expected.waiting--;
    s = stats();
    assert_memory_equal(&s, &expected, sizeof(s));

    b = pending(ASK({"r", 2}));
    assert_int_equal(weir_update(a, "k", 12), 0); /* and the call's update is missing */
    world.now += 3000;
    release_expecting(a, -EPROTO);
    expected.released++, expected.overused++, expected.missing_update++;
    expected.granted++, expected.granted_waited++;
    expected.wait_histogram[2]++, expected.wait_ns_sum += 3000, expected.wait_ns_max = 3000;
    assert_int_equal(weir_acquisition_result(b), 0);
    s = stats();
    assert_memory_equal(&s, &expected, sizeof(s));
    release(b);
    advance(SECOND);
    a = granted(ASK({"k", 1}));
    release_used(a, "k", 0);
    expected.granted++, expected.released += 2, expected.refunded++;
    expected.held--;
    s = stats();
    assert_memory_equal(&s, &expected, sizeof(s));
    world_close();
}

static void limits_count_units(void **state)
{
    struct weir_limit_stats l;
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_limits(RATE "," CALL "," SLOT);
    a = granted(ASK({"k", 7}, {"call_count", 3}, {"r", 2}));
    assert_int_equal(limit_stats(0).granted, 7);
    assert_int_equal(limit_stats(1).granted, 3);
    assert_int_equal(limit_stats(2).granted, 2);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(2).held, 2);
    assert_int_equal(limit_stats(2).available, 0);
    assert_int_equal(try_acquire(ASK({"r", 1}), &b), -EAGAIN);
    l = limit_stats(2);
    assert_int_equal(l.refused, 1);
    assert_int_equal(weir_update(a, "k", 9), 0);
    assert_int_equal(weir_update(a, "call_count", 1), 0);
    release(a);
    assert_int_equal(limit_stats(0).overused, 2);
    assert_int_equal(limit_stats(0).refunded, 0);
    assert_int_equal(limit_stats(1).refunded, 2);
    assert_int_equal(limit_stats(1).overused, 0);
    assert_int_equal(limit_stats(2).refunded, 0); /* rates and calls refund; it was held */
    assert_int_equal(limit_stats(2).held, 0);
    world_close();
}

/* Bucket i holds waits below 2^i µs, the last all others. */
static void the_histogram_counts_by_powers_of_two(void **state)
{
    static const uint64_t waits_ns[] = {0, 999, 1000, 1999, 2000, 3999, 4000, 1023999, 1024000};
    static const unsigned buckets[] = {0, 0, 1, 1, 2, 2, 3, 10, 11};
    struct weir_set_stats before, after;
    uint64_t sum = 0;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 1 }");
    for (size_t i = 0; i < sizeof(waits_ns) / sizeof(*waits_ns); i++) {
        weir_acquisition *a = granted(NULL), *b = pending(NULL);

        before = stats();
        world.now += waits_ns[i];
        release(a);
        after = stats();
        before.wait_histogram[buckets[i]]++;
        assert_memory_equal(before.wait_histogram, after.wait_histogram,
                            sizeof(before.wait_histogram));
        sum += waits_ns[i];
        assert_int_equal(after.wait_ns_sum, sum);
        assert_int_equal(after.wait_ns_max, waits_ns[i]);
        assert_int_equal(weir_acquisition_result(b), 0);
        release(b);
    }
    world_close();
}

static void the_last_bucket_holds_all_others(void **state)
{
    struct counters *counters = calloc(1, sizeof(*counters));

    (void)state;
    assert_non_null(counters);
    counters_add_wait(counters, (UINT64_C(1) << 30) * 1000 - 1);
    assert_int_equal(counters->wait_histogram[30], 1);
    counters_add_wait(counters, (UINT64_C(1) << 30) * 1000);
    counters_add_wait(counters, (UINT64_C(1) << 31) * 1000);
    counters_add_wait(counters, UINT64_MAX);
    assert_int_equal(counters->wait_histogram[31], 3);
    assert_int_equal(counters->granted_waited, 4);
    assert_int_equal(counters->wait_ns_max, UINT64_MAX);
    counters_add_wait(counters, 5);
    assert_int_equal(counters->wait_ns_max, UINT64_MAX);
    free(counters);
}

static void *take_100(void *unused)
{
    for (int i = 0; i < 100; i++)
        assert_int_equal(weir_take(world.pool, ASK({"k", 1}), NULL), 0);
    return unused;
}

static void counters_of_all_threads_add_up(void **state)
{
    pthread_t threads[4];

    (void)state;
    world_limits("{ type: rate, key: k, algorithm: gcra, capacity: 1000, window: 10s }");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_100, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(stats().granted, 400);
    assert_int_equal(stats().taken, 400);
    assert_int_equal(limit_stats(0).granted, 400);
    assert_int_equal(available(0), 600);
    world_close();
}

static void sizes_and_counts_are_checked(void **state)
{
    struct weir_set_stats s = {.size = sizeof(s) - 1};
    struct weir_limit_stats limits[3] = {{.granted = 77}, {.granted = 77}, {.granted = 77}};

    (void)state;
    world_limits(RATE "," SLOT);
    assert_int_equal(weir_set_stats(world.set, &s, NULL, 0), -EINVAL);
    assert_int_equal(weir_set_stats(world.set, NULL, NULL, 0), -EINVAL);
    s.size = sizeof(s);
    assert_int_equal(weir_set_stats(world.set, &s, NULL, 1), -EINVAL);
    assert_int_equal(weir_set_stats(world.set, &s, NULL, 0), 2);
    assert_int_equal(weir_set_stats(world.set, &s, limits, 1), 2);
    assert_int_equal(limits[0].granted, 0);
    assert_int_equal(limits[1].granted, 77);
    assert_int_equal(weir_set_stats(world.set, &s, limits, 3), 2);
    assert_int_equal(limits[1].granted, 0);
    assert_int_equal(limits[2].granted, 77);
    world_close();
}

static void available_follows_the_clock(void **state)
{
    (void)state;
    world_limits(RATE);
    assert_int_equal(take(ASK({"k", 10})), 0);
    world.now += SECOND - 1;
    assert_int_equal(available(0), 0);
    world.now += 1;
    assert_int_equal(available(0), 1);
    world.now += 100 * SECOND;
    assert_int_equal(available(0), 10);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_new_set_has_counted_nothing),
        leak_checked_test(limits_describe_themselves),
        leak_checked_test(every_counter_counts_its_own),
        leak_checked_test(limits_count_units),
        leak_checked_test(the_histogram_counts_by_powers_of_two),
        leak_checked_test(the_last_bucket_holds_all_others),
        leak_checked_test(counters_of_all_threads_add_up),
        leak_checked_test(sizes_and_counts_are_checked),
        leak_checked_test(available_follows_the_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

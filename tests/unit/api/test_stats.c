/* SPDX-License-Identifier: MIT */
/* Counters: every field of weir_set_stats and weir_limit_stats; the histograms of waits and holds.
 */
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

#define RELEASES_COUNTED(s) counted((s).hold_histogram)

static uint64_t counted(const uint64_t *histogram)
{
    uint64_t n = 0;

    for (int i = 0; i < WEIR_WAIT_BUCKETS; i++)
        n += histogram[i];
    return n;
}

/* By the fast path's kinds of sets, by one with several limits, and by one with subjects. */
static const char *const held_sets[] = {
    SLOT,
    CALL,
    CALL "," SLOT,
};

static struct weir_request *of_a_subject(struct weir_request *request)
{
    request->subject = "s";
    request->subject_size = 1;
    return request;
}

/* Each time from a grant to its release is in one bucket, to the nanosecond in the sum: at once, as
 * well, where a decision needs no clock. */
static void holds_are_counted_from_grant_to_release(void **state)
{
    static const uint64_t holds_ns[] = {0, 999, 1000, 4000, 1024000, 3 * SECOND};
    static const unsigned buckets[] = {0, 0, 1, 3, 11, 22};
    char fields[512];

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct weir_set_stats before;
        uint64_t sum = 0;

        snprintf(fields, sizeof(fields), "hold_histogram: true, %slimits: [ %s ]",
                 i % 2 ? "subjects: { max: 10 }, " : "", held_sets[i / 2]);
        world_set(fields);
        for (size_t j = 0; j < sizeof(buckets) / sizeof(*buckets); j++) {
            weir_acquisition *a = granted(of_a_subject(ASK_DEFAULTS));

            before = stats();
            world.now += holds_ns[j];
            sum += holds_ns[j];
            release(a);
            before.hold_histogram[buckets[j]]++;
            assert_memory_equal(before.hold_histogram, stats().hold_histogram,
                                sizeof(before.hold_histogram));
            assert_int_equal(stats().hold_ns_sum, sum);
            assert_int_equal(stats().hold_ns_max, holds_ns[j]);
            advance(6 * SECOND);
        }
        world_close();
    }
}

/* A waiter's hold begins with its grant. */
static void a_hold_does_not_include_the_wait(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_set("hold_histogram: true, limits: [ { type: resource, key: r, capacity: 1 } ]");
    a = granted(NULL);
    b = pending(NULL);
    world.now += 5000;
    release(a);
    world.now += 300;
    assert_int_equal(weir_acquisition_result(b), 0);
    release(b);
    assert_int_equal(stats().hold_ns_sum, 5300);
    assert_int_equal(stats().hold_ns_max, 5000);
    world_close();
}

/* What was not held for work is not counted; nor is anything of a set that does not say so. */
static void only_holds_are_counted(void **state)
{
    weir_acquisition *a, *b;
    uint64_t at_ns;

    (void)state;
    world_set("hold_histogram: true, limits: [ " CALL "," SLOT " ]");
    assert_int_equal(take(ASK({"r", 0})), 0);
    a = granted(ASK({"r", 2}));
    b = pending(ASK({"r", 1}));
    release(b);
    b = pending(ASK({"r", 1}));
    world.now += 1000;
    release(a); /* counts */
    release(b); /* undone: its grant was not seen */
    a = granted(ASK({"r", 0}, {"call_count", 0}));
    release(a); /* of nothing */
    assert_int_equal(reserve(ASK({"r", 0}, {"call_count", 6}), &a, &at_ns), 0);
    release_used(a, "call_count", 6); /* before its time: it counts, as held for no time */
    assert_int_equal(RELEASES_COUNTED(stats()), 2);
    assert_int_equal(stats().hold_histogram[0], 1);
    assert_int_equal(stats().hold_ns_sum, 1000);
    world_close();

    world_limits(SLOT);
    a = granted(NULL);
    world.now += 1000;
    release(a);
    assert_int_equal(RELEASES_COUNTED(stats()), 0);
    assert_int_equal(stats().hold_ns_sum, 0);
    world_close();
}

/* What a part leaves is held on, from the same grant. */
static void a_part_that_returns_early_counts_with_the_rest(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_set("hold_histogram: true, limits: [ " SLOT " ]");
    a = granted(ASK({"r", 2}));
    world.now += 100;
    assert_int_equal(weir_return(a, "r", 1), 0);
    world.now += 100;
    release(a);
    assert_int_equal(RELEASES_COUNTED(stats()), 1);
    assert_int_equal(stats().hold_ns_sum, 200);
    world_close();
}

/* A process that counts shares a set with one that does not; both see what was counted. */
static void each_process_counts_for_itself(void **state)
{
    static const char *const texts[] = {
        "version: 1\nsets: { main: { backend: process, limits: [ " SLOT " ] } }",
        "version: 1\nsets: { main: { backend: process, hold_histogram: true, limits: [ " SLOT
        " ] } }"};
    struct weir_set_stats seen = {.size = sizeof(seen)};
    struct weir_options options = {.size = sizeof(options), .text = texts[0]};
    weir_acquisition *a = NULL;
    weir_pool *pool;
    weir *w;

    (void)state;
    world_start = 0;
    world_open(texts[1], "main");
    world_start = START;
    options.process_dir = world_directory();
    release(granted(NULL)); /* before the other: its clock is ahead */
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &a, NULL), 0);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(weir_set_stats(weir_pool_set(pool, 0), &seen, NULL, 0), 1);
    assert_int_equal(seen.released, 2);
    assert_int_equal(RELEASES_COUNTED(seen), 1);
    assert_int_equal(RELEASES_COUNTED(stats()), 1);
    weir_pool_close(pool);
    weir_close(w);
    world_close();
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
        leak_checked_test(holds_are_counted_from_grant_to_release),
        leak_checked_test(a_hold_does_not_include_the_wait),
        leak_checked_test(only_holds_are_counted),
        leak_checked_test(a_part_that_returns_early_counts_with_the_rest),
        leak_checked_test(each_process_counts_for_itself),
        leak_checked_test(counters_of_all_threads_add_up),
        leak_checked_test(sizes_and_counts_are_checked),
        leak_checked_test(available_follows_the_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

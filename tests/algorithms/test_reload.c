/* SPDX-License-Identifier: MIT */
/*
 * Reload: parameters change, the state is carried over.
 */
#include "cmocka_all.h"
#include "subject.h"

#define START (12345 * SECOND + 678)

static const char *const buckets[] = {"token_bucket", "gcra", NULL};

static void test_a_bucket_keeps_its_level(void **state)
{
    (void)state;
    for (const char *const *name = buckets; *name; name++) {
        struct subject old, more, less;
        SUBJECT(&old, START, *name, {"capacity", 10}, {"window", SECOND});
        SUBJECT(&more, 0, *name, {"capacity", 3}, {"window", SECOND}, {"burst", 100});
        SUBJECT(&less, 0, *name, {"capacity", 4}, {"window", SECOND});
        assert_true(subject_request(&old, START, 3));
        subject_reconfigure(&more, &old, START + 50 * MS); /* 7.5 */
        assert_int_equal(subject_available(&more, START + 50 * MS), 7);
        assert_int_equal(subject_ready_at(&more, START + 50 * MS, 8), START + 50 * MS + 166666667);
        subject_reconfigure(&less, &old, START + 50 * MS);
        assert_int_equal(subject_available(&less, START + 50 * MS), 4);
        assert_true(subject_request(&less, START + 50 * MS, 4));
        assert_int_equal(subject_ready_at(&less, START + 50 * MS, 1), START + 300 * MS);
        subject_free(&old);
        subject_free(&more);
        subject_free(&less);
    }
}

static void test_a_debt_is_carried_and_cut(void **state)
{
    (void)state;
    for (const char *const *name = buckets; *name; name++) {
        struct subject old, to;
        SUBJECT(&old, START, *name, {"capacity", 10}, {"window", SECOND});
        SUBJECT(&to, 0, *name, {"capacity", 5}, {"window", SECOND});
        subject_charge(&old, START, 13);
        subject_reconfigure(&to, &old, START);
        assert_int_equal(subject_ready_at(&to, START, 1), START + 800 * MS);
        subject_charge(&old, START, 1000);
        subject_reconfigure(&to, &old, START);
        assert_int_equal(subject_ready_at(&to, START, 1), START + 1200 * MS);
        subject_free(&old);
        subject_free(&to);
    }
}

/* Rounding, where there is any, is against the limit's favor by less than one unit. */
static void test_a_reload_mints_nothing(void **state)
{
    (void)state;
    for (const char *const *name = buckets; *name; name++) {
        struct subject odd, even;
        SUBJECT(&odd, START, *name, {"capacity", 7}, {"window", 1000003});
        SUBJECT(&even, 0, *name, {"capacity", 10}, {"window", SECOND});
        assert_true(subject_request(&odd, START, 7));
        uint64_t now = START + 500000; /* 3.4999… */
        uint64_t level = subject_available(&odd, now),
                 next = subject_ready_at(&odd, now, level + 1);
        for (int i = 0; i < 100; i++) {
            subject_reconfigure(&even, &odd, now);
            assert_int_equal(subject_available(&even, now), level);
            subject_reconfigure(&odd, &even, now);
        }
        assert_int_equal(subject_available(&odd, now), level);
        assert_in_range(subject_ready_at(&odd, now, level + 1), next, next + 200);
        subject_free(&odd);
        subject_free(&even);
    }
}

static void test_steps_go_on_from_creation(void **state)
{
    (void)state;
    struct subject old, to;
    SUBJECT(&old, START, "token_bucket", {"capacity", 10}, {"window", 10 * SECOND},
            {"every", 5 * SECOND});
    SUBJECT(&to, 0, "token_bucket", {"capacity", 10}, {"window", 10 * SECOND},
            {"every", 4 * SECOND});
    assert_true(subject_request(&old, START + 6 * SECOND, 10));
    subject_reconfigure(&to, &old, START + 7 * SECOND);
    assert_int_equal(subject_ready_at(&to, START + 7 * SECOND, 1), START + 8 * SECOND);
    subject_free(&old);
    subject_free(&to);
}

static void test_a_leaky_bucket_keeps_its_level(void **state)
{
    (void)state;
    struct subject old, half, queue;
    SUBJECT(&old, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND});
    SUBJECT(&half, 0, "leaky_bucket", {"capacity", 5}, {"window", SECOND});
    SUBJECT(&queue, 0, "leaky_bucket", {"capacity", 5}, {"window", SECOND}, {"mode", 1});
    assert_true(subject_request(&old, START, 8));
    subject_reconfigure(&half, &old, START + 400 * MS); /* 4 of 5 */
    assert_int_equal(subject_available(&half, START + 400 * MS), 1);
    subject_reconfigure(&queue, &old, START + 400 * MS);
    assert_int_equal(subject_ready_at(&queue, START + 400 * MS, 1), START + 1200 * MS);
    subject_reconfigure(&half, &old, START); /* 8: cut to 5 */
    assert_int_equal(subject_available(&half, START), 0);
    assert_int_equal(subject_ready_at(&half, START, 1), START + 200 * MS);
    subject_free(&old);
    subject_free(&half);
    subject_free(&queue);
}

/* The ends of its sub-windows are no whole nanoseconds: they are not put off at each reload. */
static void test_sub_windows_stay_where_they_are(void **state)
{
    const uint64_t window = 31559;
    struct subject old, same;

    (void)state;
    SUBJECT(&old, START, "sliding_window", {"capacity", 1}, {"window", window}, {"segments", 60});
    SUBJECT(&same, 0, "sliding_window", {"capacity", 1}, {"window", window}, {"segments", 60});
    for (uint64_t now = START, i = 0; i < 1000; i++) {
        uint64_t ready;

        now = subject_ready_at(&old, now, 1) + 7 * i;
        assert_true(subject_request(&old, now, 1));
        ready = subject_ready_at(&old, now, 1);
        subject_reconfigure(&same, &old, now + window / 2);
        assert_int_equal(subject_ready_at(&same, now + window / 2, 1), ready);
    }
    subject_free(&old);
    subject_free(&same);
}

static void test_a_sliding_window_keeps_its_log(void **state)
{
    (void)state;
    struct subject old, small, coarse;
    SUBJECT(&old, START, "sliding_window", {"capacity", 10}, {"window", SECOND});
    SUBJECT(&small, 0, "sliding_window", {"capacity", 2}, {"window", SECOND});
    SUBJECT(&coarse, 0, "sliding_window", {"capacity", 10}, {"window", SECOND}, {"segments", 4});
    for (uint64_t i = 0; i < 6; i++)
        assert_true(subject_request(&old, START + i * MS, 1));
    uint64_t now = START + 10 * MS;
    subject_reconfigure(&small, &old, now); /* 6 in 2 places: the five oldest as the fifth */
    assert_int_equal(subject_available(&small, now), 0);
    assert_int_equal(subject_ready_at(&small, now, 1), START + SECOND + 4 * MS);
    assert_int_equal(subject_ready_at(&small, now, 2), START + SECOND + 5 * MS);
    subject_reconfigure(&coarse, &old, now);
    assert_int_equal(subject_available(&coarse, now), 4);
    assert_int_equal(subject_ready_at(&coarse, now, 5), 12346250 * MS);
    subject_reconfigure(&old, &coarse, now); /* known by now: they were granted by now */
    assert_int_equal(subject_ready_at(&old, now, 5), now + SECOND);
    subject_free(&old);
    subject_free(&small);
    subject_free(&coarse);
}

/* When a window began that has counted nothing yet must not show: a subject could be forgotten. */
static void test_an_epoch_window_begins_with_its_first_grant(void **state)
{
    (void)state;
    struct subject old, to;
    SUBJECT(&old, START, "fixed_window", {"capacity", 2}, {"window", 1000 * SECOND}, {"anchor", 2});
    SUBJECT(&to, 0, "fixed_window", {"capacity", 1}, {"window", 2 * SECOND});
    assert_true(subject_request(&old, START + SECOND, 1));
    assert_true(subject_request(&old, START + 2 * SECOND, 1));
    subject_reconfigure(&to, &old, START + 2 * SECOND);
    assert_int_equal(subject_ready_at(&to, START + 2 * SECOND, 1), START + 3 * SECOND);
    subject_free(&old);
    subject_free(&to);
}

static void test_a_fixed_window_keeps_its_count(void **state)
{
    (void)state;
    struct subject old, longer, smaller, grid;
    SUBJECT(&old, START, "fixed_window", {"capacity", 10}, {"window", SECOND});
    SUBJECT(&longer, 0, "fixed_window", {"capacity", 10}, {"window", 2 * SECOND});
    SUBJECT(&smaller, 0, "fixed_window", {"capacity", 5}, {"window", SECOND});
    SUBJECT(&grid, 0, "fixed_window", {"capacity", 10}, {"window", 700 * MS}, {"anchor", 1});
    assert_true(subject_request(&old, START + 100 * MS, 7));
    uint64_t now = START + 800 * MS;
    subject_reconfigure(&longer, &old, now);
    assert_int_equal(subject_available(&longer, now), 3);
    assert_int_equal(subject_ready_at(&longer, now, 4), START + 2100 * MS);
    subject_reconfigure(&smaller, &old, now);
    assert_int_equal(subject_available(&smaller, now), 0);
    assert_int_equal(subject_available(&smaller, START + 1100 * MS), 5);
    subject_reconfigure(&grid, &old, now);
    assert_int_equal(subject_available(&grid, now), 3);
    assert_int_equal(subject_available(&grid, START + 1400 * MS), 10);
    subject_free(&old);
    subject_free(&longer);
    subject_free(&smaller);
    subject_free(&grid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bucket_keeps_its_level),
        cmocka_unit_test(test_a_debt_is_carried_and_cut),
        cmocka_unit_test(test_a_reload_mints_nothing),
        cmocka_unit_test(test_steps_go_on_from_creation),
        cmocka_unit_test(test_a_leaky_bucket_keeps_its_level),
        cmocka_unit_test(test_sub_windows_stay_where_they_are),
        cmocka_unit_test(test_a_sliding_window_keeps_its_log),
        cmocka_unit_test(test_a_fixed_window_keeps_its_count),
        cmocka_unit_test(test_an_epoch_window_begins_with_its_first_grant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* token_bucket and gcra on the cases that other limiters got wrong. What is true of both is asked
 * of both; `every` is token_bucket's, the one-word form gcra's. */
#include "cmocka_all.h"
#include "subject.h"
#include <string.h>

#define START (12345 * SECOND + 678)

static const char *const both[] = {"token_bucket", "gcra"};

#define FOR_BOTH(name) for (size_t i_ = 0; i_ < 2 && ((name) = both[i_]) != NULL; i_++)

/*
 * After the burst, the k-th unit comes k·W/C later, at the first whole ns that is not early,
 * however many there were: so exactly `capacity` per window, without drift.
 */
static void check_rate(const char *algorithm, uint64_t capacity, uint64_t window, uint64_t units)
{
    struct subject subject;
    uint64_t now = START;
    SUBJECT(&subject, START, algorithm, {"capacity", capacity}, {"window", window});
    assert_true(subject_request(&subject, START, capacity));
    for (uint64_t k = 1; k <= units; k++) {
        now = subject_ready_at(&subject, now, 1);
        assert_int_equal(now, START + (k * window + capacity - 1) / capacity);
        assert_true(subject_request(&subject, now, 1));
    }
    subject_free(&subject);
}

static void test_rates_are_exact(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        check_rate(name, 1, SECOND, 50);
        check_rate(name, 3000, SECOND, 9000);
        check_rate(name, 1001, SECOND, 9000);
        check_rate(name, 999983, SECOND, 20000);
        check_rate(name, 1000000000, SECOND, 20000);
        check_rate(name, 7, 22, 20000);
        check_rate(name, 1, DAY, 400);
        check_rate(name, 3, 60 * SECOND, 300);
    }
}

static void test_a_full_bucket_grants_its_burst_and_no_more(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 10}, {"window", SECOND}, {"burst", 25});
        assert_int_equal(subject.footprint.amount_max, 25);
        assert_int_equal(subject_available(&subject, START), 25);
        assert_true(subject_ready_at(&subject, START, 26) == WEIR_NEVER);
        assert_true(subject_request(&subject, START, 25));
        assert_int_equal(subject_available(&subject, START), 0);
        assert_int_equal(subject_ready_at(&subject, START, 0), START);
        assert_int_equal(subject_ready_at(&subject, START, 1), START + 100 * MS);
        assert_int_equal(subject_ready_at(&subject, START, 25), START + 2500 * MS);
        assert_int_equal(subject_ready_at(&subject, START + 100 * MS - 1, 1), START + 100 * MS);
        assert_int_equal(subject_available(&subject, START + 100 * MS - 1), 0);
        assert_int_equal(subject_available(&subject, START + 100 * MS), 1);
        subject_free(&subject);
    }
}

static void test_one_per_day(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 1}, {"window", DAY});
        assert_true(subject_request(&subject, START, 1));
        for (uint64_t hour = 1; hour < 24; hour++) /* looking often does not put it off */
            assert_int_equal(subject_ready_at(&subject, START + hour * 3600 * SECOND, 1),
                             START + DAY);
        assert_false(subject_request(&subject, START + DAY - 1, 1));
        assert_true(subject_request(&subject, START + DAY, 1));
        subject_free(&subject);
    }
}

static void test_a_billion_per_second(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 1000000000}, {"window", SECOND});
        assert_true(subject_request(&subject, START, 1000000000));
        assert_int_equal(subject_available(&subject, START + 1), 1);
        assert_int_equal(subject_available(&subject, START + 999999999), 999999999);
        assert_int_equal(subject_available(&subject, START + 300 * YEAR), 1000000000);
        subject_free(&subject);
    }
}

static void test_a_rate_that_does_not_divide(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 999983}, {"window", SECOND});
        assert_true(subject_request(&subject, START, 999983));
        assert_int_equal(subject_ready_at(&subject, START, 1), START + 1001); /* 1000.017… ns */
        assert_int_equal(subject_ready_at(&subject, START, 58823), START + 58824001); /* .0000… */
        assert_int_equal(subject_available(&subject, START + SECOND - 1), 999982);
        assert_int_equal(subject_available(&subject, START + SECOND), 999983);
        subject_free(&subject);
    }
}

static void test_idle_for_years(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, 0, name, {"capacity", 999983}, {"window", SECOND});
        assert_true(subject_request(&subject, 0, 999983));
        uint64_t now = 140 * YEAR;
        assert_int_equal(subject_available(&subject, now), 999983);
        assert_true(subject_request(&subject, now, 999983));
        assert_int_equal(subject_available(&subject, now), 0);
        assert_int_equal(subject_ready_at(&subject, now, 999983), now + SECOND);
        subject_free(&subject);
    }
}

static void test_the_extremes(void **state)
{
    (void)state;
    const uint64_t most = INT64_MAX, longest = UINT64_C(1) << 62;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, 0, name, {"capacity", most}, {"window", 1});
        assert_true(subject_request(&subject, WEIR_INSTANT_MAX, most));
        assert_int_equal(subject_available(&subject, WEIR_INSTANT_MAX), 0);
        assert_true(subject_ready_at(&subject, WEIR_INSTANT_MAX, 1) == WEIR_NEVER);
        subject_free(&subject);

        SUBJECT(&subject, 0, name, {"capacity", 1}, {"window", longest}, {"burst", most});
        assert_true(subject_request(&subject, 0, most));
        subject_charge(&subject, 0, UINT64_MAX);
        assert_int_equal(subject_ready_at(&subject, 0, 1), WEIR_INSTANT_MAX); /* beyond the end */
        assert_int_equal(subject_available(&subject, WEIR_INSTANT_MAX), 0);
        subject_refund(&subject, 0, most, 0);
        assert_int_equal(subject_available(&subject, 0), 0);
        assert_int_equal(subject_ready_at(&subject, 0, 1), longest);
        subject_refund(&subject, 0, most, 0);
        assert_int_equal(subject_available(&subject, 0), most);
        subject_free(&subject);
    }
}

static void test_a_chain_of_cancels_is_exact(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 7}, {"window", SECOND});
        assert_true(subject_request(&subject, START, 7));
        uint64_t promised = subject_ready_at(&subject, START, 7);
        uint64_t now = START + 142857142; /* 1/7 s and a bit less: nothing is there yet */
        for (uint64_t i = 0; i < 100000; i++) {
            subject_refund(&subject, now, 1 + i % 6, START);
            assert_true(subject_request(&subject, now, 1 + i % 6));
        }
        assert_int_equal(subject_ready_at(&subject, now, 7), promised);
        assert_int_equal(promised, START + SECOND);
        subject_free(&subject);
    }
}

static void test_a_refund_does_not_overflow_the_bucket(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 10}, {"window", SECOND});
        assert_true(subject_request(&subject, START, 4));
        subject_refund(&subject, START + 200 * MS, 4, START); /* 8 are there, 4 come back */
        assert_int_equal(subject_available(&subject, START + 200 * MS), 10);
        assert_true(subject_request(&subject, START + 200 * MS, 10));
        assert_int_equal(subject_ready_at(&subject, START + 200 * MS, 1), START + 300 * MS);
        subject_free(&subject);
    }
}

static void test_a_debt_is_no_deeper_than_the_bucket(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 10}, {"window", SECOND});
        subject_charge(&subject, START, 13);
        assert_int_equal(subject_available(&subject, START), 0);
        assert_int_equal(subject_ready_at(&subject, START, 1), START + 400 * MS);
        subject_charge(&subject, START, 1000);
        assert_int_equal(subject_ready_at(&subject, START, 1), START + 1100 * MS);
        assert_int_equal(subject_ready_at(&subject, START, 0), START);
        subject_free(&subject);
    }
}

static void test_initial(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject;
        SUBJECT(&subject, START, name, {"capacity", 10}, {"window", SECOND}, {"initial", 3});
        assert_int_equal(subject_available(&subject, START), 3);
        assert_int_equal(subject_ready_at(&subject, START, 4), START + 100 * MS);
        subject_free(&subject);
        REFUSED(name, "initial", "at most the burst", {"capacity", 10}, {"window", SECOND},
                {"burst", 5}, {"initial", 6});
    }
}

static void test_a_clock_that_goes_back(void **state)
{
    (void)state;
    const char *name;
    FOR_BOTH(name)
    {
        struct subject subject; /* 999983 per s: gcra's wide form, which knows the last instant */
        SUBJECT(&subject, START, name, {"capacity", 999983}, {"window", SECOND});
        assert_true(subject_request(&subject, START, 999983));
        for (uint64_t back = 1; back < START; back *= 3) {
            assert_int_equal(subject_available(&subject, START - back), 0);
            assert_int_equal(subject_ready_at(&subject, START - back, 1), START + 1001);
        }
        subject_refund(&subject, START - SECOND, 5, START);
        assert_int_equal(subject_available(&subject, START - SECOND), 5);
        assert_int_equal(subject_ready_at(&subject, START - SECOND, 5), START - SECOND);
        assert_int_equal(subject_ready_at(&subject, START, 6), START + 1001);
        subject_free(&subject);
    }
}

static void test_gcra_on_one_word(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "gcra", {"capacity", 100}, {"window", 60 * SECOND});
    assert_int_equal(subject.footprint.state, 8);
    assert_true(subject_request(&subject, START, 100));
    /* An earlier reading mints nothing and promises the same instant. */
    assert_int_equal(subject_available(&subject, START - SECOND), 0);
    assert_int_equal(subject_ready_at(&subject, START - SECOND, 1), START + 600 * MS);
    subject_charge(&subject, START, 1000);
    subject_charge(&subject, START - SECOND, 1000);
    assert_int_equal(subject_ready_at(&subject, START, 1), START + 60600 * MS);
    subject_free(&subject);

    SUBJECT(&subject, START, "gcra", {"capacity", 3}, {"window", SECOND});
    assert_int_equal(subject.footprint.state, 24);
    subject_free(&subject);
}

/* One word is exact up to the end of the clock, however long it was idle before. */
static void test_gcra_on_one_word_at_any_time(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0, 1, START, UINT64_C(1) << 61, UINT64_C(1) << 62};
    static const uint64_t later[] = {
        (UINT64_C(1) << 62) - 1,      UINT64_C(1) << 62,
        (UINT64_C(1) << 62) + 1,      (UINT64_C(1) << 62) + (UINT64_C(1) << 60),
        WEIR_CLOCK_MAX - 60 * SECOND, WEIR_CLOCK_MAX};
    struct subject subject;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        for (size_t j = 0; j < sizeof(later) / sizeof(later[0]); j++) {
            uint64_t now = later[j];
            if (now < starts[i] + 120 * SECOND)
                continue;
            SUBJECT(&subject, starts[i], "gcra", {"capacity", 100}, {"window", 60 * SECOND});
            assert_true(subject_request(&subject, starts[i], 100));
            assert_int_equal(subject_available(&subject, now), 100);
            assert_true(subject_is_new(&subject, now));
            for (int grant = 0; grant < 200; grant++) {
                uint64_t ready = subject_ready_at(&subject, now, 1);
                assert_int_equal(ready, grant < 100 ? now : now + 600 * MS);
                if (ready > WEIR_CLOCK_MAX)
                    break;
                now = ready;
                subject_take(&subject, now, 1);
                assert_true(subject.state[0] >> 63 == 0);
            }
            subject_free(&subject);
        }
    }
}

/* The deepest word: the debt at the end of the clock is its largest value. */
static void test_gcra_on_one_word_at_its_widest(void **state)
{
    (void)state;
    const uint64_t depth = UINT64_C(1) << 60;
    struct subject subject;
    SUBJECT(&subject, 0, "gcra", {"capacity", 1}, {"window", depth});
    assert_int_equal(subject.footprint.state, 8);
    assert_true(subject_request(&subject, 0, 1));
    assert_true(subject_request(&subject, WEIR_CLOCK_MAX, 1));
    subject_charge(&subject, WEIR_CLOCK_MAX, UINT64_MAX);
    assert_int_equal(subject.state[0], (UINT64_C(1) << 63) - 1);
    assert_int_equal(subject_check(&subject), 0);
    assert_int_equal(subject_ready_at(&subject, WEIR_CLOCK_MAX, 1), WEIR_CLOCK_MAX + 2 * depth);
    subject_refund(&subject, WEIR_CLOCK_MAX, 1, WEIR_CLOCK_MAX);
    assert_int_equal(subject_ready_at(&subject, WEIR_CLOCK_MAX, 1), WEIR_CLOCK_MAX + depth);
    subject_free(&subject);
    SUBJECT(&subject, 0, "gcra", {"capacity", 1}, {"window", depth + 1});
    assert_int_equal(subject.footprint.state, 24);
    subject_free(&subject);
}

/* Beyond the end of the clock, where only forecasts go, one word grants no more than it can note,
 * and never more than the limit. */
static void test_gcra_on_one_word_beyond_the_clock(void **state)
{
    (void)state;
    static const uint64_t instants[] = {
        WEIR_CLOCK_MAX + 1, (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1,
        UINT64_C(3) << 62,  WEIR_INSTANT_MAX - 1,    WEIR_INSTANT_MAX};
    struct subject subject;
    SUBJECT(&subject, START, "gcra", {"capacity", 100}, {"window", 60 * SECOND});
    for (size_t i = 0; i < sizeof(instants) / sizeof(instants[0]); i++) {
        uint64_t now = instants[i], granted = 0;
        while (granted < 200 && subject_request(&subject, now, 1))
            granted++;
        assert_int_equal(granted, now < (UINT64_C(1) << 63) - 1 ? 100 : 0);
        assert_true(subject_ready_at(&subject, now, 1) > now);
        subject_refund(&subject, now, 1, START);
        subject_charge(&subject, now, 7);
        assert_true(subject.state[0] >> 63 == 0);
        assert_int_equal(subject_check(&subject), 0);
    }
    subject_free(&subject);
}

static void test_refill_in_steps(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "token_bucket", {"capacity", 60}, {"window", 60 * SECOND},
            {"every", 10 * SECOND}, {"burst", 25});
    assert_true(subject_request(&subject, START + 3 * SECOND, 25));
    /* Multiples of 10 s from creation, not from the last grant. */
    assert_int_equal(subject_ready_at(&subject, START + 3 * SECOND, 1), START + 10 * SECOND);
    assert_int_equal(subject_available(&subject, START + 10 * SECOND - 1), 0);
    assert_int_equal(subject_available(&subject, START + 10 * SECOND), 10);
    assert_int_equal(subject_ready_at(&subject, START + 10 * SECOND, 11), START + 20 * SECOND);
    assert_int_equal(subject_available(&subject, START + 29 * SECOND), 20);
    assert_int_equal(subject_available(&subject, START + 30 * SECOND), 25);
    subject_free(&subject);
    REFUSED("token_bucket", "every", "whole number", {"capacity", 10}, {"window", 60 * SECOND},
            {"every", SECOND});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_exact),
        cmocka_unit_test(test_a_full_bucket_grants_its_burst_and_no_more),
        cmocka_unit_test(test_one_per_day),
        cmocka_unit_test(test_a_billion_per_second),
        cmocka_unit_test(test_a_rate_that_does_not_divide),
        cmocka_unit_test(test_idle_for_years),
        cmocka_unit_test(test_the_extremes),
        cmocka_unit_test(test_a_chain_of_cancels_is_exact),
        cmocka_unit_test(test_a_refund_does_not_overflow_the_bucket),
        cmocka_unit_test(test_a_debt_is_no_deeper_than_the_bucket),
        cmocka_unit_test(test_initial),
        cmocka_unit_test(test_a_clock_that_goes_back),
        cmocka_unit_test(test_gcra_on_one_word),
        cmocka_unit_test(test_gcra_on_one_word_at_any_time),
        cmocka_unit_test(test_gcra_on_one_word_at_its_widest),
        cmocka_unit_test(test_gcra_on_one_word_beyond_the_clock),
        cmocka_unit_test(test_refill_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

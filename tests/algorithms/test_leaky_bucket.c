/* SPDX-License-Identifier: MIT */
/* leaky_bucket: the meter and the queue. */
#include "cmocka_all.h"
#include "subject.h"

#define START (12345 * SECOND + 678)

enum { METER, QUEUE };

static void test_meter_fills_and_drains(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND});
    assert_int_equal(subject.footprint.amount_max, 10);
    assert_true(subject_request(&subject, START, 7));
    assert_int_equal(subject_available(&subject, START), 3);
    assert_int_equal(subject_ready_at(&subject, START, 4), START + 100 * MS);
    assert_true(subject_ready_at(&subject, START, 11) == WEIR_NEVER);
    assert_int_equal(subject_ready_at(&subject, START, 10), START + 700 * MS);
    assert_int_equal(subject_available(&subject, START + 700 * MS - 1), 9);
    assert_int_equal(subject_available(&subject, START + 5 * YEAR), 10);
    subject_free(&subject);
}

/* A leak that is cut to whole units, or to whole ns, at every check never comes to an end. */
static void test_frequent_checks_do_not_slow_the_drain(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 7}, {"window", SECOND});
    assert_true(subject_request(&subject, START, 7));
    uint64_t granted = 0, end = START + 3 * SECOND;
    for (uint64_t now = START; now < end; now += 99991) {
        subject_refund(&subject, now, 0, START); /* changes nothing, but writes the state */
        if (subject_request(&subject, now, 1))
            granted++;
    }
    assert_int_equal(granted, 20); /* the 21st comes at the end, exactly */
    assert_int_equal(subject_available(&subject, end - 1), 0);
    assert_int_equal(subject_available(&subject, end), 1);
    subject_free(&subject);
}

static void test_meter_refund_lowers_the_level(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND});
    assert_true(subject_request(&subject, START, 10));
    subject_refund(&subject, START, 4, START);
    assert_int_equal(subject_available(&subject, START), 4);
    subject_refund(&subject, START + 500 * MS, 6, START); /* 1 is left in the bucket */
    assert_int_equal(subject_available(&subject, START + 500 * MS), 10);
    assert_true(subject_request(&subject, START + 500 * MS, 10));
    assert_int_equal(subject_ready_at(&subject, START + 500 * MS, 1), START + 600 * MS);
    subject_free(&subject);
}

static void test_initial(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND}, {"initial", 2});
    assert_int_equal(subject_available(&subject, START), 2);
    assert_int_equal(subject_available(&subject, START + 100 * MS), 3);
    subject_free(&subject);
    REFUSED("leaky_bucket", "initial", "mode shaper", {"capacity", 10}, {"window", SECOND},
            {"initial", 2}, {"mode", QUEUE});
    REFUSED("leaky_bucket", "initial", "at most", {"capacity", 10}, {"window", SECOND},
            {"initial", 11});
}

static void test_queue_never_bursts(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND}, {"mode", QUEUE});
    assert_int_equal(subject_available(&subject, START), 10);
    uint64_t now = START + 5 * DAY; /* nothing is saved up */
    assert_true(subject_request(&subject, now, 3));
    assert_int_equal(subject_available(&subject, now), 0);
    assert_int_equal(subject_ready_at(&subject, now, 1), now + 300 * MS);
    assert_int_equal(subject_ready_at(&subject, now, 10), now + 300 * MS);
    assert_false(subject_request(&subject, now + 300 * MS - 1, 1));
    assert_true(subject_request(&subject, now + 300 * MS, 1));
    assert_false(subject_request(&subject, now + 300 * MS, 1));
    assert_int_equal(subject_ready_at(&subject, now + 300 * MS, 1), now + 400 * MS);
    subject_free(&subject);
}

/* 333 333⅓ ns apart: the k-th unit at the first whole ns that is not early, and no drift. */
static void test_queue_keeps_the_rate_exactly(void **state)
{
    (void)state;
    static const uint64_t rates[][2] = {{3000, SECOND}, {7, 22}, {3, 1}, {1000000007, SECOND}};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        uint64_t capacity = rates[i][0], window = rates[i][1], now = START;
        struct subject subject;
        SUBJECT(&subject, START, "leaky_bucket", {"capacity", capacity}, {"window", window},
                {"mode", QUEUE});
        for (uint64_t k = 0; k < 100000; k++) {
            now = subject_ready_at(&subject, now, 1);
            assert_int_equal(now, START + (k * window + capacity - 1) / capacity);
            subject_take(&subject, now, 1);
        }
        subject_free(&subject);
    }
}

static void test_queue_refund_frees_what_has_not_left(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND}, {"mode", QUEUE});
    assert_true(subject_request(&subject, START, 10)); /* leave at 0, 100, …, 900 ms */
    subject_refund(&subject, START + 250 * MS, 2, START);
    assert_int_equal(subject_ready_at(&subject, START + 250 * MS, 1), START + 800 * MS);
    subject_refund(&subject, START + 300 * MS, 8, START); /* 0 … 300 have left */
    assert_int_equal(subject_ready_at(&subject, START + 300 * MS, 1), START + 400 * MS);
    assert_true(subject_request(&subject, START + 400 * MS, 5));
    subject_refund(&subject, START + 400 * MS, 5, START); /* of the first: its places are gone */
    assert_int_equal(subject_ready_at(&subject, START + 400 * MS, 1), START + 900 * MS);
    subject_free(&subject);
}

static void test_a_clock_that_goes_back(void **state)
{
    (void)state;
    for (uint64_t mode = METER; mode <= QUEUE; mode++) {
        struct subject subject;
        SUBJECT(&subject, START, "leaky_bucket", {"capacity", 10}, {"window", SECOND},
                {"mode", mode});
        assert_true(subject_request(&subject, START, 10));
        uint64_t ready = subject_ready_at(&subject, START, 1);
        assert_int_equal(subject_ready_at(&subject, START - 5 * SECOND, 1), ready);
        assert_int_equal(subject_available(&subject, 0), 0);
        assert_true(subject_request(&subject, ready, 1));
        subject_free(&subject);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meter_fills_and_drains),
        cmocka_unit_test(test_frequent_checks_do_not_slow_the_drain),
        cmocka_unit_test(test_meter_refund_lowers_the_level),
        cmocka_unit_test(test_initial),
        cmocka_unit_test(test_queue_never_bursts),
        cmocka_unit_test(test_queue_keeps_the_rate_exactly),
        cmocka_unit_test(test_queue_refund_frees_what_has_not_left),
        cmocka_unit_test(test_a_clock_that_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* sliding_window and fixed_window. */
#include "cmocka_all.h"
#include "subject.h"

#define START (12345 * SECOND + 678)

enum { FIRST_USE, CREATION, EPOCH };

static void test_sliding_window_is_half_open(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "sliding_window", {"capacity", 3}, {"window", SECOND});
    assert_true(subject_request(&subject, START, 1));
    assert_true(subject_request(&subject, START, 1)); /* the same instant: one entry */
    assert_true(subject_request(&subject, START + 1, 1));
    assert_int_equal(subject_available(&subject, START + 1), 0);
    assert_int_equal(subject_ready_at(&subject, START + 1, 1), START + SECOND);
    assert_int_equal(subject_ready_at(&subject, START + 1, 2), START + SECOND);
    assert_int_equal(subject_ready_at(&subject, START + 1, 3), START + SECOND + 1);
    assert_true(subject_ready_at(&subject, START + 1, 4) == WEIR_NEVER);
    assert_int_equal(subject_available(&subject, START + SECOND - 1), 0);
    assert_int_equal(subject_available(&subject, START + SECOND), 2);
    assert_int_equal(subject_available(&subject, START + SECOND + 1), 3);
    subject_free(&subject);
}

static void test_sliding_refund_shrinks_its_own_entry(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "sliding_window", {"capacity", 10}, {"window", SECOND});
    assert_true(subject_request(&subject, START, 4));
    assert_true(subject_request(&subject, START + 10, 4));
    assert_true(subject_request(&subject, START + 20, 2));
    subject_refund(&subject, START + 30, 3, START + 10);
    assert_int_equal(subject_available(&subject, START + 30), 3);
    assert_int_equal(subject_ready_at(&subject, START + 30, 7), START + SECOND);
    assert_int_equal(subject_ready_at(&subject, START + 30, 8), START + SECOND + 10);
    assert_int_equal(subject_ready_at(&subject, START + 30, 9), START + SECOND + 20);
    subject_refund(&subject, START + 30, 1, START + 10); /* nothing left of it */
    subject_refund(&subject, START + 30, 1, START + 15); /* never granted */
    assert_int_equal(subject_available(&subject, START + 30), 4);
    subject_refund(&subject, START + 5 * SECOND, 4, START); /* gone long ago */
    assert_int_equal(subject_available(&subject, START + 5 * SECOND), 10);
    subject_free(&subject);
}

/* Grants that are taken back at once must not eat up the places of the log. */
static void test_sliding_log_does_not_fill_with_refunds(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "sliding_window", {"capacity", 2}, {"window", DAY});
    assert_true(subject_request(&subject, START, 1));
    for (uint64_t now = START + 1; now < START + 1000; now++) {
        assert_true(subject_request(&subject, now, 1));
        subject_refund(&subject, now, 1, now);
    }
    assert_int_equal(subject_available(&subject, START + DAY - 1), 1);
    assert_int_equal(subject_available(&subject, START + DAY), 2);
    subject_free(&subject);
}

static void test_segments_count_until_wholly_gone(void **state)
{
    (void)state;
    struct subject subject; /* sub-windows (0, 100 ms], (100 ms, 200 ms], … */
    SUBJECT(&subject, 0, "sliding_window", {"capacity", 10}, {"window", SECOND}, {"segments", 10});
    assert_int_equal(subject.footprint.state, 32 + 10 * 16); /* of 11, no more than capacity */
    assert_true(subject_request(&subject, 10 * MS, 6));
    assert_true(subject_request(&subject, 100 * MS, 1));
    assert_true(subject_request(&subject, 100 * MS + 1, 3));
    assert_int_equal(subject_ready_at(&subject, 200 * MS, 7), 1100 * MS);
    assert_int_equal(subject_available(&subject, 1100 * MS - 1), 0);
    assert_int_equal(subject_available(&subject, 1100 * MS), 7);
    assert_int_equal(subject_available(&subject, 1200 * MS - 1), 7);
    assert_int_equal(subject_available(&subject, 1200 * MS), 10);
    subject_free(&subject);
}

static void test_sliding_memory(void **state)
{
    (void)state;
    struct subject subject;
    REFUSED("sliding_window", "capacity", "segments", {"capacity", 4194303}, {"window", SECOND});
    REFUSED("sliding_window", "segments", "nanoseconds", {"capacity", 10}, {"window", 9},
            {"segments", 10});
    SUBJECT(&subject, START, "sliding_window", {"capacity", INT64_MAX}, {"window", SECOND},
            {"segments", 60});
    assert_int_equal(subject.footprint.state, 32 + 61 * 16);
    assert_true(subject_request(&subject, START, INT64_MAX));
    assert_int_equal(subject_available(&subject, START), 0);
    subject_free(&subject);
    SUBJECT(&subject, START, "sliding_window", {"capacity", INT64_MAX}, {"window", 5});
    assert_int_equal(subject.footprint.state, 32 + 5 * 16); /* only 5 instants in a window */
    subject_free(&subject);
    SUBJECT(&subject, START, "sliding_window", {"capacity", 5}, {"window", SECOND}, {"initial", 2});
    assert_int_equal(subject_available(&subject, START), 2);
    assert_int_equal(subject_ready_at(&subject, START, 3), START + SECOND);
    subject_free(&subject);
}

static void test_fixed_window_from_first_use(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "fixed_window", {"capacity", 3}, {"window", SECOND});
    uint64_t first = START + 700 * MS;
    assert_true(subject_request(&subject, first, 1));
    assert_true(subject_request(&subject, first + 900 * MS, 2));
    assert_int_equal(subject_ready_at(&subject, first + 900 * MS, 1), first + SECOND);
    assert_int_equal(subject_available(&subject, first + SECOND - 1), 0);
    assert_int_equal(subject_available(&subject, first + SECOND), 3);
    uint64_t second = first + 5 * SECOND + 123; /* starts with the next use, whenever that is */
    assert_true(subject_request(&subject, second, 3));
    assert_int_equal(subject_ready_at(&subject, second + 5, 1), second + SECOND);
    subject_free(&subject);
}

static void test_fixed_window_from_creation(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "fixed_window", {"capacity", 3}, {"window", SECOND},
            {"anchor", CREATION}, {"initial", 1});
    assert_int_equal(subject_available(&subject, START), 1);
    assert_true(subject_request(&subject, START + 900 * MS, 1));
    assert_int_equal(subject_ready_at(&subject, START + 900 * MS, 1), START + SECOND);
    assert_true(subject_request(&subject, START + SECOND, 3));
    assert_int_equal(subject_ready_at(&subject, START + SECOND, 1), START + 2 * SECOND);
    uint64_t late = START + 7 * SECOND + 999 * MS;
    assert_true(subject_request(&subject, late, 3));
    assert_int_equal(subject_ready_at(&subject, late, 3), START + 8 * SECOND);
    subject_free(&subject);
}

static void test_fixed_window_by_the_calendar(void **state)
{
    (void)state;
    struct subject subject; /* 20 days since 1970 less 1 hour, on a clock that says 5 s */
    uint64_t now = 5 * SECOND, hour = 3600 * SECOND;
    SUBJECT(&subject, now, "fixed_window", {"capacity", 3}, {"window", DAY}, {"anchor", EPOCH});
    subject.wall_offset_ns = (int64_t)(20 * DAY - hour - now);
    assert_true(subject_request(&subject, now, 3));
    assert_int_equal(subject_ready_at(&subject, now, 1), now + hour);
    now += hour;
    assert_true(subject_request(&subject, now, 3)); /* the 20th day */

    subject.wall_offset_ns -= (int64_t)(2 * hour); /* back into the 19th: it is not opened again */
    assert_int_equal(subject_available(&subject, now), 0);
    assert_int_equal(subject_ready_at(&subject, now, 1), now + DAY + 2 * hour);
    subject.wall_offset_ns += (int64_t)(2 * hour); /* and the 20th is not opened twice */
    assert_int_equal(subject_available(&subject, now), 0);
    assert_int_equal(subject_ready_at(&subject, now, 1), now + DAY);
    subject.wall_offset_ns = INT64_MIN;
    assert_int_equal(subject_available(&subject, now), 0);
    assert_true(subject_ready_at(&subject, now, 1) > now + 200 * YEAR);
    subject.wall_offset_ns = INT64_MAX;
    assert_int_equal(subject_available(&subject, now), 3);
    subject_free(&subject);
}

static void test_fixed_refund_within_the_window_only(void **state)
{
    (void)state;
    for (uint64_t anchor = FIRST_USE; anchor <= EPOCH; anchor++) {
        struct subject subject;
        uint64_t origin = 100 * SECOND;
        SUBJECT(&subject, origin, "fixed_window", {"capacity", 5}, {"window", SECOND},
                {"anchor", anchor});
        assert_true(subject_request(&subject, origin, 5));
        subject_refund(&subject, origin + 1, 2, origin);
        assert_int_equal(subject_available(&subject, origin + 1), 2);
        assert_true(subject_request(&subject, origin + SECOND, 5));
        subject_refund(&subject, origin + SECOND + 1, 3, origin);
        assert_int_equal(subject_available(&subject, origin + SECOND + 1), 0);
        subject_refund(&subject, origin + SECOND + 1, 3, origin + SECOND);
        assert_int_equal(subject_available(&subject, origin + SECOND + 1), 3);
        subject_free(&subject);
    }
}

/* A wall clock steps into the next window between two grants of one instant: a refund of the first
 * is no refund of what the next window has granted, whether or not the state was forgotten. */
static void test_fixed_refund_of_a_divided_instant(void **state)
{
    (void)state;
    for (int forgets = 0; forgets < 2; forgets++) {
        struct subject subject;
        uint64_t now = 5 * SECOND;
        SUBJECT(&subject, now, "fixed_window", {"capacity", 2}, {"window", DAY}, {"anchor", EPOCH});
        assert_true(subject_request(&subject, now, 2));
        subject.wall_offset_ns = (int64_t)DAY;
        assert_false(subject_is_new(&subject, now));
        subject_refund(&subject, now, 1, now);
        assert_int_equal(subject_available(&subject, now), 2);
        assert_false(subject_is_new(&subject, now));
        assert_true(subject_is_new(&subject, now + 1));
        if (forgets)
            subject_init(&subject, now + 1);
        assert_true(subject_request(&subject, now + 1, 2));
        subject_refund(&subject, now + 2, 1, now);
        assert_int_equal(subject_available(&subject, now + 2), 0);
        subject_refund(&subject, now + 2, 1, now + 1);
        assert_int_equal(subject_available(&subject, now + 2), 1);
        assert_int_equal(subject_check(&subject), 0);
        subject_free(&subject);
    }
}

/* What became of an instant that was divided goes on by the other anchors, too. */
static void test_fixed_reload_of_a_divided_instant(void **state)
{
    (void)state;
    for (uint64_t anchor = FIRST_USE; anchor <= EPOCH; anchor++) {
        struct subject subject, next;
        uint64_t now = 5 * SECOND;
        SUBJECT(&subject, now, "fixed_window", {"capacity", 2}, {"window", DAY}, {"anchor", EPOCH});
        SUBJECT(&next, now, "fixed_window", {"capacity", 2}, {"window", DAY}, {"anchor", anchor});
        assert_true(subject_request(&subject, now, 2));
        subject.wall_offset_ns = next.wall_offset_ns = (int64_t)DAY;
        assert_true(subject_request(&subject, now, 1));
        assert_int_equal(subject_check(&subject), 0);
        subject_reconfigure(&next, &subject, now);
        assert_int_equal(subject_available(&next, now), 1);
        assert_true(subject_request(&next, now, 1));
        assert_int_equal(subject_available(&next, now + 1), 0);
        subject_free(&subject);
        subject_free(&next);
    }
}

static void test_a_clock_that_goes_back(void **state)
{
    (void)state;
    struct subject subject;
    SUBJECT(&subject, START, "sliding_window", {"capacity", 3}, {"window", SECOND});
    assert_true(subject_request(&subject, START + 2 * SECOND, 3));
    assert_int_equal(subject_available(&subject, START), 0);
    assert_int_equal(subject_ready_at(&subject, START, 1), START + 3 * SECOND);
    subject_free(&subject);
    for (uint64_t anchor = FIRST_USE; anchor <= EPOCH; anchor++) {
        SUBJECT(&subject, 100 * SECOND, "fixed_window", {"capacity", 3}, {"window", SECOND},
                {"anchor", anchor});
        assert_true(subject_request(&subject, 102 * SECOND, 3));
        assert_int_equal(subject_available(&subject, 100 * SECOND), 0);
        assert_int_equal(subject_ready_at(&subject, 100 * SECOND, 1), 103 * SECOND);
        subject_free(&subject);
    }
}

/* A window of the calendar that has counted nothing is as a new one, so it begins with its first
 * grant. What is told to be of an earlier instant does not count in it, and returns nothing. */
static void test_a_calendar_window_begins_with_its_first_grant(void **state)
{
    (void)state;
    static const char *const algorithms[] = {"fixed_window", "calendar"};
    for (int i = 0; i < 2; i++) {
        const struct setting settings[] = {{"capacity", 3},
                                           i == 0 ? (struct setting){"anchor", EPOCH}
                                                  : (struct setting){NULL, 0},
                                           {"window", DAY},
                                           {NULL, 0}};
        struct subject subject;
        struct weir_reason reason = {sizeof(reason), 0, ""};
        assert_int_equal(subject_try(&subject, algorithms[i], settings, &reason), 0);
        subject_init(&subject, START);
        assert_true(subject_request(&subject, START + 2 * SECOND, 1));
        subject_refund(&subject, START + 2 * SECOND, 1, START + SECOND);
        assert_int_equal(subject_available(&subject, START + 2 * SECOND), 2);
        subject_refund(&subject, START + 2 * SECOND, 1, START + 2 * SECOND);
        assert_int_equal(subject_available(&subject, START + 2 * SECOND), 3);
        assert_true(subject_request(&subject, START + 4 * SECOND, 1)); /* begins anew */
        subject_refund(&subject, START + 4 * SECOND, 1, START + 2 * SECOND);
        assert_int_equal(subject_available(&subject, START + 4 * SECOND), 2);
        subject_free(&subject);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_calendar_window_begins_with_its_first_grant),
        cmocka_unit_test(test_sliding_window_is_half_open),
        cmocka_unit_test(test_sliding_refund_shrinks_its_own_entry),
        cmocka_unit_test(test_sliding_log_does_not_fill_with_refunds),
        cmocka_unit_test(test_segments_count_until_wholly_gone),
        cmocka_unit_test(test_sliding_memory),
        cmocka_unit_test(test_fixed_window_from_first_use),
        cmocka_unit_test(test_fixed_window_from_creation),
        cmocka_unit_test(test_fixed_window_by_the_calendar),
        cmocka_unit_test(test_fixed_refund_within_the_window_only),
        cmocka_unit_test(test_fixed_refund_of_a_divided_instant),
        cmocka_unit_test(test_fixed_reload_of_a_divided_instant),
        cmocka_unit_test(test_a_clock_that_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

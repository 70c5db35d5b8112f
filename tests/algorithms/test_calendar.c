/* SPDX-License-Identifier: MIT */
/* Days, weeks and months by the local time of a zone. That they begin where those of Python do is
 * tests/programs/test_calendar.py. */
#include "cmocka_all.h"
#include "subject.h"
#include "zone_file.h"

#define HOUR_S HOUR
#define DAY_S  86400

enum { BY_DAY, BY_WEEK, BY_MONTH };

/* Berlin in 2025: an hour forward on March 30, back on October 26. */
#define MARCH_30   INT64_C(1743296400) /* 01:00 UTC */
#define OCTOBER_26 INT64_C(1761440400)
static const struct change berlin[] = {{-1, 0}, {MARCH_30, 1}, {OCTOBER_26, 0}};

/* A zone of these changes; the setting is valid until the next one is made. */
static struct setting zone_of(const struct change *changes, uint32_t n)
{
    static struct weir_value zone;
    make_file(changes, n, "");
    zone = (struct weir_value){.zone = file, .value = file_n};
    return (struct setting){"zone", (uintptr_t)&zone};
}

#define BERLIN zone_of(berlin, 3)

static uint64_t at(int64_t s)
{
    return (uint64_t)s * SECOND;
}

/* It is used up, and as much is there again at that instant and not before. */
static void use_up_until(struct subject *subject, uint64_t now, int64_t end_s)
{
    assert_true(subject_request(subject, now, 3));
    assert_int_equal(subject_ready_at(subject, now, 1), at(end_s));
    assert_int_equal(subject_available(subject, at(end_s) - 1), 0);
    assert_int_equal(subject_available(subject, at(end_s)), 3);
}

static void test_a_day_is_as_long_as_the_clock_makes_it(void **state)
{
    const int64_t march_30 = MARCH_30 - 2 * HOUR_S; /* local midnight */
    const int64_t october_26 = OCTOBER_26 - 3 * HOUR_S;
    struct subject subject;

    (void)state;
    SUBJECT(&subject, at(march_30 - 5), "calendar", {"capacity", 3}, BERLIN);
    use_up_until(&subject, at(march_30 - 5), march_30);
    use_up_until(&subject, at(march_30), march_30 + 23 * HOUR_S);
    use_up_until(&subject, at(march_30 + 23 * HOUR_S), march_30 + 47 * HOUR_S);
    use_up_until(&subject, at(october_26), october_26 + 25 * HOUR_S);
    use_up_until(&subject, at(october_26 + 25 * HOUR_S), october_26 + 49 * HOUR_S);
    subject_free(&subject);
}

static void test_weeks_begin_on_mondays_and_months_on_the_first(void **state)
{
    const int64_t march_1 = MARCH_30 - 2 * HOUR_S - 29 * DAY_S; /* a Saturday */
    struct subject week, month;

    (void)state;
    SUBJECT(&week, at(march_1), "calendar", {"capacity", 3}, {"period", BY_WEEK}, BERLIN);
    SUBJECT(&month, at(march_1), "calendar", {"capacity", 3}, {"period", BY_MONTH}, BERLIN);
    use_up_until(&week, at(march_1), march_1 + 2 * DAY_S);
    use_up_until(&week, at(march_1 + 2 * DAY_S), march_1 + 9 * DAY_S);
    use_up_until(&month, at(march_1), march_1 + 31 * DAY_S - HOUR_S);
    use_up_until(&month, at(march_1 + 31 * DAY_S - HOUR_S), march_1 + 61 * DAY_S - HOUR_S);
    subject_free(&week);
    subject_free(&month);
}

/* The clock leaps over midnight, or goes back past it. Local time is an hour or two ahead. */
static void test_midnights_that_are_not_there_or_come_twice(void **state)
{
    static const struct change leap[] = {{-1, 0}, {10 * DAY_S - 3600 - 1800, 1}};
    static const struct change back[] = {{-1, 1}, {10 * DAY_S - 7200 + 60, 0}};
    static const int64_t leaps[] = {10 * DAY_S - 5400, 11 * DAY_S - 7200};
    static const int64_t backs[] = {10 * DAY_S - 7200, 11 * DAY_S - 3600};
    struct subject subject;

    (void)state;
    SUBJECT(&subject, at(9 * DAY_S), "calendar", {"capacity", 3}, zone_of(leap, 2));
    use_up_until(&subject, at(9 * DAY_S), leaps[0]);
    use_up_until(&subject, at(leaps[0]), leaps[1]);
    subject_free(&subject);
    SUBJECT(&subject, at(9 * DAY_S), "calendar", {"capacity", 3}, zone_of(back, 2));
    use_up_until(&subject, at(9 * DAY_S), backs[0]);
    use_up_until(&subject, at(backs[0]), backs[1]);
    subject_init(&subject, at(9 * DAY_S));
    assert_true(subject_request(&subject, at(9 * DAY_S), 3));
    use_up_until(&subject, at(backs[0] + 120), backs[1]); /* the hour before midnight again */
    subject_free(&subject);
}

static void test_a_damaged_zone_is_refused(void **state)
{
    (void)state;
    struct setting zone = zone_of(berlin, 3);
    file[0] = '?';
    REFUSED("calendar", "zone", "its file is damaged", {"capacity", 3}, zone);
}

static void test_a_wall_clock_that_goes_back_opens_no_period_again(void **state)
{
    struct subject subject;

    (void)state;
    SUBJECT(&subject, at(10 * DAY_S), "calendar", {"capacity", 3});
    assert_true(subject_request(&subject, at(10 * DAY_S), 3));
    subject.wall_offset_ns = -(int64_t)SECOND;
    assert_int_equal(subject_ready_at(&subject, at(10 * DAY_S), 1), at(11 * DAY_S + 1));
    subject.wall_offset_ns = (int64_t)DAY;
    assert_int_equal(subject_available(&subject, at(10 * DAY_S) + 1), 3);
    subject_free(&subject);
}

static void test_a_refund_stays_in_its_period(void **state)
{
    struct subject subject;

    (void)state;
    SUBJECT(&subject, at(10 * DAY_S), "calendar", {"capacity", 3});
    assert_true(subject_request(&subject, at(10 * DAY_S), 3));
    subject_refund(&subject, at(10 * DAY_S + 1), 2, at(10 * DAY_S));
    assert_int_equal(subject_available(&subject, at(10 * DAY_S + 1)), 2);
    assert_true(subject_request(&subject, at(11 * DAY_S), 3));
    subject_refund(&subject, at(11 * DAY_S), 1, at(10 * DAY_S));
    assert_int_equal(subject_available(&subject, at(11 * DAY_S)), 0);
    subject_free(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_day_is_as_long_as_the_clock_makes_it),
        cmocka_unit_test(test_weeks_begin_on_mondays_and_months_on_the_first),
        cmocka_unit_test(test_midnights_that_are_not_there_or_come_twice),
        cmocka_unit_test(test_a_damaged_zone_is_refused),
        cmocka_unit_test(test_a_wall_clock_that_goes_back_opens_no_period_again),
        cmocka_unit_test(test_a_refund_stays_in_its_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

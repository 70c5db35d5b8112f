/* SPDX-License-Identifier: MIT */
/* Files of time zones: read as they are made, by data and by rule, and such that are none. */
#include "zone_file.h"

#include "../../plugins/algorithms/tzif.h"
#include "cmocka_all.h"
#include "lib/random.h"
#include <inttypes.h>

#define DAY DAY_S

static struct zone_change items[ZONE_CHANGES_MAX];
static struct zone_changes zone;

/* Reads a file, of which nothing is behind its end, as the library has it in memory. Twice: it is
 * counted before it is stored. */
static int read_bytes(const unsigned char *bytes, size_t n)
{
    struct zone_changes counted = {.items = NULL};
    unsigned char *exact = malloc(n + 1);
    int r;

    assert_non_null(exact);
    memcpy(exact + 1, bytes, n);
    zone = (struct zone_changes){.items = items};
    r = zone_parse_file(exact + 1, n, &zone);
    assert_int_equal(zone_parse_file(exact + 1, n, &counted), r);
    if (r == 0)
        assert_int_equal(counted.n, zone.n);
    free(exact);
    return r;
}

static int read_rule(const char *rule)
{
    make_file(NULL, 0, rule);
    return read_bytes(file, file_n);
}

static void changes_of_the_data_are_read(void **state)
{
    static const struct change changes[] = {
        {-5 * DAY, 1}, {10 * DAY, 0}, {20 * DAY, 1}, {30 * DAY, 1}, {40 * DAY, 0}};

    (void)state;
    make_file(changes, 5, "<+01>-1");
    assert_int_equal(read_bytes(file, file_n), 0);
    assert_int_equal(zone.first_offset_s, 2 * HOUR);
    assert_int_equal(zone.n, 3); /* one changes nothing */
    assert_int_equal(zone.items[0].at_s, 10 * DAY);
    assert_int_equal(zone.items[0].offset_s, HOUR);
    assert_int_equal(zone.items[1].offset_s, 2 * HOUR);
    assert_int_equal(zone.items[2].at_s, 40 * DAY);
}

/* The first two changes by a rule, in 1970, and how many there are. */
struct rule_case {
    const char *rule;
    int64_t at_s[2], offset_s[2];
    uint32_t n;
};

static void rules_are_written_out(void **state)
{
    static const struct rule_case rows[] = {
        /* The last Sundays of March and October, 01:00 UTC. */
        {"CET-1CEST,M3.5.0,M10.5.0/3",
         {87 * DAY + HOUR, 297 * DAY + HOUR},
         {2 * HOUR, HOUR},
         2 * 293},
        /* The second Sunday of March, the first of November; 02:00 of the local time before. */
        {"EST5EDT,M3.2.0,M11.1.0",
         {66 * DAY + 7 * HOUR, 304 * DAY + 6 * HOUR},
         {-4 * HOUR, -5 * HOUR},
         2 * 293},
        /* In the south summer ends first. */
        {"<-03>3<-02>,M10.1.0/0,M2.3.0/0",
         {45 * DAY + 2 * HOUR, 276 * DAY + 3 * HOUR},
         {-3 * HOUR, -2 * HOUR},
         2 * 293},
        /* Days of the year, without and with February 29. */
        {"AAA-1BBB,J60/0,J300/0",
         {59 * DAY - HOUR, 299 * DAY - 2 * HOUR},
         {2 * HOUR, HOUR},
         2 * 293},
        {"AAA-3BBB,60,J300/0",
         {60 * DAY - HOUR, 299 * DAY - 4 * HOUR},
         {4 * HOUR, 3 * HOUR},
         2 * 293},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct rule_case *row = &rows[i];

        assert_int_equal(read_rule(row->rule), 0);
        for (int k = 0; k < 2; k++) {
            if (zone.items[k].at_s != row->at_s[k] || zone.items[k].offset_s != row->offset_s[k])
                fail_msg("%s: %" PRId64 " from %" PRId64, row->rule, zone.items[k].offset_s,
                         zone.items[k].at_s);
        }
        assert_int_equal(zone.n, row->n);
    }
}

static void summer_for_ever_is_no_change(void **state)
{
    (void)state;
    assert_int_equal(read_rule("EST5EDT,0/0,J365/25"), 0);
    assert_int_equal(zone.n, 2); /* at first, and where the table ends */
    assert_int_equal(zone.items[0].at_s, 5 * HOUR);
    assert_int_equal(zone.items[0].offset_s, -4 * HOUR);
    assert_true(zone.items[1].at_s > 106750 * DAY);
}

static void what_is_no_rule_is_refused(void **state)
{
    static const char *const wrong[] = {
        "CET",
        "CET-1CEST",
        "CET-1CEST,M3.5.0",
        "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0",
        "CET-1CEST,M3.5.7,M10.5.0",
        "CET-1CEST,M3.5,M10.5.0",
        "CET-1CEST,J366,J1",
        "CET-1:60",
        "CET-168",
        "CE-1",
        "A-1B,J60,J300",
        "<CET-1",
        "<CET",
        "CET>-1",
        "CET-1CEST,M3.5.0,M10.5.0,",
        "CET-30",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        if (read_rule(wrong[i]) != -1)
            fail_msg("%s", wrong[i]);
}

static void what_is_no_file_of_a_zone_is_refused(void **state)
{
    static const struct change changes[] = {{10 * DAY, 0}, {20 * DAY, 1}};
    static const struct change backwards[] = {{20 * DAY, 0}, {10 * DAY, 1}};
    static const struct change no_type[] = {{10 * DAY, 2}};
    uint64_t rng = random_seed_of(0, NULL);

    (void)state;
    make_file(backwards, 2, "");
    assert_int_equal(read_bytes(file, file_n), -1);
    make_file(no_type, 1, "");
    assert_int_equal(read_bytes(file, file_n), -1);
    make_file(changes, 2, "CET-1CEST,M3.5.0,M10.5.0/3");
    for (size_t n = 0; n < file_n; n++)
        assert_int_equal(read_bytes(file, n), -1);
    printf("--seed %" PRIu64 "\n", rng);
    for (int i = 0; i < 2000; i++) { /* whatever it says, it does no harm */
        unsigned char changed[sizeof(file)];

        memcpy(changed, file, file_n);
        for (int k = 0; k < 3; k++)
            changed[random_below(&rng, file_n)] = (unsigned char)random_next(&rng);
        if (read_bytes(changed, file_n) == 0)
            assert_in_range(zone.n, 0, ZONE_CHANGES_MAX);
    }
    file[4] = 0; /* its version */
    assert_int_equal(read_bytes(file, file_n), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_of_the_data_are_read),
        cmocka_unit_test(rules_are_written_out),
        cmocka_unit_test(summer_for_ever_is_no_change),
        cmocka_unit_test(what_is_no_rule_is_refused),
        cmocka_unit_test(what_is_no_file_of_a_zone_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

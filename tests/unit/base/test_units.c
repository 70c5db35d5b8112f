/* SPDX-License-Identifier: MIT */
/* Quantities: what is read, what is refused, and that writing and reading are inverse. */
#include "base/units.h"
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "lib/fixture.h"

__extension__ typedef unsigned __int128 u128;

struct row {
    const char *text;
    int rc;
    uint64_t value;
};

static void check_rows(enum units_kind kind, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = 4711;
        int rc = units_parse(kind, rows[i].text, &value);
        if (rc != rows[i].rc || value != (rc == 0 ? rows[i].value : 4711))
            fail_msg("`%s`: %d, %" PRIu64, rows[i].text, rc, value);
    }
}
#define CHECK_ROWS(kind, rows) check_rows((kind), (rows), sizeof(rows) / sizeof((rows)[0]))

static void test_ratios(void **state)
{
    static const struct row rows[] = {
        {"0", 0, 0},
        {"1", 0, UNITS_RATIO_ONE},
        {"0.25", 0, UNITS_RATIO_ONE / 4},
        {"25%", 0, UNITS_RATIO_ONE / 4},
        {"12.5%", 0, UNITS_RATIO_ONE / 8},
        {"0.000000001", 0, 1},
        {"0.0000001%", 0, 1},
        {"18446744073.709551615", 0, UINT64_MAX},
        {"18446744073.709551616", -ERANGE, 0},
        {"18446744074", -ERANGE, 0},
        {"99999999999999999999", -ERANGE, 0},
        {"0.0000000001", -EINVAL, 0},
        {"0.00000001%", -EINVAL, 0},
        {"0.00000025%", -EINVAL, 0},
        {"", -EINVAL, 0},
        {".5", -EINVAL, 0},
        {"1.", -EINVAL, 0},
        {"01", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"1/3", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"1%%", -EINVAL, 0},
        {"1.%", -EINVAL, 0},
        {"1k", -EINVAL, 0},
    };
    static const struct row written[] = {{"0.25", 0, UNITS_RATIO_ONE / 4},
                                         {"0.000000001", 0, 1},
                                         {"3", 0, 3 * UNITS_RATIO_ONE},
                                         {"18446744073.709551615", 0, UINT64_MAX}};
    char buffer[UNITS_TEXT_MAX];
    (void)state;
    CHECK_ROWS(UNITS_RATIO, rows);
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
        assert_string_equal(units_format(UNITS_RATIO, written[i].value, buffer), written[i].text);
}

static void test_amounts(void **state)
{
    static const struct row rows[] = {
        {"0", 0, 0},
        {"1", 0, 1},
        {"90000", 0, 90000},
        {"90k", 0, 90000},
        {"1M", 0, 1000000},
        {"3G", 0, 3000000000},
        {"0k", 0, 0},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999999", -ERANGE, 0},
        {"18446744073709551k", 0, UINT64_C(18446744073709551000)},
        {"18446744073709552k", -ERANGE, 0},
        {"18446744073G", 0, UINT64_C(18446744073000000000)},
        {"18446744074G", -ERANGE, 0},
        {"18446744073709551616k", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"k", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1 k", -EINVAL, 0},
        {"1kk", -EINVAL, 0},
        {"1K", -EINVAL, 0},
        {"1m", -EINVAL, 0},
        {"1.5k", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"010", -EINVAL, 0},
        {"00", -EINVAL, 0},
        {"1_000", -EINVAL, 0},
        {"1s", -EINVAL, 0},
        {"99999999999999999999999999x", -EINVAL, 0},
    };
    (void)state;
    CHECK_ROWS(UNITS_AMOUNT, rows);
}

static void test_durations(void **state)
{
    static const struct row rows[] = {
        {"1ns", 0, 1},
        {"5us", 0, 5000},
        {"250ms", 0, 250000000},
        {"60s", 0, UINT64_C(60000000000)},
        {"90m", 0, UINT64_C(5400000000000)},
        {"1h", 0, UINT64_C(3600000000000)},
        {"1d", 0, UINT64_C(86400000000000)},
        {"0s", 0, 0},
        {"18446744073709551615ns", 0, UINT64_MAX},
        {"18446744073709551616ns", -ERANGE, 0},
        {"213503d", 0, UINT64_C(18446659200000000000)},
        {"213504d", -ERANGE, 0},
        {"18446744074s", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"0", -EINVAL, 0},
        {"60", -EINVAL, 0},
        {"1.5s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"1 s", -EINVAL, 0},
        {"1h30m", -EINVAL, 0},
        {"1min", -EINVAL, 0},
        {"1S", -EINVAL, 0},
        {"1w", -EINVAL, 0},
        {"01s", -EINVAL, 0},
    };
    (void)state;
    CHECK_ROWS(UNITS_DURATION, rows);
}

static void test_suggestions(void **state)
{
    static const struct {
        enum units_kind kind;
        const char *text, *suggestion; /* NULL: none */
    } rows[] = {
        {UNITS_DURATION, "1min", "1m"},
        {UNITS_DURATION, "1Min", "1m"},
        {UNITS_DURATION, "10 sec", "10s"},
        {UNITS_DURATION, "5 s", "5s"},
        {UNITS_DURATION, "30", "30s"},
        {UNITS_DURATION, "2HOURS", "2h"},
        {UNITS_DURATION, "1D", "1d"},
        {UNITS_DURATION, "250MS", "250ms"},
        {UNITS_DURATION, "7\xc2\xb5s", "7us"},
        {UNITS_DURATION, "7\xce\xbcs", "7us"},
        {UNITS_DURATION, "1w", NULL},
        {UNITS_DURATION, "01min", NULL},
        {UNITS_DURATION, "min", NULL},
        {UNITS_DURATION, "", NULL},
        {UNITS_DURATION, "-1min", NULL},
        {UNITS_DURATION, "1.5s", NULL},
        {UNITS_DURATION, "18446744073709551616sec", NULL},
        {UNITS_DURATION, "99999999999999999999999999999999min", NULL},
        {UNITS_AMOUNT, "1K", "1k"},
        {UNITS_AMOUNT, "1m", "1M"},
        {UNITS_AMOUNT, "1 g", "1G"},
        {UNITS_AMOUNT, "1s", NULL},
        {UNITS_AMOUNT, "1KB", NULL},
        {UNITS_SIZE, "64kb", "64KiB"},
        {UNITS_SIZE, "64K", "64KiB"},
        {UNITS_SIZE, "1 mib", "1MiB"},
        {UNITS_SIZE, "9B", "9"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char suggestion[UNITS_TEXT_MAX] = "untouched";
        assert_true(units_suggest(rows[i].kind, rows[i].text, suggestion) ==
                    (rows[i].suggestion != NULL));
        assert_string_equal(suggestion, rows[i].suggestion ? rows[i].suggestion : "untouched");
    }
}

static void test_writes(void **state)
{
    char buffer[UNITS_TEXT_MAX];
    (void)state;
    assert_string_equal(units_format(UNITS_AMOUNT, 0, buffer), "0");
    assert_string_equal(units_format(UNITS_AMOUNT, 999, buffer), "999");
    assert_string_equal(units_format(UNITS_AMOUNT, 90000, buffer), "90k");
    assert_string_equal(units_format(UNITS_AMOUNT, UINT64_C(7000000000), buffer), "7G");
    assert_string_equal(units_format(UNITS_AMOUNT, UINT64_MAX, buffer), "18446744073709551615");
    assert_string_equal(units_format(UNITS_DURATION, 0, buffer), "0ns");
    assert_string_equal(units_format(UNITS_DURATION, 250000000, buffer), "250ms");
    assert_string_equal(units_format(UNITS_DURATION, UINT64_C(86400000000000), buffer), "1d");
    assert_string_equal(units_format(UNITS_DURATION, UINT64_C(5400000000000), buffer), "90m");
    assert_string_equal(units_format(UNITS_DURATION, UINT64_MAX, buffer), "18446744073709551615ns");
}

/* Against 128-bit arithmetic: every number with every unit is exact, or out of range. */
static void test_random(void **state)
{
    static const struct {
        const char *name;
        uint64_t factor;
        enum units_kind kind;
    } units[] = {
        {"", 1, UNITS_AMOUNT},
        {"k", 1000, UNITS_AMOUNT},
        {"M", 1000000, UNITS_AMOUNT},
        {"G", 1000000000, UNITS_AMOUNT},
        {"ns", 1, UNITS_DURATION},
        {"us", 1000, UNITS_DURATION},
        {"ms", 1000000, UNITS_DURATION},
        {"s", 1000000000, UNITS_DURATION},
        {"m", UINT64_C(60000000000), UNITS_DURATION},
        {"h", UINT64_C(3600000000000), UNITS_DURATION},
        {"d", UINT64_C(86400000000000), UNITS_DURATION},
    };
    unsigned seed = (unsigned)time(NULL);
    (void)state;
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 200000; i++) {
        size_t unit = (size_t)random() % (sizeof(units) / sizeof(units[0]));
        uint64_t number =
            ((uint64_t)random() << 33 ^ (uint64_t)random() << 11 ^ (uint64_t)random()) >>
            ((unsigned)random() % 64);
        u128 exact = (u128)number * units[unit].factor;
        char text[64], again[UNITS_TEXT_MAX];
        uint64_t value = 0;
        snprintf(text, sizeof(text), "%" PRIu64 "%s", number, units[unit].name);
        int rc = units_parse(units[unit].kind, text, &value);
        if (rc != (exact > UINT64_MAX ? -ERANGE : 0) || (rc == 0 && value != exact))
            fail_msg("%s: %d, %" PRIu64, text, rc, value);
        if (rc != 0)
            continue;
        uint64_t back = ~value;
        assert_int_equal(
            units_parse(units[unit].kind, units_format(units[unit].kind, value, again), &back), 0);
        assert_true(back == value);
    }
}

static void test_writes_for_readers(void **state)
{
    static const struct {
        enum units_kind kind;
        uint64_t value;
        const char *text;
    } rows[] = {
        {UNITS_AMOUNT, 0, "0"},
        {UNITS_AMOUNT, 100000000, "100M"},
        {UNITS_AMOUNT, 1048576, "1048576"},
        {UNITS_AMOUNT, UINT32_MAX, "about 4.2G"},
        {UNITS_AMOUNT, INT64_MAX, "about 9.2 × 10^18"},
        {UNITS_AMOUNT, UINT64_MAX, "about 1.8 × 10^19"},
        {UNITS_DURATION, UINT64_C(60000000000), "1m"},
        {UNITS_DURATION, 12345678, "about 12.3ms"},
        {UNITS_DURATION, UINT64_C(31556951999999999), "about 365.2d"},
        {UNITS_DURATION, UINT64_C(31556952000000001), "about 1 years"},
        {UNITS_DURATION, UINT64_C(1) << 62, "about 146 years"},
        {UNITS_DURATION, UINT64_MAX, "about 584 years"},
        {UNITS_SIZE, 8, "8 bytes"},
        {UNITS_SIZE, 4096, "4KiB"},
        {UNITS_SIZE, 67108736, "about 63.9MiB"},
    };
    char buffer[UNITS_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(units_format_about(rows[i].kind, rows[i].value, buffer), rows[i].text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(test_ratios),
        leak_checked_test(test_amounts),
        leak_checked_test(test_durations),
        leak_checked_test(test_suggestions),
        leak_checked_test(test_writes),
        leak_checked_test(test_random),
        leak_checked_test(test_writes_for_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

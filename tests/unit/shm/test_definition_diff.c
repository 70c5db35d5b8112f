/* SPDX-License-Identifier: MIT */
/* Differences of two definitions: which are found, and that any text can be read. */
#include "shm/definition_diff.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "lib/fixture.h"

#define SET(inside, limits)                                                                        \
    "{version: 1, sets: {x: {backend: process, " inside "limits: [" limits "]}}}"
#define BOOT  "lifetime: boot, "
#define SLOTS "{type: resource, key: slots, capacity: 4}"
#define CALLS(capacity, window)                                                                    \
    "{type: rate, key: calls, algorithm: gcra, capacity: " capacity ", window: " window "}"

static void test_differences(void **state)
{
    static const struct {
        const char *there, *here, *text;
    } rows[] = {
        {SET(BOOT, SLOTS), SET(BOOT, SLOTS), ""},
        {SET(BOOT, SLOTS), SET(BOOT, "{type: resource, key: slots, capacity: 5}"),
         "`capacity` of limit 1 (`slots`) is 4 there, 5 here"},
        {SET("lifetime: users, ", SLOTS), SET(BOOT, SLOTS), "`lifetime` is users there, boot here"},
        {SET(BOOT "fair: false, ", SLOTS), SET(BOOT, SLOTS), "`fair` is false there, not set here"},
        {SET(BOOT, SLOTS), SET(BOOT "max_waiters: 9, ", SLOTS),
         "`max_waiters` is not set there, 9 here"},
        {SET(BOOT "subjects: {max: 100, evict: none}, ", SLOTS),
         SET(BOOT "subjects: {max: 100, evict: oldest}, ", SLOTS),
         "`evict` is none there, oldest here"},
        {SET(BOOT, SLOTS ", " CALLS("10", "60s")), SET(BOOT, SLOTS ", " CALLS("20", "60s")),
         "`capacity` of limit 2 (`calls`) is 10 there, 20 here"},
        /* Other texts of the same number, and another unit. */
        {SET(BOOT, CALLS("10k", "60s")), SET(BOOT, CALLS("10000", "1m")), ""},
        {SET(BOOT, CALLS("10k", "60s")), SET(BOOT, CALLS("10000", "2m")),
         "`window` of limit 1 (`calls`) is 60s there, 2m here"},
        {SET(BOOT, CALLS("10", "60s")), SET(BOOT, CALLS("20", "1h")),
         "`capacity` of limit 1 (`calls`) is 10 there, 20 here; "
         "`window` of limit 1 (`calls`) is 60s there, 1h here"},
        /* One limit more. */
        {SET(BOOT, SLOTS), SET(BOOT, SLOTS ", " CALLS("1", "1s")),
         "limit 2 (`calls`) is here only"},
        {SET(BOOT, SLOTS ", " CALLS("1", "1s")),
         SET(BOOT, "{type: resource, key: slots, capacity: 5}"),
         "`capacity` of limit 1 (`slots`) is 4 there, 5 here; limit 2 (`calls`) is there only"},
        /* Quotes hide signs. */
        {SET(BOOT, "{type: resource, key: \"a, capacity: 9}\", capacity: 4}"),
         SET(BOOT, "{type: resource, key: \"a, capacity: 9}\", capacity: 5}"),
         "`capacity` of limit 1 (`\"a, capacity: 9}\"`) is 4 there, 5 here"},
        {SET(BOOT, "{type: resource, key: \"a\\\"b\", capacity: 4}"),
         SET(BOOT, "{type: resource, key: \"a\\\"c\", capacity: 4}"),
         "limit 1 (`\"a\\\"b\"`) is there only; limit 1 (`\"a\\\"c\"`) is here only"},
        /* Limits are told apart by their keys, and those of one key by their order. */
        {SET(BOOT, CALLS("1", "1s") ", " SLOTS), SET(BOOT, SLOTS),
         "limit 1 (`calls`) is there only"},
        {SET(BOOT, SLOTS ", " CALLS("1", "1s")), SET(BOOT, CALLS("2", "1s") ", " SLOTS),
         "`capacity` of limit 2 (`calls`) is 1 there, 2 here"},
        {SET(BOOT, SLOTS ", " CALLS("1", "1s")), SET(BOOT, CALLS("1", "1s") ", " SLOTS),
         "limits are in another order there"},
        {SET(BOOT, CALLS("1", "1s") ", " CALLS("9", "1h")),
         SET(BOOT, SLOTS ", " CALLS("1", "1s") ", " CALLS("8", "1h")),
         "`capacity` of limit 2 (`calls`) is 9 there, 8 here; limit 1 (`slots`) is here only"},
        {"{a: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxä}", "{a: 1}",
         "`a` is xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… there, 1 here"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(definition_diff(rows[i].there, rows[i].here).text, rows[i].text);
}

static void test_changes_one_by_one(void **state)
{
    struct definition_diff diff = {""};

    (void)state;
    definition_diff_add(&diff, 0, NULL, "revision", NULL, "2");
    definition_diff_add(&diff, 1, "a\n", "capacity", "4", "5");
    definition_diff_add(&diff, 64, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "lease", "20ms", NULL);
    assert_string_equal(diff.text,
                        "`revision`: not set -> 2; `capacity` of limit 1 (`a?`): 4 -> 5; "
                        "`lease` of limit 64 (`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…`): "
                        "20ms -> not set");
    for (unsigned i = 0; i < 100; i++)
        definition_diff_add(&diff, 2, "b", "capacity", "9999", "10000");
    assert_in_range(strlen(diff.text), 200, sizeof(diff.text) - 1);
    assert_string_equal(diff.text + strlen(diff.text) - 5,
                        "10000"); /* what has no room is left out */
}

static void test_any_text(void **state)
{
    static const char letters[] = "ab:, {}[]\"\\1k\xc3\xa4";
    unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 100000; i++) {
        char texts[2][32];

        for (size_t k = 0; k < 2; k++) {
            size_t n = (size_t)random() % sizeof(texts[0]);

            for (size_t at = 0; at < n; at++)
                texts[k][at] = letters[(size_t)random() % (sizeof(letters) - 1)];
            texts[k][n] = '\0';
        }
        assert_true(strlen(definition_diff(texts[0], texts[1]).text) <
                    sizeof(struct definition_diff));
    }
}

/* A text that a program of the user may have written costs no time that is worth a word. */
static void test_a_text_of_braces(void **state)
{
    enum { SIZE = 16384 };
    static char texts[2][SIZE];

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t n = (size_t)snprintf(texts[i], SIZE, "{version: 1, sets: {s: {limits: [");

        memset(texts[i] + n, '{', SIZE / 2);
        for (n += SIZE / 2; n + 16 < SIZE;)
            n += (size_t)snprintf(texts[i] + n, SIZE - n, "key: a, b: %c, ", 'c' + i);
        snprintf(texts[i] + n, SIZE - n, "}]");
    }
    assert_true(strlen(definition_diff(texts[0], texts[1]).text) < sizeof(struct definition_diff));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(test_differences),
        leak_checked_test(test_changes_one_by_one),
        leak_checked_test(test_any_text),
        leak_checked_test(test_a_text_of_braces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

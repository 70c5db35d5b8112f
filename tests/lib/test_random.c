/* SPDX-License-Identifier: MIT */
/* Runs with neighboring seeds share no case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/random.h"

enum { SEEDS = 100, NUMBERS = 1000 };

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void assert_all_differ(uint64_t first_seed)
{
    static uint64_t cases[SEEDS * NUMBERS];

    for (uint64_t i = 0; i < SEEDS * NUMBERS; i++)
        cases[i] = random_case(first_seed + i / NUMBERS, i % NUMBERS);
    qsort(cases, SEEDS * NUMBERS, sizeof(*cases), compare);
    for (size_t i = 1; i < SEEDS * NUMBERS; i++)
        assert_true(cases[i - 1] < cases[i]);
}

static void seeds_share_no_case(void **state)
{
    (void)state;
    assert_all_differ(0);
    assert_all_differ(UINT64_MAX - SEEDS / 2);
    assert_all_differ(1795388428); /* the time in seconds */
}

/* An environment variable or an argument that a run has printed. */
static void a_seed_can_be_given(void **state)
{
    char name[] = "test", option[] = "--seed", seed[] = "18446744073709551615";
    char *arguments[] = {name, option, seed, NULL};

    (void)state;
    assert_int_equal(setenv("WEIR_SEED", "1795388428", 1), 0);
    assert_true(random_seed() == 1795388428);
    assert_true(random_seed_of(3, arguments) == UINT64_MAX);
    assert_true(random_seed_of(2, arguments) == 1795388428);
    assert_int_equal(unsetenv("WEIR_SEED"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_share_no_case),
        cmocka_unit_test(a_seed_can_be_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

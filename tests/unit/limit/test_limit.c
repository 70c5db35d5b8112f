/* SPDX-License-Identifier: MIT */
/* Limits together: whether bytes can be their states, and taking of all or none. Needs the
 * project's plugins. */
#include "config/plan.h"
#include "limit/limit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fixture.h"
#include "lib/plan_from.h"

enum { HELD = 0, LOG = 1 };

static struct plugin_search *plugins;
static struct plan plan;
static struct limits limits;
static uint64_t states[256];

static int setup(void **state)
{
    static const char text[] =
        "version: 1\nsets:\n  a:\n    limits:\n"
        "      - { type: resource, key: r, capacity: 3 }\n"
        "      - { type: rate, key: s, algorithm: sliding_window, capacity: 100, window: 1s }\n"
        "      - { type: resource, key: q, capacity: 18446744073709551615 }\n";
    struct complaints complaints = {.file = "test"};
    struct weir_instant at = {.now_ns = 1000};
    int rc = fixture_setup(state);
    if (rc != 0)
        return rc;
    memset(states, 0, sizeof(states));
    assert_int_equal(plugin_search_new(&plugins, NULL), 0);
    assert_int_equal(plan_from_text(text, sizeof(text) - 1, plugins, &plan, &complaints), 0);
    limits = (struct limits){.items = plan.sets[0].limits,
                             .n = plan.sets[0].limits_n,
                             .state_words = plan.sets[0].state_words};
    for (uint32_t i = 0; i < limits.n; i++)
        limits.items[i].held_max = limits.items[i].capacity; /* as of interned ones */
    limits_describe(&limits);
    assert_in_range(limits.state_words, 100, sizeof(states) / sizeof(states[0]));
    limits_init(&limits, states, &at);
    return 0;
}

static int teardown(void **state)
{
    plan_free(&plan);
    plugin_search_free(plugins);
    return fixture_teardown(state);
}

/* A counted resource holds what it has, and no more. */
static void test_counted(void **state)
{
    (void)state;
    assert_int_equal(limits_check(&limits, states), 0);
    states[HELD] = 3;
    states[limits.items[2].state_offset] = UINT64_MAX;
    assert_int_equal(limits_check(&limits, states), 0);
    states[HELD] = 4;
    assert_int_equal(limits_check(&limits, states), -1);
    states[HELD] = UINT64_MAX;
    assert_int_equal(limits_check(&limits, states), -1);
}

/* Every algorithm is asked about its own words, if it has an opinion. */
static void test_algorithm(void **state)
{
    struct weir_algorithm easy = *limits.items[LOG].algorithm;
    (void)state;
    states[limits.items[LOG].state_offset + 2] = 1000; /* where its log begins: nowhere */
    assert_int_equal(limits_check(&limits, states), -1);
    easy.check = NULL;
    limits.items[LOG].algorithm = &easy;
    assert_int_equal(limits_check(&limits, states), 0);
}

/* Room for 1, 1 and 2 more of the three limits. */
static void use(void)
{
    const struct weir_instant at = {.now_ns = 1000};
    const uint64_t used[] = {2, 99, UINT64_MAX - 2};
    limits_take(&limits, states, &at, used, true);
}

/* What is granted now is taken, and what is not leaves everything as it was. */
static void expect_try(uint64_t now, const uint64_t *amounts, uint64_t ready, int blame)
{
    const struct weir_instant at = {.now_ns = now};
    const struct limit *said = NULL, *blamed = NULL;
    uint64_t tried[256];
    memcpy(tried, states, sizeof(tried));
    assert_true(limits_ready_at(&limits, states, &at, amounts, true, &said) == ready);
    assert_true(limits_try_take(&limits, tried, &at, amounts, &blamed) == ready);
    assert_ptr_equal(blamed, blame < 0 ? NULL : &limits.items[blame]);
    assert_ptr_equal(blamed, said);
    if (ready == now)
        limits_take(&limits, states, &at, amounts, true);
    assert_memory_equal(tried, states, sizeof(tried));
}

static void test_try_take(void **state)
{
    static const uint64_t nothing[3], one[] = {1, 1, 1}, two[] = {1, 2, 3}, last[] = {1, 1, 2},
                                      never[] = {4, 1, 1}, logged[] = {0, 1, 0};
    const uint64_t second = 1000000000;
    (void)state;
    use();
    expect_try(1000, nothing, 1000, -1);
    expect_try(1000, never, WEIR_NEVER, 0);
    expect_try(1000, two, WEIR_BLOCKED, 2);
    expect_try(1000, last, 1000, -1);
    expect_try(2000, logged, 1000 + second, 1);
    expect_try(2000, one, WEIR_BLOCKED, 0);
    expect_try(1000 + second, logged, 1000 + second, -1);
}

/* One limit alone, with and without an operation of its own for it. */
static void test_try_take_one(void **state)
{
    const struct limits all = limits;
    struct weir_algorithm old = *limits.items[LOG].algorithm;
    const uint64_t some[] = {60}, all_of_it[] = {100}, too_much[] = {101}, nothing[] = {0};
    (void)state;
    assert_non_null(old.try_take);
    old.try_take = NULL;
    for (int turn = 0; turn < 2; turn++) {
        const uint64_t now = 5000000000 * (1 + (uint64_t)turn);
        limits.n = 1;
        limits.items = &all.items[LOG];
        limits.items->algorithm = turn ? &old : limits.items->algorithm;
        expect_try(now, too_much, WEIR_NEVER, 0);
        expect_try(now, nothing, now, -1);
        expect_try(now, some, now, -1);
        expect_try(now + 1, some, now + 1000000000, 0);
        expect_try(now + 1000000000, all_of_it, now + 1000000000, -1);
    }
    limits.items = &all.items[HELD];
    expect_try(1, (const uint64_t[]){4}, WEIR_NEVER, 0);
    expect_try(1, (const uint64_t[]){2}, 1, -1);
    expect_try(1, (const uint64_t[]){2}, WEIR_BLOCKED, 0);
    expect_try(1, (const uint64_t[]){1}, 1, -1);
    limits = all;
}

/* With limits of so few words that each takes at once, and gives back what it took. */
static void test_try_take_few(void **state)
{
    static const char text[] =
        "version: 1\nsets:\n  a:\n    limits:\n"
        "      - { type: rate, key: g, algorithm: gcra, capacity: 10, window: 10s }\n"
        "      - { type: resource, key: r, capacity: 3 }\n"
        "      - { type: rate, key: t, algorithm: token_bucket, capacity: 10, window: 20s }\n";
    static const uint64_t some[] = {2, 1, 3}, rest[] = {8, 2, 7}, of_rates[] = {1, 0, 1},
                          of_last[] = {0, 0, 2}, never[] = {1, 4, 1}, nothing[3];
    const uint64_t start = 5000000000, second = 1000000000;
    struct complaints complaints = {.file = "test"};
    const struct limits all = limits;
    struct weir_instant at = {.now_ns = start};
    struct plan few = {0};
    (void)state;
    assert_int_equal(plan_from_text(text, sizeof(text) - 1, plugins, &few, &complaints), 0);
    limits = (struct limits){.items = few.sets[0].limits,
                             .n = 3,
                             .state_words = few.sets[0].state_words,
                             .own_words = few.sets[0].state_words};
    assert_in_range(limits.state_words, 3, 16);
    memset(states, 0, sizeof(states));
    limits_init(&limits, states, &at);
    expect_try(start, nothing, start, -1);
    expect_try(start, never, WEIR_NEVER, 1);
    expect_try(start, some, start, -1);
    expect_try(start, rest, start, -1);
    expect_try(start, some, WEIR_BLOCKED, 1);
    expect_try(start + 1, of_rates, start + 2 * second, 2);
    expect_try(start + second, of_rates, start + 2 * second, 2);
    expect_try(start + 2 * second, of_rates, start + 2 * second, -1);
    expect_try(start + 2 * second, of_last, start + 6 * second, 2);
    expect_try(start + 3 * second, never, WEIR_NEVER, 1);
    limits = all;
    plan_free(&few);
}

static void test_none(void **state)
{
    const struct limits none = {0};
    (void)state;
    assert_int_equal(limits_check(&none, NULL), 0);
}

/* The state of an algorithm without `init` begins as the zeroes that it is. */
static void test_without_init(void **state)
{
    static const struct weir_algorithm algorithm = {.size = sizeof(algorithm)};
    struct limit limit = {.algorithm = &algorithm, .state_words = 1};
    const struct limits one = {.items = &limit, .n = 1, .state_words = 1};
    const struct weir_instant at = {.now_ns = 1};
    uint64_t memory = 0;
    (void)state;
    limits_init(&one, &memory, &at);
    assert_int_equal(memory, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_init),
        cmocka_unit_test_setup_teardown(test_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_algorithm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_try_take, setup, teardown),
        cmocka_unit_test_setup_teardown(test_try_take_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_try_take_few, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Limits together: whether bytes can be their states. Needs the project's plugins. */
#include "limit.h"
#include "plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"

enum { HELD = 0, LOG = 1 };

static struct plugins *plugins;
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
    memset(states, 0, sizeof states);
    assert_int_equal(plugins_new(&plugins, NULL), 0);
    assert_int_equal(plan_from_text(text, sizeof text - 1, plugins, &plan, &complaints), 0);
    limits = (struct limits){.items = plan.sets[0].limits,
                             .n = plan.sets[0].limits_n,
                             .state_words = plan.sets[0].state_words};
    limits_describe(&limits);
    assert_in_range(limits.state_words, 100, sizeof states / sizeof states[0]);
    limits_init(&limits, states, &at);
    return 0;
}

static int teardown(void **state)
{
    plan_free(&plan);
    plugins_free(plugins);
    return fixture_teardown(state);
}

/* A counted resource holds what it has, and no more. */
static void test_counted(void **state)
{
    (void)state;
    assert_int_equal(limits_check(&limits, states), 0);
    states[HELD] = 3;
    states[limits.items[2].state_at] = UINT64_MAX;
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
    states[limits.items[LOG].state_at + 2] = 1000; /* where its log begins: nowhere */
    assert_int_equal(limits_check(&limits, states), -1);
    easy.check = NULL;
    limits.items[LOG].algorithm = &easy;
    assert_int_equal(limits_check(&limits, states), 0);
}

static void test_none(void **state)
{
    const struct limits none = {0};
    (void)state;
    assert_int_equal(limits_check(&none, NULL), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_algorithm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The checks of histories find what is wrong, and only that. */
#include "lib/history.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void grant(struct history *history, uint64_t since, uint64_t at, uint32_t amount)
{
    struct event event = {.since = since, .lo = at, .hi = at, .amounts = {amount}};

    history_add(history, &event);
}

static void take(struct history *history, uint64_t lo, uint64_t hi, uint32_t amount)
{
    struct event event = {.lo = lo, .hi = hi, .amounts = {amount}};

    history_add(history, &event);
}

/* Burst 3, 1 unit per 10 ns. */
static bool keeps_rate(const struct history *history)
{
    return history_keeps_rate(history, 0, 3, 100, 1000);
}

static void test_rate(void **state)
{
    struct history history = {0};
    struct refund refund = {.lo = 25, .hi = 28, .amounts = {1}};

    (void)state;
    assert_true(keeps_rate(&history));
    grant(&history, 100, 100, 3);
    grant(&history, 110, 110, 1);
    grant(&history, 0, 20, 3);
    assert_true(keeps_rate(&history));
    grant(&history, 29, 29, 1); /* 1 ns early */
    assert_false(keeps_rate(&history));
    history_add_refund(&history, &refund);
    assert_true(keeps_rate(&history));
    history_free(&history);
}

static void test_uncertain_instants_accuse_no_thread(void **state)
{
    struct history history = {0};

    (void)state;
    take(&history, 0, 20, 3);
    take(&history, 15, 200, 3);
    assert_true(keeps_rate(&history));
    take(&history, 0, 40, 8); /* 11 in [0, 40], at most 7 */
    assert_false(keeps_rate(&history));
    history_free(&history);
}

static void test_window(void **state)
{
    struct history history = {0};

    (void)state;
    grant(&history, 5, 5, 2);
    grant(&history, 14, 14, 1);
    grant(&history, 15, 15, 2);
    assert_true(history_keeps_window(&history, 0, 3, 10));
    grant(&history, 14, 14, 1);
    assert_false(history_keeps_window(&history, 0, 3, 10));
    history_free(&history);
}

static void test_order(void **state)
{
    struct history history = {0};

    (void)state;
    grant(&history, 10, 30, 1);
    grant(&history, 20, 30, 1); /* together is fine */
    grant(&history, 40, 40, 1);
    take(&history, 25, 35, 1); /* may have been after */
    assert_true(history_keeps_order(&history));
    take(&history, 25, 29, 1);
    assert_false(history_keeps_order(&history));
    history_free(&history);
    grant(&history, 10, 30, 1);
    grant(&history, 11, 29, 1);
    assert_false(history_keeps_order(&history));
    history_free(&history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_uncertain_instants_accuse_no_thread),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

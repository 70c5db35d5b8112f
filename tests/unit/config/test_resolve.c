/* SPDX-License-Identifier: MIT */
/*
 * From a definition to a plan: defaults, the layout of state, what a plan owns, and running out of
 * memory at every place. What is complained about how is the business of the corpus in
 * tests/config. Needs the project's plugins (WEIR_PLUGIN_PATH).
 */
#include "config/plan.h"
#include "os/os.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fake_os.h"
#include "lib/plans.h"

static void expect(const char *text, int rc, unsigned line, unsigned column, const char *message)
{
    struct plan plan;
    struct complaints complaints = {.file = "test"};
    int got = plan_from_text(text, strlen(text), plugins, &plan, &complaints);
    assert_string_equal(complaints.first.message, message);
    assert_int_equal(complaints.first.line, line);
    assert_int_equal(complaints.first.column, column);
    assert_int_equal(got, rc);
    assert_null(plan.sets);
    assert_null(plan.pools);
}

static void test_defaults(void **state)
{
    struct plan plan;
    (void)state;
    plan_of("version: 1\nsets: { a: {} }\npools: { p: { sets: [a] }, q: {} }\n", &plan);
    assert_int_equal(plan.sets_n, 1);
    const struct set_plan *set = &plan.sets[0];
    assert_string_equal(set->name, "a");
    assert_int_equal(set->limits_n, 0);
    assert_int_equal(set->state_words, 0);
    assert_int_equal(set->config_n, 0);
    assert_true(set->timeout_ns == WEIR_FOREVER && set->max_wait_ns == WEIR_FOREVER);
    assert_int_equal(set->max_waiters, 0);
    assert_true(set->fair && !set->strict);
    assert_true(set->backend == BACKEND_THREAD && !set->while_used);
    assert_null(plan.process_dir);
    assert_int_equal(plan.pools_n, 2);
    assert_null(plan.pools[0].balancer);
    assert_int_equal(plan.pools[0].sets_n, 1);
    assert_string_equal(plan.pools[0].sets[0], "a");
    assert_int_equal(plan.pools[1].sets_n, 0);
    plan_free(&plan);
}

/* Where a set lives, and until when; where those that are shared are. */
static void test_backend(void **state)
{
    struct plan plan;
    (void)state;
    plan_of("version: 1\nprocess_dir: /a/b\nsets:\n  t: { backend: thread }\n"
            "  p: { backend: process }\n  b: { backend: process, lifetime: boot }\n"
            "  u: { backend: process, lifetime: users }\n",
            &plan);
    assert_string_equal(plan.process_dir, "/a/b");
    assert_true(plan.sets[0].backend == BACKEND_THREAD && !plan.sets[0].while_used);
    assert_true(plan.sets[1].backend == BACKEND_PROCESS && !plan.sets[1].while_used);
    assert_true(plan.sets[2].backend == BACKEND_PROCESS && !plan.sets[2].while_used);
    assert_true(plan.sets[3].backend == BACKEND_PROCESS && plan.sets[3].while_used);
    plan_free(&plan);
    assert_null(plan.process_dir);
}

/* A balancer is loaded where there is a choice, and where one is named. */
static void test_balancers(void **state)
{
    struct plan plan;
    (void)state;
    plan_of("version: 1\nsets: { a: {}, b: {} }\n"
            "pools: { two: { sets: [a, b] }, named: { sets: [a], balancer: round_robin } }\n",
            &plan);
    assert_string_equal(plan.pools[0].balancer->info.name, "round_robin");
    assert_int_equal(plan.pools[0].state_words, 1);
    assert_string_equal(plan.pools[1].balancer->info.name, "round_robin");
    plan_free(&plan);
}

/* Each state begins where the one before ends, on whole words. */
static void test_layout(void **state)
{
    struct plan plan;
    (void)state;
    plan_of("version: 1\nsets:\n  a:\n    limits:\n"
            "      - { type: resource, key: r, capacity: 3 }\n"
            "      - { type: rate, key: s, algorithm: sliding_window, capacity: 100, window: 1s }\n"
            "      - { type: rate, key: t, algorithm: gcra, capacity: 7, window: 1s }\n"
            "      - { type: call, algorithm: token_bucket, capacity: 7, window: 1s }\n"
            "      - { type: resource, key: q, capacity: 4 }\n",
            &plan);
    const struct set_plan *set = &plan.sets[0];
    uint32_t words = 0;
    assert_int_equal(set->limits_n, 5);
    for (uint32_t i = 0; i < set->limits_n; i++) {
        assert_int_equal(set->limits[i].state_offset, words);
        assert_true(set->limits[i].state_words >= 1);
        words += set->limits[i].state_words;
    }
    assert_int_equal(set->state_words, words);
    assert_int_equal(set->limits[0].state_words, 1);
    assert_true(set->limits[1].state_words > 100);
    assert_null(set->limits[0].config);
    assert_non_null(set->limits[2].config);
    assert_int_equal((uintptr_t)set->limits[2].config % 16, 0);
    plan_free(&plan);
}

/* Refund follows the algorithm unless it is written; overuse is ignored unless it is charged. */
static void test_refund_and_overuse(void **state)
{
    static const struct {
        const char *fields;
        enum limit_refund refund;
        bool charges;
    } rows[] = {
        {"algorithm: token_bucket", REFUND_YES, false},
        {"algorithm: gcra", REFUND_YES, false},
        {"algorithm: leaky_bucket", REFUND_NO, false},
        {"algorithm: sliding_window", REFUND_NO, false},
        {"algorithm: fixed_window", REFUND_NO, false},
        {"algorithm: gcra, refund: false", REFUND_NO, false},
        {"algorithm: fixed_window, refund: true", REFUND_YES, false},
        {"algorithm: token_bucket, refund: strict", REFUND_STRICT, false},
        {"algorithm: token_bucket, every: 1s, refund: strict", REFUND_STRICT, false},
        {"algorithm: gcra, refund: strict", REFUND_STRICT, false},
        {"algorithm: leaky_bucket, refund: strict", REFUND_STRICT, false},
        {"algorithm: leaky_bucket, mode: shaper, refund: strict", REFUND_STRICT, false},
        {"algorithm: sliding_window, refund: strict", REFUND_STRICT, false},
        {"algorithm: fixed_window, refund: strict", REFUND_STRICT, false},
        {"algorithm: token_bucket, overuse: charge", REFUND_YES, true},
        {"algorithm: gcra, overuse: ignore", REFUND_YES, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plan plan;
        char text[256];
        snprintf(text, sizeof(text),
                 "version: 1\nsets: { a: { limits: [ { type: rate, key: k, capacity: 5, "
                 "window: 1s, %s } ] } }\n",
                 rows[i].fields);
        plan_of(text, &plan);
        assert_int_equal(plan.sets[0].limits[0].refund, rows[i].refund);
        assert_int_equal(plan.sets[0].limits[0].charges, rows[i].charges);
        plan_free(&plan);
    }
}

/* What is found while reading and what is found while resolving come in the order of the text. */
static void test_one_order(void **state)
{
    (void)state;
    expect("version: 1\npools:\n  p: { sets: [x] }\nsetz: {}\n", -EINVAL, 3, 15,
           "there is no set `x`");
    expect("version: 1\nsetz: {}\npools:\n  p: { sets: [x] }\n", -EINVAL, 2, 1,
           "unknown field `setz` (did you mean `sets`?)");
    expect("version: 1\npools:\n  p: { sets: [x] }\nsets: [\n", -EINVAL, 4, 7,
           "not YAML: this `[` is never closed");
}

static const char text_of_all[] =
    "version: 1\nplugin_dirs: [/nonexistent/dir]\nprocess_dir: /nonexistent\nsets:\n"
    "  a:\n    timeout: 1s\n    config: { x: y, z: w }\n    limits:\n"
    "      - { type: call, algorithm: gcra, capacity: 5, window: 1s }\n"
    "      - { type: rate, key: k, algorithm: token_bucket, capacity: 5, window: 1s, burst: 7 }\n"
    "      - { type: resource, key: r, capacity: 5 }\n"
    "  b: {}\n"
    "pools: { p: { sets: [a, b], balancer: random, seed: 3 } }\n";

static const char text_wrong[] =
    "version: 1\nsets: { abc: { timeout: x, limits: [ { type: rate, kee: k } ] } }\n"
    "pools: { p: { sets: [abd] } }\n";

/*
 * The n-th allocation fails, for every n: -ENOMEM, nothing is left behind, and it works again.
 * Either of `text` and `spec` is resolved.
 */
static void run_out_of_memory(const char *text, const struct weir_pool_spec *spec, int expected)
{
    bool failed = true;
    uint64_t n = 0;
    while (failed) {
        struct plugin_search *own;
        struct plan plan;
        struct complaints complaints = {.file = "test"};
        struct fake_os_live before = fake_os_live();
        assert_int_equal(plugin_search_new(&own, NULL), 0);
        fake_os_fail_kind_at(++n, FAKE_MEMORY, 0);
        int rc = text ? plan_from_text(text, strlen(text), own, &plan, &complaints)
                      : plan_from_spec(spec, own, NULL, &plan, &complaints);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, FAKE_MEMORY, 0);
        if (rc != (failed ? -ENOMEM : expected))
            fail_msg("allocation %u: %d, %s", (unsigned)n, rc, complaints.first.message);
        if (failed)
            assert_string_equal(complaints.first.message, "out of memory");
        plan_free(&plan);
        plugin_search_free(own);
        assert_int_equal(fake_os_live().blocks, before.blocks);
    }
    assert_true(n > 10);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    run_out_of_memory(text_of_all, NULL, 0);
    run_out_of_memory(text_wrong, NULL, -EINVAL);
}

static void test_out_of_memory_in_spec(void **state)
{
    const struct weir_setting settings[] = {{"burst", "7"}};
    const struct weir_limit_spec limit = {.size = sizeof(limit),
                                          .type = WEIR_LIMIT_CALL,
                                          .algorithm = "gcra",
                                          .capacity = 5,
                                          .window_ns = 9,
                                          .settings = settings,
                                          .settings_n = 1};
    const struct weir_set_spec set = {.size = sizeof(set),
                                      .name = "a",
                                      .limits = &limit,
                                      .limits_n = 1,
                                      .config = settings,
                                      .config_n = 1};
    const struct weir_pool_spec spec = {
        .size = sizeof(spec), .name = "p", .sets = &set, .sets_n = 1, .balancer = "random"};
    (void)state;
    run_out_of_memory(NULL, &spec, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        plans_test(test_defaults),           plans_test(test_backend),
        plans_test(test_balancers),          plans_test(test_layout),
        plans_test(test_refund_and_overuse), plans_test(test_one_order),
        plans_test(test_out_of_memory),      plans_test(test_out_of_memory_in_spec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

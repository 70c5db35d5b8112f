/* SPDX-License-Identifier: MIT */
/*
 * Parameters of plugins by type: what a plugin gets for what is written, and complaints. A secret
 * is shown nowhere. Needs the plugins of the tests (WEIR_PLUGIN_PATH): `typed` keeps what it gets.
 */
#include "config/fingerprint.h"
#include "config/plan.h"
#include "lib/fake_os.h"
#include "lib/plans.h"
#include "lib/tmpdir.h"
#include "unit/typed.h"
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

static void typed_plan(const char *fields, struct plan *ret)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "version: 1\nsets: { s: { backend: process, limits: [ { type: call, algorithm: typed, "
             "%s } ] } }\n",
             fields);
    plan_of(text, ret);
}

static const struct typed_config *typed_of(const struct plan *plan)
{
    return plan->sets[0].limits[0].config;
}

static void each_type_has_its_value(void **state)
{
    static const char *const ways[] = {
        "share: 12.5%, room: 64KiB, label: eu, steps: [10ms, \"2s\", 3m]",
        "share: 0.125, room: '65536', label: 'eu', steps: '10ms,2s , 3m'"};
    struct plan plan;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        typed_plan(ways[i], &plan);
        assert_int_equal(typed_of(&plan)->share, WEIR_RATIO_ONE / 8);
        assert_int_equal(typed_of(&plan)->room, 65536);
        assert_string_equal(typed_of(&plan)->label, "eu");
        assert_int_equal(typed_of(&plan)->steps_n, 3);
        assert_true(typed_of(&plan)->steps[0] == 10000000);
        assert_true(typed_of(&plan)->steps[1] == 2000000000);
        assert_true(typed_of(&plan)->steps[2] == UINT64_C(180000000000));
        plan_free(&plan);
    }
}

static void what_is_not_given_has_its_default(void **state)
{
    struct plan plan;
    (void)state;
    typed_plan("room: 1", &plan);
    assert_int_equal(typed_of(&plan)->share, WEIR_RATIO_ONE / 2);
    assert_string_equal(typed_of(&plan)->label, "");
    assert_int_equal(typed_of(&plan)->steps_n, 0);
    plan_free(&plan);
    typed_plan("room: 1, steps: []", &plan);
    assert_int_equal(typed_of(&plan)->steps_n, 0);
    plan_free(&plan);
}

/* A definition text says a list as a text, which is read as that list. */
static void a_definition_keeps_lists(void **state)
{
    struct fingerprint fingerprint, again;
    struct plan plan;
    (void)state;
    typed_plan("room: 1, label: 'a b', steps: [10ms, 2s]", &plan);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, NULL), 0);
    assert_non_null(strstr(fingerprint.definition, "steps: \"10ms, 2s\""));
    plan_free(&plan);
    plan_of(fingerprint.definition, &plan);
    assert_int_equal(fingerprint_new(&plan.sets[0], &again, NULL), 0);
    assert_string_equal(fingerprint.definition, again.definition);
    assert_true(fingerprint.hash == again.hash);
    fingerprint_free(&fingerprint);
    fingerprint_free(&again);
    plan_free(&plan);
}

static void expect_complaint(const char *text, const char *message)
{
    struct complaints complaints = {.file = "test"};
    struct plan plan;
    assert_int_equal(plan_from_text(text, strlen(text), plugins, &plan, &complaints), -EINVAL);
    assert_string_equal(complaints.first.message, message);
}

static void expect_refusal(const char *fields, const char *message)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "version: 1\nsets: { s: { limits: [ { type: call, algorithm: typed, %s } ] } }\n",
             fields);
    expect_complaint(text, message);
}

static void wrong_values_are_complained_about(void **state)
{
    static const struct {
        const char *fields, *message;
    } rows[] = {
        {"room: 1, share: half",
         "`share` takes a ratio such as 0.25, 1.5 or 12.5%, of at most nine decimals, not `half`"},
        {"room: 1, share: 1.01", "`share` must be at most 1, not 1.01"},
        {"room: 1, share: 0.1234567891",
         "`share` takes a ratio such as 0.25, 1.5 or 12.5%, of at most nine decimals, not "
         "`0.1234567891`"},
        {"room: 2MiB", "`room` must be at most 1MiB, not 2MiB"},
        {"room: 1, label: abcdefgh", "`label` has 8 bytes: 0 to 7 are possible"},
        {"room: 1, steps: [1s, 2]",
         "`steps` takes a duration such as 250ms, 60s or 1d, not `2` (did you mean `2s`?)"},
        {"room: 1, steps: [1s, [2s]]",
         "`steps` takes a list of single values, at most 64, without commas"},
        {"room: 1, steps: { a: b }",
         "`steps` takes a list of single values, at most 64, without commas"},
        {"room: [1, 2]", "`room` takes a single value, not a list"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_refusal(rows[i].fields, rows[i].message);
}

/* ---- sets of a pool ---- */

#define POOL(fields) "version: 1\nsets: { a: {}, b: {}, c: {} }\npools: { p: { " fields " } }\n"

static void sets_of_a_pool_have_weights_and_parameters(void **state)
{
    static const char text[] = POOL(
        "balancer: weighing, cost: 9, sets: [a, { name: b, weight: 3 }, { cost: 2, name: c }]");
    struct plan plan;
    const struct weighing_config *weighing;
    (void)state;
    plan_of(text, &plan);
    weighing = plan.pools[0].config;
    assert_int_equal(plan.pools[0].sets_n, 3);
    assert_string_equal(plan.pools[0].sets[1], "b");
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(weighing->weights[i], i == 1 ? 3 : 1);
        assert_int_equal(plan.pools[0].weights[i], i == 1 ? 3 : 1);
        assert_int_equal(weighing->costs[i], i == 2 ? 2 : 9);
    }
    plan_free(&plan);
}

static void wrong_sets_of_a_pool_are_complained_about(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {POOL("sets: [{ name: a, weight: 0 }, b]"), "`weight` must be at least 1, not 0"},
        {POOL("sets: [{ name: a, weight: 1000001 }, b]"),
         "`weight` must be at most 1M, not 1000001"},
        {POOL("sets: [{ weight: 2 }, b]"),
         "a set of a pool needs `name`, as in `{ name: a, weight: 3 }`"},
        {POOL("sets: [a, { name: a }]"), "the set `a` is named twice here"},
        {POOL("sets: [a, { name: b, wait: 3s }]"),
         "`wait` is not a field of a set of a pool; there are: name, weight"},
        {POOL("balancer: weighing, sets: [a, { name: b, colour: red }]"),
         "`colour` is not a field of a set of a pool; there are: name, weight, cost"},
        {POOL("balancer: weighing, sets: [a, { name: b, cost: 101 }]"),
         "`cost` must be at most 100, not 101"},
        {POOL("sets: [a, [b]]"), "`sets` takes a list of texts, not a list"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_complaint(rows[i].text, rows[i].message);
}

/* ---- secrets ---- */

static void engine_text(char text[1024], const char *key)
{
    snprintf(text, 1024,
             "version: 1\nbackends: { far: { type: engine, control: \"0\", key: %s } }\n", key);
}

static void expect_secret(const char *key, const char *secret)
{
    char text[1024];
    struct plan plan;
    engine_text(text, key);
    plan_of(text, &plan);
    assert_string_equal(plan.backends[0].values[2].text, secret);
    assert_int_equal(plan.backends[0].values[2].value, strlen(secret));
    plan_free(&plan);
}

static void a_secret_is_in_a_file_or_the_environment(void **state)
{
    char dir[512], path[600], key[640];
    FILE *file;
    (void)state;
    assert_true(tmpdir_make(dir, getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"));
    snprintf(path, sizeof(path), "%s/key", dir);
    snprintf(key, sizeof(key), "file:%s", path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("open\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    expect_secret(key, "open");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(setenv("WEIR_TEST_KEY", "sesame", 1), 0);
    expect_secret("env:WEIR_TEST_KEY", "sesame");
    assert_int_equal(unsetenv("WEIR_TEST_KEY"), 0);
}

/* The complaint about a secret that is written down has no place: an excerpt would show it. */
static void a_secret_is_not_shown(void **state)
{
    struct complaints complaints = {.file = "test"};
    struct plan plan;
    char text[1024];
    (void)state;
    engine_text(text, "hush");
    assert_int_equal(plan_from_text(text, strlen(text), plugins, &plan, &complaints), -EINVAL);
    assert_string_equal(complaints.first.message,
                        "line 2: `key` is a secret: write where it is, as `file:/run/secrets/x` or "
                        "`env:NAME`");
    assert_int_equal(complaints.first.line, 0);
    assert_int_equal(setenv("WEIR_TEST_KEY", "0123456789", 1), 0);
    engine_text(text, "env:WEIR_TEST_KEY");
    expect_complaint(text, "`key` has 10 bytes: 1 to 9 are possible");
    assert_int_equal(unsetenv("WEIR_TEST_KEY"), 0);
    expect_complaint(text,
                     "`key`: `env:WEIR_TEST_KEY` is in an environment variable that is not set");
    engine_text(text, "file:/nowhere/at/all");
    expect_complaint(text, "`key`: `file:/nowhere/at/all` No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        plans_test(each_type_has_its_value),
        plans_test(what_is_not_given_has_its_default),
        plans_test(a_definition_keeps_lists),
        plans_test(wrong_values_are_complained_about),
        plans_test(sets_of_a_pool_have_weights_and_parameters),
        plans_test(wrong_sets_of_a_pool_are_complained_about),
        plans_test(a_secret_is_in_a_file_or_the_environment),
        plans_test(a_secret_is_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

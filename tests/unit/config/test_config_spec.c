/* SPDX-License-Identifier: MIT */
/*
 * Specifications in code: the same plan as from a file, structs of other versions, and complaints
 * that say which set and limit they mean. Needs the project's plugins (WEIR_PLUGIN_PATH).
 */
#include "config/plan.h"
#include "os/os.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/plans.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The instance of these tests has a set `old` and a pool `oldpool`. */
static bool find(void *userdata, const char *name, bool *ret_is_pool)
{
    (void)userdata;
    *ret_is_pool = strcmp(name, "oldpool") == 0;
    return *ret_is_pool || strcmp(name, "old") == 0;
}

static const struct known_names known = {.find = find};

/* The complaints, one per line. */
static void collect(void *userdata, const struct weir_error *complaint)
{
    char *text = userdata;
    assert_int_equal(complaint->line, 0);
    assert_string_equal(complaint->file, "");
    strcat(strcat(text, complaint->message), "\n");
}

static void expect(const struct weir_pool_spec *spec, int rc, const char *messages)
{
    char text[16384] = "";
    struct plan plan;
    struct complaints complaints = {.file = "", .report = collect, .userdata = text};
    int got = plan_from_spec(spec, plugins, &known, &plan, &complaints);
    assert_string_equal(text, messages);
    assert_int_equal(got, rc);
    if (rc < 0)
        assert_null(plan.pools);
    plan_free(&plan);
}

static void test_everything(void **state)
{
    const struct weir_setting burst[] = {{"burst", "10k"}};
    const struct weir_setting config[] = {{"region", "eu"}, {"endpoint", "x"}};
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_RATE,
         .key = "tokens",
         .algorithm = "gcra",
         .capacity = 90000,
         .window_ns = UINT64_C(60000000000),
         .settings = burst,
         .settings_n = 1,
         .refund = WEIR_NO,
         .charge_overuse = WEIR_YES},
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "token_bucket",
         .capacity = 5,
         .window_ns = 1},
        {.size = sizeof(*limits), .type = WEIR_LIMIT_RESOURCE, .key = "r", .capacity = UINT64_MAX},
    };
    const struct weir_set_spec sets[] = {
        {.size = sizeof(*sets),
         .name = "a",
         .limits = limits,
         .limits_n = 3,
         .config = config,
         .config_n = 2,
         .timeout_ns = 7,
         .max_wait_ns = WEIR_FOREVER,
         .max_waiters = 9,
         .flags = WEIR_SET_STRICT | WEIR_SET_UNFAIR},
        {.size = sizeof(*sets),
         .name = "b",
         .backend = "process",
         .lifetime = "users",
         .flags = WEIR_SET_BOOTTIME},
    };
    const char *const names[] = {"old"};
    const struct weir_pool_spec spec = {.size = sizeof(spec),
                                        .name = "p",
                                        .balancer = "random",
                                        .sets = sets,
                                        .sets_n = 2,
                                        .set_names = names,
                                        .set_names_n = 1,
                                        .seed = UINT64_MAX};
    struct plan plan;
    struct complaints complaints = {.file = ""};
    (void)state;
    assert_int_equal(plan_from_spec(&spec, plugins, &known, &plan, &complaints), 0);
    assert_int_equal(plan.sets_n, 2);
    assert_int_equal(plan.pools_n, 1);
    const struct set_plan *set = &plan.sets[0];
    assert_string_equal(set->name, "a");
    assert_int_equal(set->timeout_ns, 7);
    assert_true(set->max_wait_ns == WEIR_FOREVER);
    assert_int_equal(set->max_waiters, 9);
    assert_true(set->strict);
    assert_false(set->fair);
    assert_int_equal(set->config_n, 2);
    assert_string_equal(set->config[0].name, "endpoint");
    assert_string_equal(set->config[1].value, "eu");
    assert_int_equal(set->limits_n, 3);
    assert_string_equal(set->limits[0].key, "tokens");
    assert_int_equal(set->limits[0].capacity, 10000);
    assert_int_equal(set->limits[0].refund, REFUND_NO);
    assert_true(set->limits[0].charges);
    assert_string_equal(set->limits[1].key, "call_count");
    assert_int_equal(set->limits[1].refund, REFUND_YES);
    assert_false(set->limits[1].charges);
    assert_null(set->limits[2].algorithm);
    assert_true(set->limits[2].capacity == UINT64_MAX);
    assert_int_equal(set->backend, BACKEND_THREAD);
    assert_int_equal(plan.sets[1].backend, BACKEND_PROCESS);
    assert_true(plan.sets[1].while_used);
    assert_null(plan.process_dir);
    assert_true(plan.sets[1].fair);
    assert_true(plan.sets[1].boottime && !plan.sets[0].boottime);
    assert_true(plan.sets[1].timeout_ns == WEIR_FOREVER);
    const struct pool_plan *pool = &plan.pools[0];
    assert_string_equal(pool->balancer->info.name, "random");
    assert_true(pool->seed == UINT64_MAX);
    assert_int_equal(pool->sets_n, 3);
    assert_string_equal(pool->sets[2], "old");
    plan_free(&plan);
}

static void test_nameless_and_empty(void **state)
{
    const struct weir_pool_spec spec = {.size = sizeof(spec)};
    struct plan plan;
    struct complaints complaints = {.file = ""};
    (void)state;
    assert_int_equal(plan_from_spec(&spec, plugins, NULL, &plan, &complaints), 0);
    assert_int_equal(plan.pools_n, 1);
    assert_null(plan.pools[0].name);
    assert_null(plan.pools[0].balancer);
    assert_int_equal(plan.pools[0].sets_n, 0);
    plan_free(&plan);
}

static void test_backend(void **state)
{
    const struct weir_set_spec sets[] = {
        {.size = sizeof(*sets), .name = "a", .backend = "proces"},
        {.size = sizeof(*sets), .name = "b", .lifetime = "boot"},
        {.size = sizeof(*sets), .name = "c", .backend = "thread", .lifetime = "users"},
        {.size = sizeof(*sets), .name = "d", .backend = "process", .lifetime = "hour"},
        {.size = sizeof(*sets), .name = "e", .backend = "process"},
    };
    (void)state;
    expect(&(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec),
                                    .sets = sets,
                                    .sets_n = LENGTH(sets)},
           -EINVAL,
           "set `a`: `backend` takes thread or process, not `proces` (did you mean `process`?)\n"
           "set `b`: `lifetime` is for shared sets: it needs `backend: process`\n"
           "set `c`: `lifetime` is for shared sets: it needs `backend: process`\n"
           "set `d`: `lifetime` takes boot or users, not `hour`\n");
}

/* Structs of a later version lie further apart, and of an earlier one nearer together. */
static void test_other_versions(void **state)
{
    struct {
        struct weir_limit_spec known;
        uint64_t later[2];
    } limits[2] = {
        {{.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "k", .capacity = 3}, {0}},
        {{.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "j", .capacity = 4}, {0}},
    };
    /* Before the times were added: name, limits, limits_n, config, config_n. */
    enum { EARLIER = offsetof(struct weir_set_spec, timeout_ns) };
    struct weir_set_spec full[2] = {
        {.size = EARLIER, .name = "a", .limits = &limits[0].known, .limits_n = 2, .timeout_ns = 1},
        {.size = EARLIER, .name = "b", .timeout_ns = 1},
    };
    _Alignas(struct weir_set_spec) unsigned char sets[2 * EARLIER];
    memcpy(sets, &full[0], EARLIER);
    memcpy(sets + EARLIER, &full[1], EARLIER);
    const struct weir_pool_spec spec = {
        .size = sizeof(spec), .sets = (const void *)sets, .sets_n = 2};
    struct plan plan;
    struct complaints complaints = {.file = ""};
    (void)state;
    assert_int_equal(plan_from_spec(&spec, plugins, NULL, &plan, &complaints), 0);
    assert_int_equal(plan.sets_n, 2);
    assert_true(plan.sets[0].timeout_ns == WEIR_FOREVER);
    assert_int_equal(plan.sets[0].limits_n, 2);
    assert_string_equal(plan.sets[0].limits[1].key, "j");
    assert_int_equal(plan.sets[0].limits[1].capacity, 4);
    assert_string_equal(plan.sets[1].name, "b");
    plan_free(&plan);

    limits[1].later[1] = 1; /* a field that is unknown here */
    expect(
        &spec, -EINVAL,
        "set `a`, limit 2: struct weir_limit_spec sets fields that this version does not know\n");
}

static void test_sizes(void **state)
{
    static const size_t wrong[] = {0, 1, 8, 15, sizeof(struct weir_pool_spec) + 1, 4104, SIZE_MAX};
    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        char message[256];
        snprintf(message, sizeof(message),
                 "size of struct weir_pool_spec is %zu: set it to sizeof(struct weir_pool_spec)\n",
                 wrong[i]);
        expect(&(struct weir_pool_spec){.size = wrong[i]}, -EINVAL, message);
    }
    const struct weir_limit_spec limit = {.type = WEIR_LIMIT_CALL};
    const struct weir_set_spec sets[] = {
        {.size = sizeof(*sets), .name = "a", .limits = &limit, .limits_n = 1},
        {.size = 0, .name = "b"},
    };
    expect(
        &(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec), .sets = sets, .sets_n = 2},
        -EINVAL,
        "set `a`, limit 1: size of struct weir_limit_spec is 0: set it to sizeof(struct "
        "weir_limit_spec)\n"
        "set 2: size of struct weir_set_spec is 0: set it to sizeof(struct weir_set_spec)\n");
}

static void test_arrays(void **state)
{
    static const struct weir_limit_spec limits[WEIR_LIMITS_MAX + 1];
    const struct weir_setting half[] = {{"a", NULL}, {NULL, "b"}};
    const struct weir_set_spec sets[] = {
        {.size = sizeof(*sets), .name = "a", .limits_n = 1},
        {.size = sizeof(*sets), .name = "b", .limits = limits, .limits_n = WEIR_LIMITS_MAX + 1},
        {.size = sizeof(*sets), .name = "c", .config = half, .config_n = 2},
        {.size = sizeof(*sets), .name = "d", .flags = 64},
        {.size = sizeof(*sets)},
    };
    const char *const names[] = {NULL};
    (void)state;
    expect(&(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec),
                                    .name = "p",
                                    .sets = sets,
                                    .sets_n = LENGTH(sets),
                                    .set_names = names,
                                    .set_names_n = 1,
                                    .settings_n = 2},
           -EINVAL,
           "set `a`: limits is NULL, but limits_n is 1\n"
           "set `b`: limits_n is 65: at most 64 are possible\n"
           "set `c`: a setting needs a name and a value, not NULL\n"
           "set `c`: a setting needs a name and a value, not NULL\n"
           "set `d`: flags 0x40 are not known\n"
           "set 5: needs a name\n"
           "pool `p`: settings is NULL, but settings_n is 2\n"
           "pool `p`: a name in set_names is NULL\n");
    expect(&(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec), .sets_n = SIZE_MAX},
           -EINVAL, "sets is NULL, but sets_n is 18446744073709551615\n");
}

static void test_limits(void **state)
{
    const struct weir_setting again[] = {{"capacity", "3"}, {"brust", "3"}};
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(*limits)},
        {.size = sizeof(*limits), .type = (enum weir_limit_type)9},
        {.size = sizeof(*limits), .type = WEIR_LIMIT_RATE},
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "gcra",
         .capacity = 1,
         .window_ns = 1,
         .settings = again,
         .settings_n = 2},
        {.size = sizeof(*limits), .type = WEIR_LIMIT_RESOURCE, .key = "r"},
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "gcra",
         .capacity = UINT64_MAX,
         .window_ns = UINT64_MAX,
         .refund = (enum weir_choice)4,
         .charge_overuse = WEIR_STRICTLY},
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_RESOURCE,
         .key = "r",
         .capacity = 1,
         .refund = WEIR_YES,
         .charge_overuse = WEIR_NO},
    };
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = "a", .limits = limits, .limits_n = LENGTH(limits)};
    (void)state;
    expect(
        &(struct weir_pool_spec){.size = sizeof(struct weir_pool_spec), .sets = &set, .sets_n = 1},
        -EINVAL,
        "set `a`, limit 2: type is 9: use WEIR_LIMIT_RATE, WEIR_LIMIT_CALL or "
        "WEIR_LIMIT_RESOURCE\n"
        "set `a`, limit 6: refund is 4: use WEIR_DEFAULT, WEIR_YES, WEIR_NO or WEIR_STRICTLY\n"
        "set `a`, limit 6: charge_overuse is 3: use WEIR_DEFAULT, WEIR_YES or WEIR_NO\n");
    const struct weir_limit_spec spelt[] = {limits[0], limits[2], limits[3], limits[4], limits[6]};
    const struct weir_set_spec other = {
        .size = sizeof(set), .name = "a", .limits = spelt, .limits_n = LENGTH(spelt)};
    expect(
        &(struct weir_pool_spec){
            .size = sizeof(struct weir_pool_spec), .sets = &other, .sets_n = 1},
        -EINVAL,
        "set `a`, limit 1: a limit needs `type`: rate, call or resource\n"
        "set `a`, limit 2: a rate needs `algorithm`: token_bucket, for example\n"
        "set `a`, limit 2: a rate needs `key`: its name in requests\n"
        "set `a`, limit 3: `capacity` is given twice\n"
        "set `a`, limit 3: unknown field `brust` (did you mean `burst`?)\n"
        "set `a`, limit 4: a counted resource needs `capacity`: how many units may be held at "
        "once\n"
        "set `a`, limit 5: `refund` is for rates and calls: a resource always returns everything\n"
        "set `a`, limit 5: `overuse` is for rates: nothing else can be used beyond what was "
        "granted\n");
}

static void test_lease(void **state)
{
    struct weir_limit_spec limit = {.size = sizeof(limit),
                                    .type = WEIR_LIMIT_CALL,
                                    .algorithm = "gcra",
                                    .capacity = 9,
                                    .window_ns = 9,
                                    .lease = 9};
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = "a", .limits = &limit, .limits_n = 1};
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    struct complaints complaints = {.file = ""};
    struct plan plan;
    (void)state;
    assert_int_equal(plan_from_spec(&spec, plugins, &known, &plan, &complaints), 0);
    assert_int_equal(plan.sets[0].limits[0].lease, 9);
    plan_free(&plan);
    limit.lease = 10;
    expect(&spec, -EINVAL, "set `a`, limit 1: `lease` must be at most 9, not 10\n");
    limit.lease = 0;
    limit.enforce = "10%";
    assert_int_equal(plan_from_spec(&spec, plugins, &known, &plan, &complaints), 0);
    assert_int_equal(plan.sets[0].limits[0].shadow, 90);
    plan_free(&plan);
    limit.enforce = "1.5%";
    expect(&spec, -EINVAL, "set `a`, limit 1: `enforce` takes whole percent, not `1.5%`\n");
    limit.enforce = NULL;
    limit.lease = 1;
    limit.size = offsetof(struct weir_limit_spec, lease); /* of a version that knew none */
    assert_int_equal(plan_from_spec(&spec, plugins, &known, &plan, &complaints), 0);
    assert_int_equal(plan.sets[0].limits[0].lease, 0);
    plan_free(&plan);
}

static void test_names(void **state)
{
    const struct weir_set_spec sets[] = {{.size = sizeof(*sets), .name = "a"},
                                         {.size = sizeof(*sets), .name = "a"}};
    const struct weir_set_spec taken[] = {{.size = sizeof(*sets), .name = "old"},
                                          {.size = sizeof(*sets), .name = "oldpool"}};
    const struct weir_set_spec odd[] = {{.size = sizeof(*sets), .name = ""},
                                        {.size = sizeof(*sets), .name = "\xff"}};
    const char *const missing[] = {"old", "ald", "oldpool"};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = sets, .sets_n = 2};
    (void)state;
    expect(&spec, -EEXIST,
           "the name `a` is already that of a set: sets and pools share their names\n"
           "the set `a` is named twice here\n");
    spec.sets = taken;
    expect(&spec, -EEXIST,
           "the name `old` is already that of a set: sets and pools share their names\n"
           "the name `oldpool` is already that of a pool: sets and pools share their names\n"
           "`oldpool` is a pool: a pool is made of sets\n");
    spec.sets = odd;
    spec.sets_n = 1;
    expect(&spec, -EINVAL, "the name of a set must not be empty\n");
    spec.sets = &odd[1];
    spec.name = "old";
    expect(&spec, -EINVAL,
           "the name of a set is not UTF-8\n"
           "the name `old` is already that of a set: sets and pools share their names\n");
    spec = (struct weir_pool_spec){
        .size = sizeof(spec), .name = "p", .set_names = missing, .set_names_n = 3};
    expect(&spec, -ENOENT,
           "pool `p`: there is no set `ald`\n"
           "pool `p`: `oldpool` is a pool: a pool is made of sets\n");
    spec = (struct weir_pool_spec){.size = sizeof(spec), .name = "oldpool"};
    expect(&spec, -EEXIST,
           "the name `oldpool` is already that of a pool: sets and pools share their names\n");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        plans_test(test_everything), plans_test(test_nameless_and_empty),
        plans_test(test_backend),    plans_test(test_other_versions),
        plans_test(test_sizes),      plans_test(test_arrays),
        plans_test(test_limits),     plans_test(test_lease),
        plans_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

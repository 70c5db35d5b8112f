/* SPDX-License-Identifier: MIT */
/*
 * Fingerprints: what is written down reads back as the same set, whatever its names are; the hash
 * tells apart what differs in meaning, and nothing else. Needs the project's plugins
 * (WEIR_PLUGIN_PATH).
 */
#include "config/fingerprint.h"
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
#include "lib/require.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The plan of a whole text, which defines one set. */
static void plan_of_set(const char *text, struct plan *ret)
{
    plan_of(text, ret);
    assert_int_equal(ret->sets_n, 1);
}

/* The fingerprint of a whole text. */
static struct fingerprint fingerprint_of(const char *text)
{
    struct fingerprint fingerprint;
    struct plan plan;
    plan_of_set(text, &plan);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, NULL), 0);
    plan_free(&plan);
    return fingerprint;
}

/* The fingerprint of a set's fields. */
static struct fingerprint fingerprint_of_fields(const char *fields)
{
    char text[4096];
    snprintf(text, sizeof(text), "version: 1\nsets: { a: { %s } }\n", fields);
    return fingerprint_of(text);
}

static void assert_reads_back(struct fingerprint *fingerprint)
{
    struct fingerprint again = fingerprint_of(fingerprint->definition);
    assert_string_equal(again.definition, fingerprint->definition);
    assert_true(again.hash == fingerprint->hash);
    fingerprint_free(&again);
}

/* What is each process's own is left out; the rest is there as it was written. */
static void test_definition(void **state)
{
    struct fingerprint fingerprint = fingerprint_of(
        "version: 1\nprocess_dir: /a\nsets:\n  some set:\n    max_waiters: 5k\n    fair: false\n   "
        " clock: boottime\n"
        "    timeout: 1s\n    max_wait: 2s\n    strict: true\n    config: { x: y }\n"
        "    lifetime: users\n    backend: process\n    limits:\n"
        "      - { overuse: ignore, algorithm: gcra, key: k, type: rate, window: 60s, burst: '7',\n"
        "          refund: false, capacity: 10k }\n"
        "      - { type: call, algorithm: leaky_bucket, capacity: 1, window: 1s, mode: shaper }\n"
        "      - { type: resource, key: \"a \\\"b\\\"\", capacity: 2 }\n");
    (void)state;
    assert_string_equal(
        fingerprint.definition,
        "{version: 1, sets: {\"some set\": {backend: process, lifetime: users, fair: false, "
        "clock: boottime, max_waiters: 5000, limits: [{type: rate, key: k, algorithm: gcra, "
        "window: 60s, "
        "burst: 7, capacity: 10k, refund: false, overuse: ignore}, {type: call, key: call_count, "
        "algorithm: leaky_bucket, capacity: 1, window: 1s, mode: shaper}, {type: resource, "
        "key: \"a \\\"b\\\"\", capacity: 2}]}}}");
    assert_reads_back(&fingerprint);
    fingerprint_free(&fingerprint);
    assert_null(fingerprint.definition);

    fingerprint = fingerprint_of("version: 1\nsets: { a: { backend: process } }\n");
    assert_string_equal(fingerprint.definition,
                        "{version: 1, sets: {a: {backend: process, lifetime: boot, limits: []}}}");
    assert_reads_back(&fingerprint);
    fingerprint_free(&fingerprint);

    fingerprint =
        fingerprint_of("version: 1\nsets: { a: { backend: process, subjects: { evict: none, "
                       "memory: 1MiB, max: 10k }, limits: [ { type: resource, key: r, "
                       "capacity: 2 } ] } }\n");
    assert_string_equal(fingerprint.definition,
                        "{version: 1, sets: {a: {backend: process, lifetime: boot, subjects: {max: "
                        "10000, memory: 1048576, evict: none}, limits: [{type: resource, key: r, "
                        "capacity: 2}]}}}");
    assert_reads_back(&fingerprint);
    fingerprint_free(&fingerprint);

    fingerprint = fingerprint_of("version: 1\nsets: { a: {} }\n");
    assert_string_equal(fingerprint.definition,
                        "{version: 1, sets: {a: {backend: thread, limits: []}}}");
    assert_reads_back(&fingerprint);
    fingerprint_free(&fingerprint);
}

#define KEYED(keyed)             "subjects: { " keyed " }, " LIMITS("{ type: resource, key: r, capacity: 2 }")
#define LIMITS(limits)           "backend: process, limits: [ " limits " ]"
#define RATE(fields)             "{ type: rate, key: k, " fields " }"
#define BUCKET(capacity, window) "algorithm: token_bucket, capacity: " capacity ", window: " window

/* Written otherwise, but the same set. */
static void test_same(void **state)
{
    static const char *const rows[][2] = {
        {LIMITS(RATE(BUCKET("10", "60s"))), LIMITS(RATE(BUCKET("10", "1m")))},
        {LIMITS(RATE(BUCKET("1000", "1s"))), LIMITS(RATE(BUCKET("1k", "1000ms")))},
        {LIMITS(RATE(BUCKET("10", "1s"))), LIMITS(RATE(BUCKET("10", "1s") ", burst: 10"))},
        {LIMITS(RATE(BUCKET("10", "1s"))), LIMITS(RATE(BUCKET("10", "1s") ", refund: true"))},
        {LIMITS(RATE(BUCKET("10", "1s"))), LIMITS(RATE(BUCKET("10", "1s") ", overuse: ignore"))},
        {LIMITS(RATE("algorithm: gcra, capacity: 1, window: 1s, burst: 2")),
         LIMITS(RATE("burst: 2, window: 1s, capacity: 1, algorithm: gcra"))},
        {LIMITS("{ type: call, algorithm: gcra, capacity: 1, window: 1s }"),
         LIMITS("{ type: call, key: call_count, algorithm: gcra, capacity: 1, window: 1s }")},
        {LIMITS("{ type: resource, key: r, capacity: 1k }"),
         LIMITS("{ type: resource, key: r, capacity: 1000 }")},
        {"backend: process", "backend: process, lifetime: boot, fair: true, clock: monotonic"},
        {"backend: process", "backend: process, timeout: 1s, max_wait: 2s, strict: true"},
        {"backend: process", "backend: process, config: { a: b }"},
        {"backend: process, max_waiters: 1000", "backend: process, max_waiters: 1k"},
        {KEYED("max: 10"), KEYED("evict: oldest, max: 10")},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct fingerprint one = fingerprint_of_fields(rows[i][0]);
        struct fingerprint other = fingerprint_of_fields(rows[i][1]);
        if (one.hash != other.hash)
            fail_msg("row %zu: %s\n%s", i, one.definition, other.definition);
        fingerprint_free(&one);
        fingerprint_free(&other);
    }
}

/* All of these differ from each other in meaning. */
static void test_different(void **state)
{
    static const char *const rows[] = {
        "backend: process",
        "backend: process, lifetime: users",
        "backend: process, fair: false",
        "backend: process, clock: boottime",
        "backend: process, max_waiters: 1",
        "backend: process, max_waiters: 2",
        KEYED("max: 10"),
        KEYED("max: 11"),
        KEYED("max: 10, evict: none"),
        KEYED("max: 10, evict: random"),
        KEYED("max: 10, memory: 1MiB"),
        LIMITS(RATE(BUCKET("10", "60s"))),
        LIMITS(RATE(BUCKET("10", "61s"))),
        LIMITS(RATE(BUCKET("11", "60s"))),
        LIMITS(RATE(BUCKET("10", "60s") ", initial: 9")),
        LIMITS(RATE(BUCKET("10", "60s") ", initial: 8")),
        LIMITS(RATE(BUCKET("10", "60s") ", burst: 9")),
        LIMITS(RATE(BUCKET("10", "60s") ", refund: false")),
        LIMITS(RATE(BUCKET("10", "60s") ", refund: strict")),
        LIMITS(RATE(BUCKET("10", "60s") ", overuse: charge")),
        LIMITS("{ type: rate, key: l, " BUCKET("10", "60s") " }"),
        LIMITS("{ type: call, key: k, " BUCKET("10", "60s") " }"),
        LIMITS(RATE("algorithm: gcra, capacity: 10, window: 60s")),
        LIMITS(RATE("algorithm: gcra, capacity: 10, window: 60s, lease: 9")),
        LIMITS(RATE("algorithm: gcra, capacity: 10, window: 60s, lease: 10")),
        LIMITS(RATE("algorithm: gcra, capacity: 10, window: 60s, shadow: true")),
        LIMITS(RATE("algorithm: gcra, capacity: 10, window: 60s, enforce: 10%")),
        LIMITS(RATE("algorithm: sliding_window, capacity: 10, window: 60s")),
        LIMITS(RATE("algorithm: fixed_window, capacity: 10, window: 60s")),
        LIMITS(RATE("algorithm: fixed_window, capacity: 10, window: 60s, anchor: epoch")),
        LIMITS(RATE("algorithm: leaky_bucket, capacity: 10, window: 60s")),
        LIMITS(RATE("algorithm: leaky_bucket, capacity: 10, window: 60s, mode: shaper")),
        LIMITS("{ type: resource, key: k, capacity: 1 }"),
        LIMITS("{ type: resource, key: k, capacity: 2 }"),
        LIMITS("{ type: resource, key: k, capacity: 1 }, { type: resource, key: k, capacity: 2 }"),
        LIMITS("{ type: resource, key: k, capacity: 2 }, { type: resource, key: k, capacity: 1 }"),
        LIMITS("{ type: resource, key: kk, capacity: 1 }, { type: resource, key: k, capacity: 1 }"),
        LIMITS("{ type: resource, key: k, capacity: 1 }, { type: resource, key: kk, capacity: 1 }"),
    };
    uint64_t hashes[LENGTH(rows)];
    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct fingerprint fingerprint = fingerprint_of_fields(rows[i]);
        assert_reads_back(&fingerprint);
        hashes[i] = fingerprint.hash;
        fingerprint_free(&fingerprint);
        for (size_t j = 0; j < i; j++) {
            if (hashes[i] == hashes[j])
                fail_msg("the same: %s\n%s", rows[i], rows[j]);
        }
    }
}

static uint64_t hash_of(const struct set_plan *plan)
{
    struct fingerprint fingerprint;
    assert_int_equal(fingerprint_new(plan, &fingerprint, NULL), 0);
    uint64_t hash = fingerprint.hash;
    fingerprint_free(&fingerprint);
    return hash;
}

/* What no text can change by itself: another plugin under the same name. */
static void test_plugin(void **state)
{
    struct plan plan;
    (void)state;
    plan_of_set("version: 1\nsets: { a: { " LIMITS(RATE(BUCKET("10", "60s"))) " } }\n", &plan);
    struct set_plan *set = &plan.sets[0];
    struct limit *limit = &set->limits[0];
    const char *name = limit->algorithm_name, *version = limit->algorithm_version;
    struct fingerprint before;
    assert_int_equal(fingerprint_new(set, &before, NULL), 0);
    assert_non_null(version);
    limit->algorithm_version = "1.0.1";
    assert_true(hash_of(set) != before.hash);
    limit->algorithm_version = version;
    limit->algorithm_state_id++;
    assert_true(hash_of(set) != before.hash);
    limit->algorithm_state_id--;
    limit->algorithm_name = "token_buckets";
    assert_true(hash_of(set) != before.hash);
    limit->algorithm_name = name;
    limit->state_words++;
    assert_true(hash_of(set) != before.hash);
    limit->state_words--;
    assert_true(limit->config_size >= 8);
    for (size_t i = 0; i < limit->config_size; i++) {
        ((unsigned char *)limit->config)[i] ^= 1;
        assert_true(hash_of(set) != before.hash);
        ((unsigned char *)limit->config)[i] ^= 1;
    }
    assert_true(hash_of(set) == before.hash);
    fingerprint_free(&before);
    plan_free(&plan);
}

/* A random name of 1 to 255 bytes that a set or key may have. */
static void random_name(uint64_t *rng, char name[256])
{
    static const uint32_t usual[] = {'"',    '\\',   ' ',    ':',     '#',     '{',     '}',
                                     '\'',   ',',    '&',    '*',     '!',     '|',     '>',
                                     '%',    '@',    '-',    '?',     '[',     ']',     '~',
                                     0xa0,   0xad,   0x2028, 0x2029,  0xfeff,  0xfffd,  0xfffe,
                                     0xffff, 0xd7ff, 0xe000, 0x10000, 0x1f600, 0x10ffff};
    static const char *const words[] = {"null", "NULL", "~", "true", "1", "<<", "-", "..."};
    if (random_below(rng, 16) == 0) {
        strcpy(name, words[random_below(rng, LENGTH(words))]);
        return;
    }
    size_t length = 1 + (size_t)random_below(rng, random_below(rng, 4) ? 8 : 255), n = 0;
    while (n < length) {
        uint32_t point = 0x20 + (uint32_t)random_below(rng, 0x5f);
        if (random_below(rng, 2) == 0)
            point = usual[random_below(rng, LENGTH(usual))];
        unsigned char bytes[4];
        size_t size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        for (size_t i = size; i > 1; i--, point >>= 6)
            bytes[i - 1] = (unsigned char)(0x80 | (point & 0x3f));
        bytes[0] = (unsigned char)(size == 1 ? point : (0xf00u >> size & 0xf0u) | point);
        if (n + size > 255)
            break;
        memcpy(name + n, bytes, size);
        n += size;
    }
    name[n] = '\0';
}

/* Sets in code can have any names and keys; they come back from their definitions. */
static void test_names(void **state)
{
    uint64_t rng = test_seed;
    (void)state;
    for (uint64_t round = 0; round < effort_from("WEIR_ROUNDS", 3000); round++) {
        char name[256], key[256];
        struct plan plan;
        struct complaints complaints = {.file = ""};
        struct fingerprint fingerprint;
        random_name(&rng, name);
        random_name(&rng, key);
        const struct weir_limit_spec limit = {
            .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = key, .capacity = 3};
        const struct weir_set_spec set = {.size = sizeof(set),
                                          .name = name,
                                          .limits = &limit,
                                          .limits_n = 1,
                                          .backend = "process"};
        const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
        if (plan_from_spec(&spec, plugins, NULL, &plan, &complaints) < 0)
            fail_msg("seed %" PRIu64 ": %s", test_seed, complaints.first.message);
        assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, NULL), 0);
        plan_free(&plan);
        assert_reads_back(&fingerprint);
        plan_of_set(fingerprint.definition, &plan);
        assert_string_equal(plan.sets[0].name, name);
        assert_string_equal(plan.sets[0].limits[0].key, key);
        plan_free(&plan);
        fingerprint_free(&fingerprint);
    }
}

/* As many limits as there may be, with keys such that the definition has `length` bytes. */
static void long_plan(size_t length, struct plan *ret)
{
    static char text[2 * FINGERPRINT_TEXT_MAX], key[256];
    const char *shortest =
        "{version: 1, sets: {a: {backend: process, lifetime: boot, limits: []}}}";
    size_t n = (size_t)sprintf(text, "version: 1\nsets: { a: { backend: process, limits: [");
    size_t left = length - strlen(shortest), each = strlen("{type: resource, key: , capacity: 3}");
    for (size_t i = 64; i > 0; i--) {
        size_t size = left / i - each - (i < 64 ? 2 : 0);
        memset(key, 'k', size);
        key[size] = '\0';
        n += (size_t)sprintf(text + n, "{type: resource, key: %s, capacity: 3},", key);
        left -= size + each + (i < 64 ? 2 : 0);
    }
    sprintf(text + n, "] } }\n");
    plan_of_set(text, ret);
}

static void test_length(void **state)
{
    struct fingerprint fingerprint;
    struct weir_error error;
    struct plan plan;
    (void)state;
    long_plan(FINGERPRINT_TEXT_MAX - 1, &plan);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, &error), 0);
    assert_int_equal(strlen(fingerprint.definition), FINGERPRINT_TEXT_MAX - 1);
    assert_reads_back(&fingerprint);
    fingerprint_free(&fingerprint);
    plan_free(&plan);
    long_plan(FINGERPRINT_TEXT_MAX, &plan);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, &error), -E2BIG);
    assert_int_equal(error.code, -E2BIG);
    assert_string_equal(error.message,
                        "the definition of set `a` takes 16384 bytes, and that of a shared set at "
                        "most 16383: use shorter keys or fewer limits");
    assert_null(fingerprint.definition);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, NULL), -E2BIG);
    plan_free(&plan);
}

static void test_not_text(void **state)
{
    struct fingerprint fingerprint;
    struct weir_error error;
    struct plan plan;
    (void)state;
    plan_of_set("version: 1\nsets: { a: { " LIMITS(RATE(BUCKET("10", "60s"))) " } }\n", &plan);
    char *value = strchr(plan.sets[0].limits[0].settings_text, '\0') + 1;
    assert_string_equal(value, "10");
    value[1] = '\xff';
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, &error), -EINVAL);
    assert_string_equal(error.message, "set `a`: the definition of a shared set must be UTF-8");
    assert_null(fingerprint.definition);
    plan_free(&plan);
}

static void test_out_of_memory(void **state)
{
    struct fingerprint fingerprint;
    struct weir_error error;
    struct plan plan;
    (void)state;
    plan_of_set("version: 1\nsets: { a: {} }\n", &plan);
    fake_os_fail_kind_at(1, FAKE_MEMORY, 0);
    assert_int_equal(fingerprint_new(&plan.sets[0], &fingerprint, &error), -ENOMEM);
    assert_true(fake_os_has_failed());
    fake_os_fail_kind_at(0, FAKE_MEMORY, 0);
    assert_string_equal(error.message, "out of memory");
    assert_null(fingerprint.definition);
    plan_free(&plan);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        plans_test(test_definition), plans_test(test_same),          plans_test(test_different),
        plans_test(test_plugin),     plans_test(test_names),         plans_test(test_length),
        plans_test(test_not_text),   plans_test(test_out_of_memory),
    };
    seed_begin();
    print_message("WEIR_SEED=%" PRIu64 "\n", test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

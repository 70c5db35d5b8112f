/* SPDX-License-Identifier: MIT */
/*
 * Reading YAML into a definition: what is kept, with which marks, and the bounds. The complaints
 * themselves are the business of the corpus in tests/config.
 */
#include "base/utf8.h"
#include "config/config_ast.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fixture.h"

/* Reads a text; the complaints are told at once, the first stays in `complaints->first`. */
static int parse(const char *text, size_t length, struct config_ast *ret,
                 struct complaints *complaints)
{
    *complaints = (struct complaints){.file = "test"};
    int rc = config_yaml_parse(text, length, ret, complaints);
    complaints_report(complaints);
    return rc;
}

static void expect(const char *text, int rc, const char *message)
{
    struct config_ast definition;
    struct complaints complaints;
    int got = parse(text, strlen(text), &definition, &complaints);
    config_ast_free(&definition);
    assert_string_equal(complaints.first.message, message);
    assert_int_equal(got, rc);
}

static void assert_scalar(const struct config_value *scalar, const char *text, unsigned line,
                          unsigned column)
{
    assert_string_equal(scalar->text, text);
    assert_int_equal(scalar->mark.line, line);
    assert_int_equal(scalar->mark.column, column);
}

static void test_everything(void **state)
{
    static const char text[] = "version: 1\n"
                               "plugin_dirs: [ /a, '/b' ]\n"
                               "sets:\n"
                               "  é x:\n"
                               "    backend: thread\n"
                               "    timeout: \"30s\"\n"
                               "    max_wait: 1s\n"
                               "    max_waiters: 3\n"
                               "    strict: true\n"
                               "    fair: false\n"
                               "    config: { a: 'b' }\n"
                               "    limits:\n"
                               "      - { type: rate, key: k, algorithm: gcra, refund: true,\n"
                               "          overuse: charge, burst: 7 }\n"
                               "  s: { lifetime: boot, backend: process }\n"
                               "process_dir: '/c'\n"
                               "clock: tsc\n"
                               "pools:\n"
                               "  p: { balancer: random, seed: 4, sets: [ \"é x\" ], w: 1 }\n";
    struct config_ast definition;
    struct complaints complaints;
    (void)state;
    assert_int_equal(parse(text, sizeof(text) - 1, &definition, &complaints), 0);
    assert_int_equal(definition.plugin_dirs_n, 2);
    assert_scalar(&definition.plugin_dirs[0], "/a", 2, 16);
    assert_scalar(&definition.plugin_dirs[1], "/b", 2, 20);
    assert_scalar(&definition.process_dir, "/c", 16, 14);
    assert_scalar(&definition.clock, "tsc", 17, 8);
    assert_int_equal(definition.sets_n, 2);
    assert_scalar(&definition.sets[1].lifetime, "boot", 15, 18);
    assert_scalar(&definition.sets[1].backend, "process", 15, 33);
    const struct ast_set *set = &definition.sets[0];
    assert_scalar(&set->name, "é x", 4, 3);
    assert_null(set->lifetime.text);
    assert_scalar(&set->backend, "thread", 5, 14);
    assert_scalar(&set->timeout, "30s", 6, 14);
    assert_scalar(&set->max_wait, "1s", 7, 15);
    assert_scalar(&set->max_waiters, "3", 8, 18);
    assert_scalar(&set->strict, "true", 9, 13);
    assert_scalar(&set->fair, "false", 10, 11);
    assert_int_equal(set->config.n, 1);
    assert_scalar(&set->config.items[0].name, "a", 11, 15);
    assert_scalar(&set->config.items[0].value, "b", 11, 18);
    assert_int_equal(set->limits_n, 1);
    assert_int_equal(set->limits[0].name.mark.line, 13);
    assert_int_equal(set->limits[0].name.mark.column, 9);
    assert_scalar(&set->limits[0].type, "rate", 13, 17);
    assert_scalar(&set->limits[0].key, "k", 13, 28);
    assert_scalar(&set->limits[0].algorithm, "gcra", 13, 42);
    assert_scalar(&set->limits[0].refund, "true", 13, 56);
    assert_scalar(&set->limits[0].overuse, "charge", 14, 20);
    assert_int_equal(set->limits[0].settings.n, 1);
    assert_scalar(&set->limits[0].settings.items[0].name, "burst", 14, 28);
    assert_scalar(&set->limits[0].settings.items[0].value, "7", 14, 35);
    assert_int_equal(definition.pools_n, 1);
    const struct ast_pool *pool = &definition.pools[0];
    assert_scalar(&pool->name, "p", 19, 3);
    assert_scalar(&pool->balancer, "random", 19, 18);
    assert_scalar(&pool->seed, "4", 19, 32);
    assert_int_equal(pool->sets_n, 1);
    assert_scalar(&pool->sets[0].name, "é x", 19, 43);
    assert_int_equal(pool->settings.n, 1);
    assert_scalar(&pool->settings.items[0].name, "w", 19, 52);
    config_ast_free(&definition);
    assert_null(definition.sets);
}

/* What was given in a wrong shape is marked, so that it is not called missing later. What has a
 * name that only plugins know is complained about by the resolver. */
static void test_spoilt(void **state)
{
    static const char text[] = "version: 1\n"
                               "sets:\n"
                               "  a: { timeout: [1], limits: [ { capacity: {} } ] }\n"
                               "  b: 7\n";
    struct config_ast definition;
    struct complaints complaints;
    (void)state;
    assert_int_equal(parse(text, sizeof(text) - 1, &definition, &complaints), -EINVAL);
    assert_int_equal(complaints.first.complaints, 2);
    assert_int_equal(definition.sets_n, 2);
    assert_null(definition.sets[0].timeout.text);
    assert_int_equal(definition.sets[0].timeout.mark.line, 3);
    assert_null(definition.sets[0].max_wait.text);
    assert_int_equal(definition.sets[0].max_wait.mark.line, 0);
    assert_int_equal(definition.sets[0].limits[0].settings.n, 1);
    assert_null(definition.sets[0].limits[0].settings.items[0].value.text);
    assert_string_equal(definition.sets[0].limits[0].settings.items[0].refusal,
                        "takes a single value, not a mapping");
    assert_int_equal(definition.sets[1].limits_n, 0);
    config_ast_free(&definition);
}

static void test_nothing(void **state)
{
    struct config_ast definition;
    struct complaints complaints;
    (void)state;
    expect("", -EINVAL, "`version: 1` is missing: a configuration begins with it");
    expect("version: 1\nsets:\npools: ~\nplugin_dirs: null\n", 0, "");
    assert_int_equal(parse("version: 1\0", 11, &definition, &complaints), -EBADMSG);
    assert_int_equal(complaints.first.line, 1);
    assert_int_equal(complaints.first.column, 11);
    config_ast_free(&definition);
}

/* One more than allowed of everything that is bounded; the most that is allowed passes. */
static void test_bounds(void **state)
{
    static const struct {
        const char *before, *each, *after;
        size_t most;
        const char *message;
    } rows[] = {
        {"version: 1\nplugin_dirs: [", "/d%zu,", "]", CONFIG_DIRS_MAX, "more than 64 entries here"},
        {"version: 1\nsets: {a: {config: {", "n%zu: 1,", "}}}", CONFIG_ENTRIES_MAX,
         "more than 4096 entries here"},
        {"version: 1\nsets: {a: {limits: [{", "n%zu: 1,", "}]}}", CONFIG_SETTINGS_MAX,
         "more than 64 entries here"},
        {"version: 1\npools: {a: {", "n%zu: 1,", "}}", CONFIG_SETTINGS_MAX,
         "more than 64 entries here"},
        {"version: 1\nsets: {a: {limits: [", "{}, %zu,", "]}}", 0,
         "`limits` takes a list of mappings, not a text"},
    };
    static char text[1 << 20];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t n = rows[i].most; n <= rows[i].most + 1; n++) {
            size_t at = (size_t)snprintf(text, sizeof(text), "%s", rows[i].before);
            for (size_t j = 0; j < n; j++) {
                char each[64];
                const char *number = strstr(rows[i].each, "%zu");
                at += (size_t)snprintf(each, sizeof(each), "%.*s%zu%s",
                                       (int)(number - rows[i].each), rows[i].each, j, number + 3);
                strcat(text + at - strlen(each), each);
            }
            strcat(text, rows[i].after);
            bool passes = n == rows[i].most;
            expect(text,
                   passes              ? 0
                   : rows[i].most == 0 ? -EINVAL
                                       : -EBADMSG,
                   passes ? "" : rows[i].message);
        }
    }
}

static void test_depth(void **state)
{
    char text[256] = "version: 1\nx: ";
    (void)state;
    for (size_t i = 1; i < CONFIG_DEPTH_MAX; i++)
        strcat(text, "[");
    for (size_t i = 1; i < CONFIG_DEPTH_MAX; i++)
        strcat(text, "]");
    expect(text, -EINVAL,
           "`x` is not a field of a configuration; there are: version, plugin_dirs, process_dir, "
           "clock, publish, backends, sets, pools");
    struct config_ast definition;
    struct complaints complaints;
    static char deep[100000] = "version: 1\nx: ";
    memset(deep + 14, '[', sizeof(deep) - 15);
    assert_int_equal(parse(deep, sizeof(deep) - 1, &definition, &complaints), -EBADMSG);
    assert_int_equal(complaints.first.complaints, 2);
    config_ast_free(&definition);
}

static void test_size(void **state)
{
    struct config_ast definition;
    struct complaints complaints;
    size_t size = CONFIG_TEXT_MAX + 1;
    char *text = malloc(size);
    (void)state;
    assert_non_null(text);
    memset(text, '#', size); /* a comment */
    memcpy(text, "version: 1\n", 11);
    assert_int_equal(parse(text, size, &definition, &complaints), -EBADMSG);
    assert_string_equal(complaints.first.message,
                        "larger than 16 MiB, the most that a configuration may be");
    config_ast_free(&definition);
    assert_int_equal(parse(text, size - 1, &definition, &complaints), 0);
    config_ast_free(&definition);
    free(text);
}

/* A definition's memory: aligned, zeroed, kept while it grows, and impossible sizes refused. */
static void test_memory(void **state)
{
    struct config_ast definition = {0};
    size_t n = 0;
    uint64_t *numbers = NULL;
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t *number = config_ast_append(&definition, &numbers, &n, sizeof(*numbers));
        assert_non_null(number);
        assert_ptr_equal(number, &numbers[i]);
        assert_int_equal((uintptr_t)numbers % 8, 0);
        assert_true(*number == 0);
        *number = i;
        const char *word = config_ast_strdup(&definition, "abcdef", (size_t)(i % 7));
        assert_int_equal(strlen(word), i % 7);
    }
    assert_int_equal(n, 100000);
    for (uint64_t i = 0; i < 100000; i++)
        assert_true(numbers[i] == i);
    assert_false(definition.memory_failed);
    assert_null(config_ast_alloc(&definition, SIZE_MAX / 2, 3));
    assert_true(definition.memory_failed);
    assert_null(config_ast_alloc(&definition, SIZE_MAX, 1));
    config_ast_free(&definition);
}

static void test_utf8(void **state)
{
    static const struct {
        const char *text;
        size_t valid;
    } rows[] = {
        {"", 0},
        {"abc", 3},
        {"é", 2},
        {"☃", 3},
        {"\xf0\x9f\x98\x80", 4},
        {"a\x80", 1},
        {"a\xc3", 1},
        {"\xc0\x80", 0},
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"é\xe2\x98", 2},
        {"\xc3(", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(utf8_valid_length(rows[i].text, strlen(rows[i].text)), rows[i].valid);
    assert_int_equal(utf8_valid_length("a\0b", 3), 3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(test_everything), leak_checked_test(test_spoilt),
        leak_checked_test(test_nothing),    leak_checked_test(test_bounds),
        leak_checked_test(test_depth),      leak_checked_test(test_size),
        leak_checked_test(test_memory),     leak_checked_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

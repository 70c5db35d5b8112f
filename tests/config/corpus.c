/* SPDX-License-Identifier: MIT */
/*
 * Runs the configuration corpus: every wrong file must give exactly the complaints written beside
 * it, every right file exactly the summary written beside it. An expected line that ends in `*`
 * stands for all lines that begin alike: for messages that name a path of this machine.
 *
 *     corpus wrong|right DIRECTORY
 *     corpus speed                     10 000 sets must load in under a second of CPU time
 *     corpus print FILE...             what to write beside a new file, once it was checked by eye
 */
#include "base/units.h"
#include "config/plan.h"
#include "lib/plan_from.h"
#include "os/os.h"
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static char *file_read(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    char *content = NULL;
    size_t size;
    FILE *copy = open_memstream(&content, &size);
    assert_non_null(copy);
    if (!file)
        fail_msg("cannot open %s", path);
    for (int c = fgetc(file); c != EOF; c = fgetc(file))
        fputc(c, copy);
    fclose(file);
    fclose(copy);
    *ret_size = size;
    return content;
}

static void print_complaint(void *userdata, const struct weir_error *complaint)
{
    fprintf(userdata, "%u:%u: %s\n", complaint->line, complaint->column, complaint->message);
}

static const char *span(uint64_t ns, char *buffer)
{
    return ns == WEIR_FOREVER ? "forever" : units_format(UNITS_DURATION, ns, buffer);
}

static void print_set(FILE *out, const struct set_plan *set)
{
    static const char *const types[] = {"", "rate", "call", "resource"};
    static const char *const policies[] = {"oldest", "random", "none"};
    static const char *const refunds[] = {"", ", refunds", ", refunds strictly"};
    char buffer[2][UNITS_TEXT_MAX];
    fprintf(out, "set %s: timeout %s, max_wait %s, max_waiters %u%s%s%s%s%s%s\n", set->name,
            span(set->timeout_ns, buffer[0]), span(set->max_wait_ns, buffer[1]), set->max_waiters,
            set->strict ? ", strict" : "",
            set->fair == FAIR_NO          ? ", unfair"
            : set->fair == FAIR_PER_LIMIT ? ", fair per limit"
                                          : "",
            set->boottime ? ", boottime" : "", set->counts_holds ? ", hold_histogram" : "",
            set->backend == BACKEND_PROCESS ? ", process" : "", set->while_used ? ", users" : "");
    if (set->keyed.max_keys != 0)
        fprintf(out, "  subjects: max %s, memory %s, evict %s\n",
                units_format(UNITS_AMOUNT, set->keyed.max_keys, buffer[0]),
                set->keyed.memory != 0 ? units_format(UNITS_SIZE, set->keyed.memory, buffer[1])
                                       : "-",
                policies[set->keyed.evict]);
    for (uint32_t i = 0; i < set->config_n; i++)
        fprintf(out, "  config %s=%s\n", set->config[i].name, set->config[i].value);
    for (uint32_t i = 0; i < set->limits_n; i++) {
        const struct limit *limit = &set->limits[i];
        char enforced[32] = "", held[64] = "";
        if (limit->shadow != 0)
            snprintf(enforced, sizeof(enforced), ", enforced %d%%", 100 - limit->shadow);
        if (limit->max_hold_ns != 0)
            snprintf(held, sizeof(held), ", held for %s%s", span(limit->max_hold_ns, buffer[0]),
                     limit->revokes ? ", revokes" : "");
        fprintf(out, "  %s %s: %s, at most %s%s%s%s%s%s%s\n", types[limit->type], limit->key,
                limit->algorithm_name ? limit->algorithm_name : "counted",
                units_format(UNITS_AMOUNT, limit->capacity, buffer[0]), refunds[limit->refund],
                limit->charges ? ", charges" : "", limit->lease != 0 ? ", leases " : "",
                limit->lease != 0 ? units_format(UNITS_AMOUNT, limit->lease, buffer[1]) : "",
                enforced, held);
        assert_int_equal(limit->state_offset + limit->state_words,
                         i + 1 < set->limits_n ? limit[1].state_offset
                         : set->classes        ? set->classes->state_offset
                                               : set->state_words);
    }
}

static void print_classes(FILE *out, const struct wait_classes *classes)
{
    fprintf(out, "  ageing %u, classes", classes->rule.ageing);
    for (uint32_t c = 0; c < classes->rule.n; c++)
        fprintf(out, " %s:%u:%llu", classes->names[c], classes->weights[c],
                (unsigned long long)classes->rule.unit_times[c]);
    fprintf(out, ", costs %llu\n", (unsigned long long)classes->unit_costs[0]);
}

static void print_plan(FILE *out, const struct plan *plan)
{
    if (plan->process_dir)
        fprintf(out, "process_dir %s\n", plan->process_dir);
    if (plan->publish != WEIR_DEFAULT)
        fprintf(out, "publish %s\n", plan->publish == WEIR_YES ? "true" : "false");
    if (plan->clock != WEIR_CLOCK_DEFAULT)
        fprintf(out, "clock %s\n", plan->clock == WEIR_CLOCK_TSC ? "tsc" : "monotonic");
    for (size_t i = 0; i < plan->sets_n; i++) {
        print_set(out, &plan->sets[i]);
        if (plan->sets[i].classes)
            print_classes(out, plan->sets[i].classes);
    }
    for (size_t i = 0; i < plan->pools_n; i++) {
        const struct pool_plan *pool = &plan->pools[i];
        fprintf(out, "pool %s: %s, seed %llu%s%s, sets", pool->name,
                pool->balancer ? pool->balancer->info.name : "no balancer",
                (unsigned long long)pool->seed, pool->tries_next ? ", try next" : "",
                pool->waits_any ? ", wait any" : "");
        for (uint32_t j = 0; j < pool->sets_n; j++)
            fprintf(out, " %s", pool->sets[j]);
        if (pool->wait_class)
            fprintf(out, ", class %s", pool->wait_class);
        fprintf(out, "\n");
    }
}

/* What a file comes to: its complaints, or else a summary of its plan. The caller frees it. */
static char *describe(const char *path)
{
    struct plugin_search *plugins;
    struct plan plan;
    char *description = NULL;
    size_t description_size, size;
    char *text = file_read(path, &size);
    FILE *out = open_memstream(&description, &description_size);
    assert_non_null(out);
    assert_int_equal(plugin_search_new(&plugins, NULL), 0);
    struct complaints complaints = {.file = path, .report = print_complaint, .userdata = out};
    int rc = plan_from_text(text, size, plugins, &plan, &complaints);
    if (rc == 0)
        print_plan(out, &plan);
    else
        assert_int_equal(rc, complaints.first.code);
    plan_free(&plan);
    plugin_search_free(plugins);
    fclose(out);
    free(text);
    return description;
}

static bool line_matches(const char *line, const char *expected)
{
    size_t n = strlen(expected);
    if (n >= 1 && expected[n - 1] == '*')
        return strncmp(line, expected, n - 1) == 0;
    return strcmp(line, expected) == 0;
}

static void test_file(void **state)
{
    const char *path = *state;
    char expected_path[4096];
    size_t size;
    snprintf(expected_path, sizeof(expected_path), "%.*s.expected", (int)strlen(path) - 5, path);
    char *lines = describe(path), *expected_lines = file_read(expected_path, &size);
    char *at, *expected_at;
    char *line = strtok_r(lines, "\n", &at),
         *expected = strtok_r(expected_lines, "\n", &expected_at);
    while (line && expected && line_matches(line, expected)) {
        line = strtok_r(NULL, "\n", &at);
        expected = strtok_r(NULL, "\n", &expected_at);
    }
    if (line || expected)
        fail_msg("%s:\n  expected: %s\n  got:      %s", path,
                 expected ? expected : "(no more lines)", line ? line : "(no more lines)");
    free(lines);
    free(expected_lines);
}

/* A directory must hold at least this many files, or it is not the corpus. */
enum { WRONG_MIN = 60, RIGHT_MIN = 10 };

static int run(const char *kind, const char *directory)
{
    glob_t files;
    char pattern[4096];
    snprintf(pattern, sizeof(pattern), "%s/*.yaml", directory);
    size_t least = strcmp(kind, "wrong") == 0 ? WRONG_MIN : RIGHT_MIN;
    if (glob(pattern, 0, NULL, &files) != 0 || files.gl_pathc < least) {
        fprintf(stderr, "fewer than %zu files match %s\n", least, pattern);
        return 1;
    }
    struct CMUnitTest *tests = calloc(files.gl_pathc, sizeof(*tests));
    for (size_t i = 0; tests && i < files.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){.name = strrchr(files.gl_pathv[i], '/') + 1,
                                       .test_func = test_file,
                                       .initial_state = files.gl_pathv[i]};
    int failures = tests ? _cmocka_run_group_tests(kind, tests, files.gl_pathc, NULL, NULL) : 1;
    free(tests);
    globfree(&files);
    return failures;
}

/* Of the processor, so that a busy machine changes nothing: only this process counts. */
static uint64_t spent_ms(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000 + (uint64_t)spent.tv_nsec / 1000000;
}

/* Text to plan, plugins loaded on the way. */
static void test_speed(void **state)
{
    enum { SETS = 10000, LIMIT_MS = 1000 };
    struct plugin_search *plugins;
    struct plan plan;
    struct complaints complaints = {.file = "many"};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    (void)state;
    assert_non_null(out);
    fprintf(out, "version: 1\nsets:\n");
    for (int i = 0; i < SETS; i++)
        fprintf(out,
                "  set-%05d:\n    timeout: 30s\n"
                "    config: { region: us-east-1, endpoint: \"https://us.example\" }\n"
                "    limits:\n"
                "      - { type: call, algorithm: gcra, capacity: 100, window: 60s }\n"
                "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 90k,"
                " window: 60s }\n"
                "      - { type: resource, key: connections, capacity: 10 }\n",
                i);
    fprintf(out, "pools:\n  all:\n    sets:\n");
    for (int i = 0; i < SETS; i++)
        fprintf(out, "      - set-%05d\n", i);
    fclose(out);

    uint64_t begin = spent_ms();
    assert_int_equal(plugin_search_new(&plugins, NULL), 0);
    assert_int_equal(plan_from_text(text, size, plugins, &plan, &complaints), 0);
    uint64_t taken = spent_ms() - begin;
    print_message("%d sets in %llu ms\n", SETS, (unsigned long long)taken);
    assert_int_equal(plan.sets_n, SETS);
    assert_int_equal(plan.pools[0].sets_n, SETS);
    assert_true(taken < LIMIT_MS);
    plan_free(&plan);
    plugin_search_free(plugins);
    free(text);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest speed[] = {cmocka_unit_test(test_speed)};
    if (argc == 3 && (strcmp(argv[1], "wrong") == 0 || strcmp(argv[1], "right") == 0))
        return run(argv[1], argv[2]) == 0 ? 0 : 1;
    if (argc == 2 && strcmp(argv[1], "speed") == 0)
        return cmocka_run_group_tests(speed, NULL, NULL) == 0 ? 0 : 1;
    if (argc < 3 || strcmp(argv[1], "print") != 0) {
        fprintf(stderr, "usage: corpus wrong|right DIRECTORY | speed | print FILE...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        char *description = describe(argv[i]);
        fputs(description, stdout);
        free(description);
    }
    return 0;
}

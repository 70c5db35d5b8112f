/* SPDX-License-Identifier: MIT */
/*
 * The examples of configurations are right: each comes to a plan, and none is warned of. Those of a
 * Markdown file are its blocks marked `yaml`; in a manual page every block is one; a `.yaml` file
 * is one. An example that begins with `limits:` is a part of a set, and is read within one.
 *
 *     documents FILE...
 */
#include "config/plan.h"
#include "lib/fixture.h"
#include "lib/plan_from.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends_with(const char *text, const char *with)
{
    size_t length = strlen(text), n = strlen(with);
    return length >= n && strcmp(text + length - n, with) == 0;
}

/* Reads the lines of a block, up to its end, or a whole file. The caller frees them. */
static char *block_read(FILE *file, bool is_whole)
{
    char line[1024];
    char *block = NULL;
    size_t size;
    bool ended = false;
    FILE *out = open_memstream(&block, &size);
    assert_non_null(out);
    while (!ended && fgets(line, sizeof(line), file)) {
        ended = begins_with(line, "```");
        if (!ended)
            fputs(line, out);
    }
    fclose(out);
    assert_true(ended || is_whole);
    return block;
}

/* A block as a whole configuration. */
static char *complete(const char *block)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    if (!begins_with(block, "limits:")) {
        fputs(block, out);
    } else {
        fputs("version: 1\nsets:\n  a-set:\n    ", out);
        for (const char *c = block; *c != '\0'; c++) {
            fputc(*c, out);
            if (*c == '\n')
                fputs("    ", out);
        }
    }
    fclose(out);
    return text;
}

static void print_complaint(void *userdata, const struct weir_error *complaint)
{
    print_error("%s, line %u: %s\n", (const char *)userdata, complaint->line, complaint->message);
}

/* `line` is the place of the block in the document. */
static void block_check(const char *path, unsigned line, const char *block)
{
    char name[4096];
    struct plugin_search *plugins;
    struct plan plan;
    char *text = complete(block);
    snprintf(name, sizeof(name), "%s:%u", path, line);
    struct complaints warnings = {
        .file = name, .report = print_complaint, .userdata = name, .are_warnings = true};
    struct complaints complaints = {
        .file = name, .report = print_complaint, .userdata = name, .warnings = &warnings};
    assert_int_equal(plugin_search_new(&plugins, NULL), 0);
    if (plan_from_text(text, strlen(text), plugins, &plan, &complaints) < 0)
        fail_msg("%s: line %u of this is wrong:\n%s", name, complaints.first.line, text);
    complaints_report(&warnings);
    if (warnings.first.line != 0)
        fail_msg("%s: line %u of this is warned of:\n%s", name, warnings.first.line, text);
    assert_true(plan.sets_n > 0);
    plan_free(&plan);
    plugin_search_free(plugins);
    free(text);
}

static void test_document(void **state)
{
    const char *path = *state;
    const char *mark = ends_with(path, ".scd") ? "```\n" : "```yaml\n";
    char line[4096];
    unsigned number = 0, examples = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    if (ends_with(path, ".yaml")) {
        char *text = block_read(file, true);
        block_check(path, 0, text);
        free(text);
        examples++;
    }
    while (fgets(line, sizeof(line), file)) {
        number++;
        if (!begins_with(line, "```"))
            continue;
        char *block = block_read(file, false);
        if (strcmp(line, mark) == 0) {
            block_check(path, number, block);
            examples++;
        }
        for (const char *c = block; *c != '\0'; c++)
            number += *c == '\n';
        number++; /* the end of the block */
        free(block);
    }
    fclose(file);
    assert_true(examples > 0);
}

int main(int argc, char **argv)
{
    enum { FILES_MAX = 32 };
    struct CMUnitTest tests[FILES_MAX];
    int n = argc - 1;
    if (n < 1 || n > FILES_MAX) {
        fprintf(stderr, "usage: documents FILE...\n");
        return 2;
    }
    for (int i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){.name = argv[i + 1],
                                       .test_func = test_document,
                                       .setup_func = fixture_setup,
                                       .teardown_func = fixture_teardown,
                                       .initial_state = argv[i + 1]};
    return _cmocka_run_group_tests("documents", tests, (size_t)n, NULL, NULL) == 0 ? 0 : 1;
}

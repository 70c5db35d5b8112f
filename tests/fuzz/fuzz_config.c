/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the way from a configuration text to a plan. Whatever the bytes are: no crash, no leak;
 * either a plan or at least one complaint, told in the order of the text, at places inside it.
 *
 *     fuzz_config SECONDS SEED FILE|DIRECTORY...        drive.h
 */
#include "base/utf8.h"
#include "config/plan.h"
#include "drive.h"
#include "lib/plan_from.h"
#include "os/os.h"
#include "state/wait_class.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * libfyaml 0.7.12 itself forgets a buffer when a long quoted text with many escapes turns out to be
 * wrong. That our side frees everything is seen by the corpus test, which suppresses nothing.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

/*
 * Linked with --wrap=plugin_search_add_dir: what a mutated text calls a directory of plugins is
 * not looked into, for it may well be one that exists.
 */
int __wrap_plugin_search_add_dir(struct plugin_search *plugins, const char *dir);
int __wrap_plugin_search_add_dir(struct plugin_search *plugins, const char *dir)
{
    (void)plugins;
    EXPECT(dir[0] == '/');
    return 0;
}

struct heard {
    uint32_t n, line, column, lines;
};

static void hear(void *userdata, const struct weir_error *complaint)
{
    struct heard *heard = userdata;
    EXPECT(complaint->code < 0 && complaint->message[0] != '\0');
    EXPECT(complaint->line >= 1 && complaint->column >= 1 && complaint->line <= heard->lines);
    EXPECT(complaint->line > heard->line ||
           (complaint->line == heard->line && complaint->column >= heard->column));
    EXPECT(!strpbrk(complaint->message, "\n\r\t"));
    size_t length = strlen(complaint->message);
    EXPECT(utf8_valid_length(complaint->message, length) == length);
    heard->line = complaint->line;
    heard->column = complaint->column;
    heard->n++;
}

/* What is true of every plan. */
static void plan_check(const struct plan *plan)
{
    for (size_t i = 0; i < plan->sets_n; i++) {
        const struct set_plan *set = &plan->sets[i];
        uint32_t words = 0;
        EXPECT(set->name && set->limits_n <= WEIR_LIMITS_MAX);
        for (uint32_t j = 0; j < set->limits_n; j++) {
            const struct limit *limit = &set->limits[j];
            EXPECT(limit->type >= WEIR_LIMIT_RATE && limit->type <= WEIR_LIMIT_RESOURCE);
            EXPECT(limit->key && limit->capacity >= 1 && limit->state_offset == words);
            EXPECT((!limit->algorithm) == (!limit->algorithm_name));
            words += limit->state_words;
        }
        if (set->classes)
            words += set->classes->rule.n * WAIT_CLASS_WORDS;
        EXPECT(set->state_words == words && words <= SET_STATE_WORDS_MAX);
        for (uint32_t j = 1; j < set->config_n; j++)
            EXPECT(strcmp(set->config[j - 1].name, set->config[j].name) < 0);
    }
}

/* U+0085, U+2028 and U+2029 end a line, too, for some readers of YAML. */
static uint32_t lines_of(const uint8_t *data, size_t size)
{
    uint32_t lines = 2; /* the end may count as the beginning of another one */
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n' || data[i] == '\r' || data[i] == 0x85 || data[i] == 0xa8 ||
                 data[i] == 0xa9;
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct plugin_search *plugins; /* never freed: loaded once, for all inputs */
    struct plan plan;
    char *text = malloc(size + 1);
    struct heard heard = {.lines = lines_of(data, size)};
    struct complaints complaints = {.file = "fuzz", .report = hear, .userdata = &heard};
    if (!plugins)
        EXPECT(plugin_search_new(&plugins, NULL) == 0);
    EXPECT(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    int rc = plan_from_text(text, size, plugins, &plan, &complaints);
    free(text);
    if (rc == 0) {
        EXPECT(heard.n == 0);
        plan_check(&plan);
    } else {
        EXPECT(heard.n >= 1 && rc == complaints.first.code && rc != -ENOMEM);
        EXPECT(!plan.sets && !plan.pools);
    }
    plan_free(&plan);
    return 0;
}

#ifndef WEIR_LIBFUZZER

int main(int argc, char **argv)
{
    static const struct fuzz_piece pieces[] = {FUZZ_TEXT("{"),
                                               FUZZ_TEXT("}"),
                                               FUZZ_TEXT("["),
                                               FUZZ_TEXT("]"),
                                               FUZZ_TEXT(": "),
                                               FUZZ_TEXT(", "),
                                               FUZZ_TEXT("\n"),
                                               FUZZ_TEXT("\n  "),
                                               FUZZ_TEXT("- "),
                                               FUZZ_TEXT("\""),
                                               FUZZ_TEXT("'"),
                                               FUZZ_TEXT("|\n"),
                                               FUZZ_TEXT(">-\n"),
                                               FUZZ_TEXT("? "),
                                               FUZZ_TEXT("&a "),
                                               FUZZ_TEXT("*a"),
                                               FUZZ_TEXT("!t "),
                                               FUZZ_TEXT("<<: "),
                                               FUZZ_TEXT("#"),
                                               FUZZ_TEXT("---"),
                                               FUZZ_TEXT("..."),
                                               FUZZ_TEXT("%YAML "),
                                               FUZZ_TEXT("\\0"),
                                               FUZZ_TEXT("\\u"),
                                               FUZZ_TEXT("null"),
                                               FUZZ_TEXT("~"),
                                               FUZZ_TEXT("1"),
                                               FUZZ_TEXT("0"),
                                               FUZZ_TEXT("-1"),
                                               FUZZ_TEXT("18446744073709551615"),
                                               FUZZ_TEXT("k"),
                                               FUZZ_TEXT("d"),
                                               FUZZ_TEXT("type: "),
                                               FUZZ_TEXT("rate"),
                                               FUZZ_TEXT("sets:"),
                                               FUZZ_TEXT("pools:"),
                                               FUZZ_TEXT("limits:"),
                                               FUZZ_TEXT("config:"),
                                               FUZZ_TEXT("\t"),
                                               FUZZ_TEXT("\r\n"),
                                               FUZZ_TEXT("\xef\xbb\xbf"),
                                               FUZZ_TEXT("\xe2\x80\xa8"),
                                               FUZZ_TEXT("\xc2\x85"),
                                               FUZZ_TEXT("version: 1\n")};
    const struct fuzz fuzz = {
        .suffix = ".yaml", .pieces = pieces, .pieces_n = sizeof(pieces) / sizeof(pieces[0])};

    return fuzz_drive(&fuzz, argc, argv);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the way from a configuration text to a plan. Whatever the bytes are: no crash, no leak;
 * either a plan or at least one complaint, told in the order of the text, at places inside it.
 *
 * With clang's -fsanitize=fuzzer (WEIR_LIBFUZZER) libFuzzer drives it. Otherwise `main` does: it
 * runs the given files and directories once, then mutates them for the given number of seconds,
 * or for WEIR_FUZZ_SECONDS.
 *
 *     fuzz_config SECONDS SEED FILE|DIRECTORY...        SEED 0: from the clock, and printed
 */
#include "base/utf8.h"
#include "config/plan.h"
#include "lib/plan_from.h"
#include "lib/random.h"
#include "os/os.h"
#include "state/wait_class.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

enum { SEEDS_MAX = 4096, INPUT_MAX = 1 << 16 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input seeds[SEEDS_MAX];
static size_t seeds_n;

static void seed_add(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct input *seed = &seeds[seeds_n];
    if (!file || seeds_n == SEEDS_MAX) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    seed->bytes = malloc(INPUT_MAX);
    EXPECT(seed->bytes != NULL);
    seed->size = fread(seed->bytes, 1, INPUT_MAX, file);
    fclose(file);
    seeds_n++;
}

static void seeds_add(const char *path)
{
    DIR *directory = opendir(path);
    char name[4096];
    if (!directory) {
        seed_add(path);
        return;
    }
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".yaml") != 0)
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        seed_add(name);
    }
    closedir(directory);
}

static uint64_t state;

static uint64_t draw(void)
{
    return random_next(&state);
}

/* Replaces `cut` bytes at `at` by `n` bytes of `from`. */
static void splice(struct input *input, size_t at, size_t cut, const void *from, size_t n)
{
    if (cut > input->size - at)
        cut = input->size - at;
    if (input->size - cut + n > INPUT_MAX)
        return;
    memmove(input->bytes + at + n, input->bytes + at + cut, input->size - at - cut);
    memcpy(input->bytes + at, from, n);
    input->size = input->size - cut + n;
}

static void mutate(struct input *input)
{
    static const char *const words[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ": ",
                                        ", ",
                                        "\n",
                                        "\n  ",
                                        "- ",
                                        "\"",
                                        "'",
                                        "|\n",
                                        ">-\n",
                                        "? ",
                                        "&a ",
                                        "*a",
                                        "!t ",
                                        "<<: ",
                                        "#",
                                        "---",
                                        "...",
                                        "%YAML ",
                                        "\\0",
                                        "\\u",
                                        "null",
                                        "~",
                                        "1",
                                        "0",
                                        "-1",
                                        "18446744073709551615",
                                        "k",
                                        "d",
                                        "type: ",
                                        "rate",
                                        "sets:",
                                        "pools:",
                                        "limits:",
                                        "config:",
                                        "\t",
                                        "\r\n",
                                        "\xef\xbb\xbf",
                                        "\xe2\x80\xa8",
                                        "\xc2\x85",
                                        "version: 1\n"};
    size_t at = draw() % (input->size + 1);
    const struct input *other = &seeds[draw() % seeds_n];
    uint8_t byte = (uint8_t)draw();
    size_t from = draw() % (other->size + 1), n = draw() % (other->size - from + 1);
    const char *word = words[draw() % (sizeof(words) / sizeof(words[0]))];
    switch (draw() % 5) {
    case 0:
        splice(input, at, draw() % 2, &byte, 1);
        break;
    case 1:
        splice(input, at, draw() % 16, "", 0);
        break;
    case 2:
        splice(input, at, draw() % 4, word, strlen(word));
        break;
    case 3:
        splice(input, at, draw() % 64, other->bytes + from, n);
        break;
    default:
        splice(input, at, 0, word, strlen(word));
        break;
    }
}

int main(int argc, char **argv)
{
    static uint8_t bytes[INPUT_MAX];
    if (argc < 4) {
        fprintf(stderr, "usage: fuzz_config SECONDS SEED FILE|DIRECTORY...\n");
        return 2;
    }
    const char *seconds = getenv("WEIR_FUZZ_SECONDS");
    time_t until = time(NULL) + atoi(seconds ? seconds : argv[1]);
    state = strtoull(argv[2], NULL, 10);
    if (state == 0)
        state = random_seed();
    printf("seed %llu\n", (unsigned long long)state);
    fflush(stdout);
    for (int i = 3; i < argc; i++)
        seeds_add(argv[i]);
    for (size_t i = 0; i < seeds_n; i++)
        LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].size);
    unsigned long runs = seeds_n;
    while (seeds_n > 0 && time(NULL) < until) {
        const struct input *seed = &seeds[draw() % seeds_n];
        struct input input = {bytes, seed->size};
        memcpy(bytes, seed->bytes, seed->size);
        for (uint64_t n = 1 + draw() % 8; n > 0; n--)
            mutate(&input);
        LLVMFuzzerTestOneInput(input.bytes, input.size);
        runs++;
    }
    printf("%lu runs of %zu seeds\n", runs, seeds_n);
    for (size_t i = 0; i < seeds_n; i++)
        free(seeds[i].bytes);
    return seeds_n > 0 ? 0 : 2;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes what the command reads of a process that publishes its sets. Whatever the bytes are: no
 * crash, no leak, no read beyond them; each set that is found is whole, refers to nothing that it
 * does not have, and has no text that a terminal would act on.
 *
 *     fuzz_published SECONDS SEED FILE|DIRECTORY...        drive.h
 */
#include "api/published.h"
#include "drive.h"
#include "published_set.h"
#include "utf8.h"
#include <string.h>

#define PROCESS 4711u
#define TEXT    (PUBLISHED_TEXT_MAX + 1)

static void check_text(const char *text, size_t least, size_t room)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;

    EXPECT(text != NULL && strlen(text) >= least && strlen(text) < room);
    for (; *at; at += length) {
        length = utf8_sequence(at);
        EXPECT(length > 0 && !utf8_is_control(at, length));
    }
}

static void check_limit(const struct snapshot_limit *limit)
{
    EXPECT(limit->stats.type >= WEIR_LIMIT_RATE && limit->stats.type <= WEIR_LIMIT_RESOURCE);
    check_text(limit->key, 1, 256);
    EXPECT(limit->stats.key == limit->key && limit->stats.algorithm == limit->algorithm);
    if (limit->algorithm)
        check_text(limit->algorithm, 0, TEXT);
    for (size_t i = 0; i < limit->settings_n; i++) {
        check_text(limit->settings[i].name, 0, TEXT);
        check_text(limit->settings[i].value, 0, TEXT);
    }
    EXPECT(limit->gauges_n <= WEIR_GAUGES_MAX);
    for (size_t i = 0; i < limit->gauges_n; i++) {
        check_text(limit->gauges[i].name, 0, TEXT);
        for (size_t k = 0; k < i; k++)
            EXPECT(strcmp(limit->gauges[i].name, limit->gauges[k].name) != 0);
    }
}

static void check_holders(const struct snapshot_set *set)
{
    EXPECT(set->holders_n <= PUBLISHED_HOLDERS_MAX && set->held_n <= set->holders_n);
    for (size_t i = 0; i < set->holders_n; i++) {
        const struct snapshot_holder *holder = &set->holders[i];

        EXPECT((holder->holder.waiting != 0) == (i >= set->held_n));
        EXPECT(holder->holder.process == PROCESS);
        EXPECT(!holder->is_next || holder->holder.waiting != 0);
        EXPECT(holder->limiting < set->limits_n || holder->limiting == UINT32_MAX);
        EXPECT(holder->overheld < set->limits_n || holder->overheld == UINT32_MAX);
    }
}

/* Takes the set over. */
static int found(void *userdata, struct snapshot_set *set)
{
    char *last = userdata;

    check_text(set->name, 1, 256);
    EXPECT(strcmp(set->name, last) > 0); /* each name once, in order */
    strcpy(last, set->name);
    EXPECT(set->process == PROCESS && set->limits_n <= WEIR_LIMITS_MAX);
    EXPECT(set->classes_n <= WEIR_CLASSES_MAX);
    for (size_t i = 0; i < set->limits_n; i++)
        check_limit(&set->limits[i]);
    for (size_t i = 0; i < set->classes_n; i++) {
        check_text(set->classes[i].name, 1, sizeof(set->classes[i].name));
        for (size_t k = 0; k < i; k++)
            EXPECT(strcmp(set->classes[i].name, set->classes[k].name) != 0);
    }
    if (set->has_subjects)
        check_text(set->subjects.evict, 0, TEXT);
    check_holders(set);
    snapshot_free_set(set);
    return 0;
}

/* The bytes come in two parts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct published_budget budget = {.sets = 64, .holders = 2048};
    struct published_answer answer = {.fd = -1, .process = PROCESS, .number = 1, .budget = &budget};
    size_t first = size ? data[size / 2] * size / 256 : 0;
    char last[256] = "";
    int r;

    answer.bytes = malloc(size ? size : 1); /* no more, so that a read beyond it is noticed */
    EXPECT(answer.bytes != NULL);
    if (size)
        memcpy(answer.bytes, data, size);
    answer.n = first;
    r = published_answer_scan(&answer);
    answer.n = size;
    if (r == 0)
        r = published_answer_scan(&answer);
    EXPECT(r <= 0 && answer.scanned <= size);
    if (r == 0 && answer.is_whole)
        r = published_answer_read(&answer, found, last);
    EXPECT(r <= 0);
    free(answer.bytes);
    return 0;
}

#ifndef WEIR_LIBFUZZER

/* An answer that is made of items. */
static struct {
    _Alignas(8) unsigned char bytes[1 << 14];
    size_t n;
} made;

static void put(const void *data, size_t size)
{
    EXPECT(made.n + size <= sizeof(made.bytes));
    if (size)
        memcpy(made.bytes + made.n, data, size);
    made.n += size;
}

static void put_item(uint32_t kind, const void *data, size_t size)
{
    const struct published_item item = {.kind = kind, .size = (uint32_t)size};
    static const char padding[8];

    put(&item, sizeof(item));
    put(data, size);
    put(padding, -size % sizeof(padding));
}

static void put_text(uint32_t kind, const char *text)
{
    put_item(kind, text, strlen(text));
}

static void put_limit(enum weir_limit_type type, const char *key)
{
    const struct weir_limit_stats stats = {.type = type, .capacity = 9, .available = 3};
    const struct weir_limit_gauge gauge = {.value = 7};

    put_item(PUBLISHED_LIMIT, &stats, sizeof(stats));
    put_text(PUBLISHED_KEY, key);
    put_text(PUBLISHED_ALGORITHM, "aimd");
    put_text(PUBLISHED_SETTING, "capacity");
    put_text(PUBLISHED_VALUE, "9");
    put_item(PUBLISHED_GAUGE, &gauge, sizeof(gauge));
    put_text(PUBLISHED_GAUGE_NAME, "limit");
}

static void put_holder(uint32_t position, uint32_t limiting, uint64_t overheld)
{
    const struct published_holder holder = {
        .holder = {.id = 1, .since_ns = 5, .waiting = position != 0, .position = position},
        .age_ns = 99,
        .is_next = position == 1,
        .limiting = limiting,
        .overheld = overheld,
        .overheld_ns = 9};
    const uint64_t amounts[] = {1, 2};

    put_item(PUBLISHED_HOLDER, &holder, sizeof(holder));
    put_item(PUBLISHED_AMOUNTS, amounts, sizeof(amounts));
}

static void put_set(const char *name, const char *const *classes, size_t classes_n)
{
    const struct weir_set_info info = {.size = sizeof(info), .max_waiters = 9};
    const struct weir_set_stats stats = {.size = sizeof(stats), .granted = 5, .held = 2};
    const struct weir_subjects_stats subjects = {.size = sizeof(subjects), .known = 3};

    put_text(PUBLISHED_SET, name);
    put_item(PUBLISHED_INFO, &info, sizeof(info));
    put_item(PUBLISHED_STATS, &stats, sizeof(stats));
    if (!classes_n) {
        put_item(PUBLISHED_SUBJECTS, &subjects, sizeof(subjects));
        put_text(PUBLISHED_EVICT, "oldest");
    }
    for (size_t i = 0; i < classes_n; i++) {
        struct weir_class_stats class = {.weight = 1 + i, .granted = 6};

        strcpy(class.name, classes[i]);
        put_item(PUBLISHED_CLASS, &class, sizeof(class));
    }
    put_limit(WEIR_LIMIT_RESOURCE, "slots");
    put_limit(WEIR_LIMIT_RATE, "tok\xc3\xa4ns");
    put_holder(0, UINT32_MAX, 2);
    put_holder(0, UINT32_MAX, 0);
    put_holder(1, 1, 0);
    put_holder(2, UINT32_MAX, 0);
}

int main(int argc, char **argv)
{
    static const struct published_head head = {
        .magic = PUBLISHED_MAGIC, .version = PUBLISHED_VERSION, .process = 1};
    static const char *const classes[] = {"gold", "silver", "bronze"};
    static const uint32_t items[][2] = {
        {0, 0},   {1, 1},  {1, 8},   {4, 80},  {6, 96},  {7, 3},  {9, 8},         {10, 4},
        {11, 32}, {12, 5}, {13, 80}, {14, 64}, {15, 96}, {99, 8}, {13, 1u << 31}, {1, 65536}};
    struct fuzz_piece pieces[sizeof(items) / sizeof(items[0]) + 3], input;
    struct fuzz fuzz = {
        .suffix = ".bin", .pieces = pieces, .inputs = &input, .inputs_n = 1, .aligned = 8};

    put(&head, sizeof(head));
    put_set("api", classes, 3);
    put_set("jobs", NULL, 0);
    put_item(PUBLISHED_END, NULL, 0);
    input = (struct fuzz_piece){made.bytes, made.n};
    while (fuzz.pieces_n < sizeof(items) / sizeof(items[0])) {
        pieces[fuzz.pieces_n] = (struct fuzz_piece){items[fuzz.pieces_n], sizeof(items[0])};
        fuzz.pieces_n++;
    }
    pieces[fuzz.pieces_n++] = (struct fuzz_piece){"\xff\xff\xff\xff\xff\xff\xff\xff", 8};
    pieces[fuzz.pieces_n++] = (struct fuzz_piece){"\0\0\0\0\0\0\0\0", 8};
    pieces[fuzz.pieces_n++] = (struct fuzz_piece){"\x1b[2J\xe2\x80\xae", 7};
    return fuzz_drive(&fuzz, argc, argv);
}

#endif

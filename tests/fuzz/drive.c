/* SPDX-License-Identifier: MIT */
/* Runs inputs, and mutates them. */
#include "drive.h"
#include "lib/random.h"
#include <dirent.h>
#include <string.h>
#include <time.h>

enum { SEEDS_MAX = 4096, INPUT_MAX = 1 << 16 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input seeds[SEEDS_MAX];
static size_t seeds_n;

static struct input *seed_new(const char *of)
{
    struct input *seed = &seeds[seeds_n];

    if (seeds_n == SEEDS_MAX) {
        fprintf(stderr, "no room for %s\n", of);
        exit(2);
    }
    seed->bytes = malloc(INPUT_MAX);
    EXPECT(seed->bytes != NULL);
    seeds_n++;
    return seed;
}

static void seed_add(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct input *seed;

    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    seed = seed_new(path);
    seed->size = fread(seed->bytes, 1, INPUT_MAX, file);
    fclose(file);
}

static void seeds_add(const struct fuzz *fuzz, const char *path)
{
    DIR *directory = opendir(path);
    char name[4096];

    if (!directory) {
        seed_add(path);
        return;
    }
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        const char *dot = strrchr(entry->d_name, '.');

        if (!dot || strcmp(dot, fuzz->suffix) != 0)
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

static void mutate(const struct fuzz *fuzz, struct input *input)
{
    size_t at = draw() % (input->size + 1);
    const struct input *other = &seeds[draw() % seeds_n];
    uint8_t byte = (uint8_t)draw();
    size_t from = draw() % (other->size + 1), n = draw() % (other->size - from + 1);
    const struct fuzz_piece *piece = &fuzz->pieces[draw() % fuzz->pieces_n];

    if (fuzz->aligned && draw() % 8) {
        at -= at % fuzz->aligned;
        from -= from % fuzz->aligned;
        n -= n % fuzz->aligned;
    }
    switch (draw() % 5) {
    case 0:
        splice(input, at, fuzz->aligned ? 1 : draw() % 2, &byte, 1);
        break;
    case 1:
        splice(input, at, draw() % 16, "", 0);
        break;
    case 2:
        splice(input, at, fuzz->aligned ? piece->n : draw() % 4, piece->bytes, piece->n);
        break;
    case 3:
        splice(input, at, draw() % 64, other->bytes + from, n);
        break;
    default:
        splice(input, at, 0, piece->bytes, piece->n);
        break;
    }
}

int fuzz_drive(const struct fuzz *fuzz, int argc, char **argv)
{
    static uint8_t bytes[INPUT_MAX];
    const char *seconds = getenv("WEIR_FUZZ_SECONDS");
    unsigned long runs;
    time_t until;

    if (argc < 3) {
        fprintf(stderr, "usage: %s SECONDS SEED FILE|DIRECTORY...\n", argv[0]);
        return 2;
    }
    until = time(NULL) + atoi(seconds ? seconds : argv[1]);
    state = strtoull(argv[2], NULL, 10);
    if (state == 0)
        state = random_seed();
    printf("seed %llu\n", (unsigned long long)state);
    fflush(stdout);
    for (int i = 3; i < argc; i++)
        seeds_add(fuzz, argv[i]);
    for (size_t i = 0; i < fuzz->inputs_n; i++) {
        struct input *seed = seed_new("an input");

        EXPECT(fuzz->inputs[i].n <= INPUT_MAX);
        memcpy(seed->bytes, fuzz->inputs[i].bytes, fuzz->inputs[i].n);
        seed->size = fuzz->inputs[i].n;
    }
    for (size_t i = 0; i < seeds_n; i++)
        LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].size);
    runs = seeds_n;
    while (seeds_n > 0 && time(NULL) < until) {
        const struct input *seed = &seeds[draw() % seeds_n];
        struct input input = {bytes, seed->size};

        memcpy(bytes, seed->bytes, seed->size);
        for (uint64_t n = 1 + draw() % 8; n > 0; n--)
            mutate(fuzz, &input);
        LLVMFuzzerTestOneInput(input.bytes, input.size);
        runs++;
    }
    printf("%lu runs of %zu seeds\n", runs, seeds_n);
    for (size_t i = 0; i < seeds_n; i++)
        free(seeds[i].bytes);
    return seeds_n > 0 ? 0 : 2;
}

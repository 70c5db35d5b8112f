/* SPDX-License-Identifier: MIT */
/*
 * Reloads of a set with very many subjects, while threads ask for them: each subject has taken what
 * it has taken, whatever the limit is now. Prints how long a reload takes, and a request for a
 * subject before, during and after it; that is measured, not asserted. Usage: test_reload_subjects
 * [subjects [seed]].
 */
#include "lib/random.h"
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#define THREADS 3u
#define RELOADS 6u

static weir *w;
static weir_pool *pool;
static uint64_t subjects_n;
static _Atomic uint16_t *taken; /* of each subject, by grants that have returned */
static _Atomic bool is_over;
static _Atomic uint64_t asked;

static const unsigned capacities[RELOADS + 1] = {40, 60, 45, 80, 80, 50, 90};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void write_config(char *text, size_t size, unsigned reload, const char *more)
{
    snprintf(text, size,
             "version: 1\nsets: { main: { subjects: { max: %llu, evict: none }, limits: [ { type: "
             "rate, key: tokens, algorithm: gcra, capacity: %u, window: 1000000h }%s ] } "
             "}\n",
             (unsigned long long)subjects_n, capacities[reload], more);
}

/* Takes a token of a subject. Returns whether there was one. */
static bool take_one(uint64_t subject)
{
    const struct weir_amount tokens[] = {{"tokens", 1}, {"slots", 0}};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = tokens,
                                         .amounts_n = 2,
                                         .subject = &subject,
                                         .subject_size = sizeof(subject)};
    int r = weir_take(pool, &request, NULL);

    require(r == 0 || r == -EAGAIN);
    if (r == 0)
        atomic_fetch_add(&taken[subject], 1);
    return r == 0;
}

static void *load(void *seed)
{
    uint64_t random = *(uint64_t *)seed;

    while (!atomic_load(&is_over)) {
        take_one(random_below(&random, subjects_n));
        atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Returns how long a request takes on average, for subjects that are far apart. */
static uint64_t time_of_one(void)
{
    const uint64_t n = subjects_n < 50000 ? subjects_n : 50000;
    uint64_t started = now_ns();

    for (uint64_t i = 0; i < n; i++)
        take_one(i * (subjects_n / n));
    return (now_ns() - started) / n;
}

static uint64_t reload(unsigned number, const char *more)
{
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};
    uint64_t started = now_ns();

    write_config(text, sizeof(text), number, more);
    require(weir_reload(w, &options, NULL) == 0);
    return now_ns() - started;
}

/* A subject has what it has not taken: no reload cuts its level, or lets it begin anew. */
static void check_levels(uint64_t level_max)
{
    for (uint64_t i = 0; i < subjects_n; i++) {
        const struct weir_request request = {
            .size = sizeof(request), .subject = &i, .subject_size = sizeof(i)};
        struct weir_remaining remaining[1];

        require(weir_set_remaining(weir_pool_set(pool, 0), &request, remaining, 1) >= 1);
        require(remaining[0].available + atomic_load(&taken[i]) == level_max);
    }
}

int main(int argc, char **argv)
{
    uint64_t seeds[THREADS], random, known;
    struct weir_subjects_stats stats = {.size = sizeof(stats)};
    pthread_t threads[THREADS];
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    subjects_n = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
    test_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : random_seed();
    random = random_case(test_seed, 0);
    printf("seed %llu, %llu subjects\n", (unsigned long long)test_seed,
           (unsigned long long)subjects_n);
    taken = calloc(subjects_n, sizeof(*taken));
    require(taken);
    write_config(text, sizeof(text), 0, "");
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&pool, w, "main", 0, NULL) == 0);
    for (uint64_t i = 0; i < subjects_n; i++)
        require(take_one(i));
    time_of_one();
    printf("a request: %llu ns\n", (unsigned long long)time_of_one());
    printf("a reload at rest: %llu us\n", (unsigned long long)reload(1, "") / 1000);
    printf("a request after it: %llu ns\n", (unsigned long long)time_of_one());
    for (size_t i = 0; i < THREADS; i++) {
        seeds[i] = random_next(&random);
        require(pthread_create(&threads[i], NULL, load, &seeds[i]) == 0);
    }
    for (unsigned i = 2; i < RELOADS; i++) {
        uint64_t before = atomic_load(&asked), took = reload(i, "");

        printf("a reload under load: %llu us, %llu requests meanwhile\n",
               (unsigned long long)took / 1000, (unsigned long long)atomic_load(&asked) - before);
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    require(weir_set_subjects(weir_pool_set(pool, 0), &stats) == 1);
    require(stats.known == subjects_n && stats.evicted == 0 && stats.forgotten == 0);
    check_levels(40);
    known = stats.known;
    printf("a reload to two limits: %llu us\n",
           (unsigned long long)reload(RELOADS, ", { type: resource, key: slots, capacity: 1 }") /
               1000);
    for (uint64_t i = 0; i < subjects_n; i += subjects_n / 10)
        take_one(i);
    require(weir_set_subjects(weir_pool_set(pool, 0), &stats) == 1);
    require(stats.known == known);
    weir_pool_close(pool);
    weir_close(w);
    free(taken);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Reloads change what a process has for itself of shared sets, while its threads use these: a
 * number in their `config`, a `timeout`, whether they are strict and count holds. At times the
 * definition changes for all processes as well, and at times the process drops the sets and takes
 * them back.
 *
 *   - An acquisition has the number of a reload that had begun when it was granted, and of none
 *     before the last one that had ended when it was asked for.
 *   - What is held never exceeds the largest capacity, and in the end nothing is held.
 *   - Every wait ends.
 *
 * Usage: test_own_settings_threads [seed].
 */
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/segment.h>
#include <weir/weir.h>

#define RELOADS   600u
#define THREADS   4u
#define SUBJECTS  3u
#define SLOTS_MAX 4u
#define SETS      2u /* without subjects, and with some */
#define NOTHING   "version: 1\nsets: {}\n"

static char directory[TMPDIR_SIZE];
static weir *w;
static _Atomic uint32_t started, finished; /* reloads */
static _Atomic int held[1 + SUBJECTS];     /* of the first set, and of each subject of the second */
static _Atomic unsigned opened;            /* threads that have opened their pools */
static _Atomic bool is_over;
static _Atomic uint64_t grants, ended;

static const char *const names[SETS] = {"one", "each"};

/* Writes a configuration with the number of a reload; 0: without what is the process's own. */
static const char *text_of(uint32_t number, unsigned slots, char ret[1024])
{
    char own[256] = "";

    if (number)
        snprintf(own, sizeof(own),
                 "timeout: %us, strict: %s, hold_histogram: %s, config: { n: %u },", 1000 + number,
                 number % 3 ? "false" : "true", number % 4 ? "false" : "true", number);
    snprintf(ret, 1024,
             "version: 1\nsets:\n"
             "  one: { backend: process, %s limits: [ { type: resource, key: slots, capacity: %u } "
             "] }\n"
             "  each: { backend: process, %s subjects: { max: 16 }, limits: [ { type: resource, "
             "key: slots, capacity: %u } ] }\n",
             own, slots, own, slots);
    return ret;
}

static struct weir_options options_for(const char *text)
{
    return (struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .process_dir = directory};
}

/* ---- threads that use the sets ---- */

static void use(weir_acquisition *acquisition, uint32_t first, _Atomic int *total, uint64_t *random)
{
    const char *number = weir_acquisition_config(acquisition, "n");
    uint32_t n = number ? (uint32_t)strtoul(number, NULL, 10) : 0;

    require(n >= first && n <= atomic_load(&started));
    require(atomic_fetch_add(total, 1) < (int)SLOTS_MAX);
    atomic_fetch_add(&grants, 1);
    if (random_below(random, 4) == 0)
        sched_yield();
    number = weir_acquisition_config(acquisition, "n");
    require(n == (number ? strtoul(number, NULL, 10) : 0)); /* as it was granted with */
    atomic_fetch_sub(total, 1);
    require(weir_release(&acquisition) == 0);
}

/* Asks in one of the ways of asking. Returns the result, and the acquisition after 0. */
static int ask(weir_pool *pool, const struct weir_request *request, uint64_t way,
               weir_acquisition **ret)
{
    int r;

    if (way == 0)
        return weir_try_acquire(pool, request, ret, NULL);
    if (way < 3)
        return weir_acquire(pool, request, ret, NULL);
    r = weir_submit(pool, request, ret, NULL);
    if (r < 0)
        return r;
    while ((r = weir_acquisition_result(*ret)) == -EINPROGRESS)
        sched_yield();
    if (r < 0)
        require(weir_release(ret) == 0);
    return r;
}

static void *load(void *seed)
{
    uint64_t random = *(uint64_t *)seed;
    weir_pool *pools[SETS] = {NULL};

    for (size_t i = 0; i < SETS; i++)
        require(weir_pool_open(&pools[i], w, names[i], 0, NULL) == 0);
    atomic_fetch_add(&opened, 1);
    while (!atomic_load(&is_over)) {
        uint64_t which = random_below(&random, SETS), subject = random_below(&random, SUBJECTS);
        const struct weir_request request = {.size = sizeof(request),
                                             .timeout_ns = WEIR_FOREVER,
                                             .subject = &subject,
                                             .subject_size = sizeof(subject)};
        weir_acquisition *acquisition = NULL;
        uint32_t first = atomic_load(&finished);
        int r = ask(pools[which], &request, random_below(&random, 5), &acquisition);

        require(r == 0 || r == -EAGAIN || r == -ESTALE || r == -ESHUTDOWN);
        atomic_fetch_add(&ended, r == -ESTALE || r == -ESHUTDOWN);
        if (r == -ESTALE)
            usleep(100); /* the set is about to come back */
        if (r == 0)
            use(acquisition, first, &held[which ? 1 + subject : 0], &random);
    }
    for (size_t i = 0; i < SETS; i++)
        weir_pool_close(pools[i]);
    return NULL;
}

/* ---- changes ---- */

static void reload(const char *text)
{
    const struct weir_options options = options_for(text);
    struct weir_error error = {0};

    if (weir_reload(w, &options, &error) < 0)
        fprintf(stderr, "%s\n", error.message);
    require(error.code == 0);
}

static void redefine(unsigned slots)
{
    char text[1024];
    const struct weir_options options = options_for(text_of(0, slots, text));
    struct weir_error error = {0};

    for (size_t i = 0; i < SETS; i++)
        if (weir_segment_redefine(&options, names[i], 0, NULL, NULL, &error) < 0)
            fprintf(stderr, "%s\n", error.message);
    require(error.code == 0);
}

static void change(uint64_t *random)
{
    unsigned slots = 2;
    char text[1024];

    for (uint32_t round = 1; round <= RELOADS; round++) {
        if (random_below(random, 8) == 0) {
            slots = 1 + (unsigned)random_below(random, SLOTS_MAX);
            redefine(slots);
        }
        if (round == 1 || random_below(random, 8) == 0)
            reload(NOTHING);
        while (!atomic_load(&ended))
            usleep(100); /* the first time until a thread has noticed */
        atomic_store(&started, round);
        reload(text_of(round, slots, text));
        atomic_store(&finished, round);
    }
}

/* All can be had, and no more. */
static void check_rest(void)
{
    weir_acquisition *acquisitions[SLOTS_MAX + 1] = {NULL};
    uint64_t subject = 0;
    const struct weir_request request = {
        .size = sizeof(request), .subject = &subject, .subject_size = sizeof(subject)};

    redefine(SLOTS_MAX);
    for (size_t i = 0; i < SETS; i++) {
        weir_pool *pool = NULL;

        require(weir_pool_open(&pool, w, names[i], 0, NULL) == 0);
        for (unsigned k = 0; k < SLOTS_MAX; k++)
            require(weir_try_acquire(pool, &request, &acquisitions[k], NULL) == 0);
        require(weir_try_acquire(pool, &request, &acquisitions[SLOTS_MAX], NULL) == -EAGAIN);
        for (unsigned k = 0; k < SLOTS_MAX; k++)
            require(weir_release(&acquisitions[k]) == 0);
        weir_pool_close(pool);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : random_seed(), seeds[THREADS];
    uint64_t random = random_case(seed, 0);
    struct weir_options options;
    struct weir_error error = {0};
    pthread_t threads[THREADS];
    char text[1024];

    test_seed = seed;
    printf("seed %" PRIu64 "\n", seed);
    require(tmpdir_make(directory, NULL));
    options = options_for(text_of(0, 2, text));
    if (weir_open(&w, &options, &error) < 0)
        fprintf(stderr, "%s\n", error.message);
    require(w);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = random_case(seed, i + 1);
        require(pthread_create(&threads[i], NULL, load, &seeds[i]) == 0);
    }
    while (atomic_load(&opened) < THREADS)
        usleep(100); /* no pool can be opened while the sets are dropped */
    change(&random);
    while (!atomic_load(&grants))
        usleep(100);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_rest();
    printf("%u reloads, %" PRIu64 " grants, %" PRIu64 " ended with a set\n", RELOADS,
           atomic_load(&grants), atomic_load(&ended));
    weir_close(w);
    require(tmpdir_remove(directory));
    return 0;
}

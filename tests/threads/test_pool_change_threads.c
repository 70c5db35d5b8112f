/* SPDX-License-Identifier: MIT */
/*
 * Pools change while threads ask by their handles, in every way: sets come, go and change places,
 * one becomes several, balancers are exchanged, sets get other definitions in the same reload or
 * are removed, and some configurations are invalid. Each thread has handles of its own and one that
 * all use.
 *
 * No call fails since its pool has changed. A request that began when a reload had ended is granted
 * by a set of the pool then or later. No unit is lost, and no grant is beyond the largest capacity.
 * Usage: test_pool_change_threads [seed]. WEIR_ROUNDS is the number of reloads.
 */
#include "lib/random.h"
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { THREADS = 4, SETS = 5, LASTING = 3, CAPACITY_MAX = 2 }; /* LASTING: never removed */

static const char *const names[SETS] = {"a", "b", "c", "d", "e"};

static weir *w;
static weir_pool *common;               /* a handle that all threads use */
static unsigned reloads;                /* how many there will be */
static _Atomic uint32_t started, ended; /* reloads; 0: as it was opened */
static uint8_t *sets_of;                /* of the pool, by reload: bits; written before `started` */
static _Atomic int held[SETS];          /* units; not more than the library counts */
static _Atomic bool is_over;
static _Atomic uint64_t grants, shut_down;

/* Returns all sets of the pool since the end of one reload. */
static unsigned sets_since(uint32_t first)
{
    unsigned sets = 0;

    for (uint32_t i = first, last = atomic_load(&started); i <= last; i++)
        sets |= sets_of[i];
    return sets;
}

/* Takes note of a grant that was asked for after reload `first`, and gives it back. */
static void use(weir_acquisition *acquisition, uint32_t first, uint64_t *random)
{
    const char *by = weir_acquisition_set(acquisition);
    unsigned set = (unsigned)(by[0] - 'a');

    require(set < SETS && strcmp(by, names[set]) == 0);
    require(sets_since(first) & 1u << set);
    /* A set that was removed has its holders beside those of a new one of its name. */
    require(atomic_fetch_add(&held[set], 1) < CAPACITY_MAX || set >= LASTING);
    atomic_fetch_add(&grants, 1);
    if (random_below(random, 4) == 0)
        sched_yield();
    atomic_fetch_sub(&held[set], 1);
    require(weir_release(&acquisition) == 0);
}

/* Waits for a decision, or cancels. Returns the result, and the acquisition after 0. */
static int await(int r, bool cancels, weir_acquisition **ret)
{
    if (r < 0)
        return r;
    if (r == 1 && cancels && weir_cancel(*ret) == 0) {
        require(weir_release(ret) == 0);
        return -ECANCELED;
    }
    while ((r = weir_acquisition_result(*ret)) == -EINPROGRESS)
        sched_yield();
    if (r < 0)
        require(weir_release(ret) == 0);
    return r;
}

/* Asks through a completion queue of this thread. */
static int ask_queue(weir_queue *queue, weir_pool *pool, weir_acquisition **ret)
{
    struct weir_completion done = {.result = -EINPROGRESS};
    int r = weir_queue_submit(queue, pool, NULL, 1, NULL, NULL);

    if (r < 0)
        return r;
    while ((r = weir_queue_reap(queue, &done, 1)) == 0)
        sched_yield();
    require(r == 1 && done.user_data == 1);
    *ret = done.acquisition;
    if (done.result < 0 && *ret)
        require(weir_release(ret) == 0);
    return done.result;
}

/* Asks in one of the ways. Only a try is refused as it would have to wait, and only a wait ends
 * with the set where it waits. */
static int ask(weir_queue *queue, weir_pool *pool, uint64_t *random, weir_acquisition **ret)
{
    bool cancels = random_below(random, 2);
    int r;

    switch (random_below(random, 6)) {
    case 0:
    case 1:
        r = weir_try_acquire(pool, NULL, ret, NULL);
        require(r == 0 || r == -EAGAIN);
        return r;
    case 2:
    case 3:
        r = weir_acquire(pool, NULL, ret, NULL);
        break;
    case 4:
        r = await(weir_submit(pool, NULL, ret, NULL), cancels, ret);
        if (cancels && r == -ECANCELED)
            return r;
        break;
    default:
        r = ask_queue(queue, pool, ret);
    }
    require(r == 0 || r == -ESHUTDOWN);
    return r;
}

static void *load(void *seed)
{
    uint64_t random = *(uint64_t *)seed;
    weir_pool *own = NULL;
    weir_queue *queue = NULL;

    require(weir_queue_open(&queue, w, 4) == 0);
    while (!atomic_load(&is_over)) {
        weir_acquisition *acquisition = NULL;
        uint32_t first = atomic_load(&ended);
        int r;

        if (!own || random_below(&random, 50) == 0) { /* handles come and go */
            weir_pool_close(own);
            require(weir_pool_open(&own, w, "p", WEIR_WORKER_AUTO, NULL) == 0);
            first = atomic_load(&ended);
        }
        r = ask(queue, random_below(&random, 3) ? own : common, &random, &acquisition);
        atomic_fetch_add(&shut_down, r == -ESHUTDOWN);
        if (r == 0)
            use(acquisition, first, &random);
    }
    weir_queue_close(queue);
    weir_pool_close(own);
    return NULL;
}

/* Writes a configuration, and returns the sets of its pool. */
static unsigned write_config(char *text, size_t size, uint64_t *random)
{
    static const char *const fields[] = {"",
                                         ", balancer: random",
                                         ", balancer: failover, try: next",
                                         ", wait: any",
                                         ", balancer: least_loaded",
                                         ", try: next"};
    unsigned first = (unsigned)random_below(random, SETS),
             n = 1 + (unsigned)random_below(random, 4);
    unsigned sets = 0, removed = LASTING + (unsigned)random_below(random, SETS);
    size_t at = (size_t)snprintf(text, size, "version: 1\nsets:\n");

    for (unsigned i = 0; i < n; i++)
        sets |= 1u << (first + i) % SETS;
    for (unsigned i = 0; i < SETS; i++) {
        if (i == removed && !(sets & 1u << i))
            continue;
        at += (size_t)snprintf(text + at, size - at,
                               "  %s: { %slimits: [ { type: resource, key: k, capacity: %u } ] }\n",
                               names[i], random_below(random, 4) ? "" : "hold_histogram: true, ",
                               1 + (unsigned)random_below(random, CAPACITY_MAX));
    }
    at += (size_t)snprintf(text + at, size - at, "pools: { p: { sets: [");
    for (unsigned i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "",
                               names[(first + i) % SETS]);
    snprintf(text + at, size - at, "]%s } }\n", n > 1 ? fields[random_below(random, 6)] : "");
    return sets;
}

static int reload(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    int r = weir_reload(w, &options, &error);

    if (r < 0 && r != -EINVAL)
        fprintf(stderr, "%s\n%s\n", error.message, text);
    return r;
}

static void run_reloads(uint64_t *random)
{
    char text[2048];

    for (uint32_t i = 1; i <= reloads; i++) {
        uint64_t before = atomic_load(&grants);

        if (random_below(random, 8) == 0)
            require(reload("version: 1\nsets: {}\npools: { p: { sets: [a] } }\n") == -EINVAL);
        sets_of[i] = (uint8_t)write_config(text, sizeof(text), random);
        atomic_store(&started, i);
        require(reload(text) == 0);
        atomic_store(&ended, i);
        for (int k = 0; k < 100 && atomic_load(&grants) == before; k++)
            sched_yield();
    }
}

#define LAST_SET(name) name ": { limits: [ { type: resource, key: k, capacity: 3 } ] }\n"
#define LAST(name)     "version: 1\nsets:\n  " LAST_SET(name)

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : random_seed(), seeds[THREADS];
    uint64_t random = random_case(seed, 0);
    char text[2048];
    struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limit;
    pthread_t threads[THREADS];

    test_seed = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    reloads = (unsigned)effort_from("WEIR_ROUNDS", 1000);
    sets_of = calloc(reloads + 1, 1);
    require(sets_of);
    sets_of[0] = (uint8_t)write_config(text, sizeof(text), &random);
    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&common, w, "p", 0, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        seeds[i] = random_next(&random);
        require(pthread_create(&threads[i], NULL, load, &seeds[i]) == 0);
    }
    run_reloads(&random);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    require(reload(LAST("a") "  " LAST_SET("b") "  " LAST_SET(
                "c") "pools: { p: { sets: [a, b, c] } }\n") == 0);
    for (size_t i = 0; i < LASTING; i++) { /* which were never removed */
        require(weir_set_stats(weir_pool_set(common, i), &stats, &limit, 1) >= 1);
        require(stats.held == 0 && stats.waiting == 0 && limit.held == 0 && limit.available == 3);
    }
    printf("grants: %llu, shut down: %llu\n", (unsigned long long)atomic_load(&grants),
           (unsigned long long)atomic_load(&shut_down));
    require(atomic_load(&grants) > reloads);
    weir_pool_close(common);
    weir_close(w);
    free(sets_of);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Reloads while threads acquire, wait, cancel and release: capacities go up and down, algorithms
 * and limits are exchanged, a set comes and goes, and some configurations are invalid. No grant is
 * beyond the limit in force when it was given, no unit is lost, and no waiter is stuck. So it is
 * for each subject of a set that has them, in which a subject's state is one word or a key set by
 * turns. Usage: test_reload_threads [seed].
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

#define RELOADS 1000u
#define THREADS 4u

static weir *w;
static _Atomic uint32_t started, finished; /* reloads; 0: as it was opened */
static uint32_t capacity_of[RELOADS + 1];  /* of `slots`, written before `started` */
#define SUBJECTS 6u
/* Units of `slots` of `main`, and of each subject of `each`; not more than the library counts. */
static _Atomic uint64_t held[1 + SUBJECTS];
static _Atomic bool is_over;
static _Atomic uint64_t grants, ended;

/* Returns the largest capacity that was in force between the end of one reload and now. */
static uint32_t largest_since(uint32_t first)
{
    uint32_t last = atomic_load(&started), largest = 0;

    for (uint32_t i = first; i <= last; i++)
        largest = capacity_of[i] > largest ? capacity_of[i] : largest;
    return largest;
}

/* Takes note of a grant that was asked for after reload `first`, uses it, and gives it back. */
static void use(weir_acquisition *acquisition, uint64_t amount, uint32_t first,
                _Atomic uint64_t *total, uint64_t *random)
{
    uint64_t now = atomic_fetch_add(total, amount) + amount;

    require(now <= largest_since(first));
    atomic_fetch_add(&grants, 1);
    if (random_below(random, 4) == 0)
        sched_yield();
    if (amount > 1 && random_below(random, 4) == 0) {
        atomic_fetch_sub(total, 1);
        require(weir_return(acquisition, "slots", 1) == 0);
        amount--;
    }
    atomic_fetch_sub(total, amount);
    require(weir_release(&acquisition) == 0);
}

/* Asks in one of the ways of asking. Returns the result, and the acquisition after 0. */
static int ask(weir_pool *pool, const struct weir_request *request, uint64_t way,
               weir_acquisition **ret)
{
    int r;

    if (way == 0)
        return weir_try_acquire(pool, request, ret, NULL);
    if (way < 4)
        return weir_acquire(pool, request, ret, NULL);
    r = weir_submit(pool, request, ret, NULL);
    if (r < 0)
        return r;
    if (r == 1 && weir_cancel(*ret) == 0) {
        require(weir_release(ret) == 0);
        return -ECANCELED;
    }
    while ((r = weir_acquisition_result(*ret)) == -EINPROGRESS)
        sched_yield();
    if (r < 0)
        require(weir_release(ret) == 0);
    return r;
}

static void *load(void *seed)
{
    uint64_t random = *(uint64_t *)seed;
    weir_pool *pools[4] = {0}; /* by which */
    static const char *const names[] = {"two", "main", "each", "paced"};

    for (size_t i = 0; i < 4; i++)
        require(weir_pool_open(&pools[i], w, names[i], 0, NULL) == 0);
    while (!atomic_load(&is_over)) {
        uint64_t which = random_below(&random, 8), subject = random_below(&random, SUBJECTS);
        bool is_counted;
        uint64_t amount;
        struct weir_amount slots = {.key = "slots"};
        const struct weir_request request = {.size = sizeof(request),
                                             .amounts = &slots,
                                             .amounts_n = 1,
                                             .subject = &subject,
                                             .subject_size = sizeof(subject)};
        weir_acquisition *acquisition = NULL;
        uint32_t first = atomic_load(&finished);
        int r;

        which = which > 5 ? which - 6 : which < 3 ? 1 : which < 5 ? 2 : 3;
        is_counted = which == 1 || which == 2;
        amount = slots.amount = is_counted ? 1 + random_below(&random, 3) : 1;
        r = ask(pools[which], &request, which == 3 ? 0 : random_below(&random, 6), &acquisition);
        require(r == 0 || r == -EAGAIN || r == -ERANGE || r == -ECANCELED);
        atomic_fetch_add(&ended, r < 0);
        if (r == 0 && is_counted)
            use(acquisition, amount, first, &held[which == 1 ? 0 : 1 + subject], &random);
        else if (r == 0)
            require(weir_release(&acquisition) == 0);
    }
    for (size_t i = 0; i < 4; i++)
        weir_pool_close(pools[i]);
    return NULL;
}

/* Uses a set that comes and goes. */
static void *visit(void *unused)
{
    while (!atomic_load(&is_over)) {
        weir_pool *pool = NULL;
        weir_acquisition *acquisition = NULL;
        int r = weir_pool_open(&pool, w, "guest", 0, NULL);

        require(r == 0 || r == -ENOENT);
        while (r == 0) {
            r = weir_acquire(pool, NULL, &acquisition, NULL);
            require(r == 0 || r == -ESTALE || r == -ESHUTDOWN);
            if (r == 0)
                require(weir_release(&acquisition) == 0);
            if (atomic_load(&is_over))
                break;
        }
        weir_pool_close(pool);
        sched_yield();
    }
    return unused;
}

/* Writes a configuration with this capacity. The set `two` has several limits, and waits that a
 * rate ends. */
static void write_config(char *text, size_t size, uint32_t capacity, uint64_t *random)
{
    static const char *const rates[] = {"token_bucket", "gcra", "sliding_window", "fixed_window"};
    static const char *const fair[] = {"true", "per_limit", "false"};
    bool has_rate = random_below(random, 2), has_more = random_below(random, 3) == 0;

    snprintf(text, size,
             "version: 1\nsets:\n  main: { fair: %s, limits: [ { type: resource, key: slots, "
             "capacity: %u }%s ] }\n  two: { limits: [ { type: resource, key: slots, capacity: "
             "%u } ] }\n%s",
             fair[random_below(random, 3)], capacity,
             has_more ? ", { type: resource, key: more, capacity: 100 }" : "",
             1 + (unsigned)random_below(random, 3),
             random_below(random, 2)
                 ? "  guest: { limits: [ { type: resource, key: g, capacity: 1 } ] }\n"
                 : "");
    snprintf(text + strlen(text), size - strlen(text),
             "  each: { subjects: { max: %u }, limits: [ { type: resource, key: slots, capacity: "
             "%u }%s ] }\n  paced: { subjects: { max: 100 }, limits: [ { type: call, algorithm: "
             "%s, capacity: %u, window: 10ms } ] }\n",
             100 << random_below(random, 4), capacity,
             random_below(random, 2) ? ", { type: resource, key: more, capacity: 100 }" : "",
             rates[random_below(random, 4)], 1 + (unsigned)random_below(random, 9));
    if (has_rate)
        snprintf(
            text + strlen(text), size - strlen(text),
            "  rated: { limits: [ { type: call, algorithm: %s, capacity: 9, window: 1s } ] }\n",
            rates[random_below(random, 4)]);
}

static int reload(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    int r = weir_reload(w, &options, &error);

    if (r < 0 && r != -EINVAL)
        fprintf(stderr, "%s\n", error.message);
    return r;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : random_seed(), seeds[THREADS];
    uint64_t random = random_case(seed, 0);
    struct weir_options options = {.size = sizeof(options)};
    struct weir_limit_stats limit;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    pthread_t threads[THREADS + 1];
    weir_pool *pool = NULL;
    char text[2048];

    test_seed = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    capacity_of[0] = 4;
    write_config(text, sizeof(text), capacity_of[0], &random);
    options.text = text;
    require(weir_open(&w, &options, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        seeds[i] = random_next(&random);
        require(pthread_create(&threads[i], NULL, load, &seeds[i]) == 0);
    }
    require(pthread_create(&threads[THREADS], NULL, visit, NULL) == 0);
    for (uint32_t i = 1; i <= RELOADS; i++) {
        uint64_t before = atomic_load(&grants);

        capacity_of[i] = 1 + (uint32_t)random_below(&random, 6);
        write_config(text, sizeof(text), capacity_of[i], &random);
        if (random_below(&random, 8) == 0) { /* in between an invalid one */
            require(reload("version: 1\nsets: { main: { limits: [ { type: none } ] } }\n") ==
                    -EINVAL);
        }
        atomic_store(&started, i);
        require(reload(text) == 0);
        atomic_store(&finished, i);
        for (int k = 0; k < 100 && atomic_load(&grants) == before; k++)
            sched_yield();
    }
    /* Enough for every request, so that none waits for ever. */
    atomic_store(&is_over, true);
    for (size_t i = 0; i <= THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i <= SUBJECTS; i++)
        require(atomic_load(&held[i]) == 0);
    require(weir_pool_open(&pool, w, "main", 0, NULL) == 0);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, &limit, 1) >= 1);
    require(stats.held == 0 && stats.waiting == 0);
    require(limit.held == 0 && limit.available == capacity_of[RELOADS]);
    weir_pool_close(pool);
    require(weir_pool_open(&pool, w, "each", 0, NULL) == 0);
    for (uint64_t i = 0; i < SUBJECTS; i++) {
        const struct weir_request request = {
            .size = sizeof(request), .subject = &i, .subject_size = sizeof(i)};
        struct weir_remaining remaining[2];

        require(weir_set_remaining(weir_pool_set(pool, 0), &request, remaining, 2) >= 1);
        require(remaining[0].available == capacity_of[RELOADS]);
    }
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, &limit, 1) >= 1);
    require(stats.held == 0 && stats.waiting == 0 && limit.held == 0);
    printf("grants: %llu, refused or ended: %llu\n", (unsigned long long)atomic_load(&grants),
           (unsigned long long)atomic_load(&ended));
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Threads that hold something and ask for more of it, up to three levels deep, beside threads that
 * do not. No wait is for ever: each circle is refused. Never is more held than there is, and
 * nothing is held or waits in the end. Long form: WEIR_ROUNDS.
 */
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "lib/clock.h"
#include <cmocka.h>

enum { THREADS = 5, LEVELS = 3, LIMITS = 2 };
#define ROUNDS     400
#define LONG_AFTER (60 * SECOND) /* a call that waits for ever fails then */

#define LIMITS_TEXT                                                                                \
    "limits: [ { type: resource, key: slots, capacity: 5 }, "                                      \
    "{ type: resource, key: disks, capacity: 3 } ]"
#define SHARED "backend: process, lifetime: users, "

static const char *const keys[LIMITS] = {"slots", "disks"};
static const uint64_t capacities[LIMITS] = {5, 3};

static const char *const places[] = {
    LIMITS_TEXT,        "fair: per_limit, " LIMITS_TEXT,        "fair: false, " LIMITS_TEXT,
    SHARED LIMITS_TEXT, SHARED "fair: per_limit, " LIMITS_TEXT,
};

static weir *w;
static weir_pool *pool;
static _Atomic uint64_t held[LIMITS];
static _Atomic uint64_t granted, refused;

struct asker {
    uint64_t random;
    uint64_t rounds;
};

static void hold(const struct weir_amount *amounts)
{
    for (int i = 0; i < LIMITS; i++)
        require(atomic_fetch_add(&held[i], amounts[i].amount) + amounts[i].amount <= capacities[i]);
    atomic_fetch_add(&granted, 1);
}

static void let_go(const struct weir_amount *amounts)
{
    for (int i = 0; i < LIMITS; i++)
        atomic_fetch_sub(&held[i], amounts[i].amount);
}

/* Asks for something, within what it holds, and within that again. */
static void ask(struct asker *asker, const weir_acquisition *outer, int level)
{
    struct weir_amount amounts[LIMITS];
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = amounts,
                                   .amounts_n = LIMITS,
                                   .timeout_ns = LONG_AFTER,
                                   .within = outer};
    weir_acquisition *acquisition = NULL;
    int r;

    for (int i = 0; i < LIMITS; i++)
        amounts[i] = (struct weir_amount){keys[i], random_below(&asker->random, 3)};
    if (random_below(&asker->random, 8) == 0)
        request.timeout_ns = 1 + random_below(&asker->random, 100 * US);
    r = weir_acquire(pool, &request, &acquisition, NULL);
    require(r == 0 || (r == -EDEADLK && outer) ||
            (r == -ETIMEDOUT && request.timeout_ns != LONG_AFTER));
    if (r < 0) {
        atomic_fetch_add(&refused, r == -EDEADLK);
        return;
    }
    hold(amounts);
    if (level < LEVELS && random_below(&asker->random, 2))
        ask(asker, acquisition, level + 1);
    let_go(amounts);
    require(weir_release(&acquisition) == 0);
}

static void *run(void *argument)
{
    struct asker *asker = argument;

    while (asker->rounds-- > 0)
        ask(asker, NULL, 1);
    return NULL;
}

static void run_threads(uint64_t *random)
{
    struct asker askers[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){random_next(random), effort_from("WEIR_ROUNDS", ROUNDS)};
        require(pthread_create(&threads[i], NULL, run, &askers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        require(pthread_join(threads[i], NULL) == 0);
}

static void try_place(const char *fields, const char *directory, uint64_t *random)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_options options = {.size = sizeof(options), .process_dir = directory};
    char text[512];

    snprintf(text, sizeof(text), "version: 1\nsets: { s: { %s } }\n", fields);
    options.text = text;
    granted = refused = 0;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "s", 0, NULL), 0);
    run_threads(random);
    assert_int_equal(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0), LIMITS);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.refused_deadlock, refused);
    print_message("%s: %lu granted, %lu circles refused\n", fields, (unsigned long)granted,
                  (unsigned long)refused);
    assert_true(granted > 0);
    weir_pool_close(pool);
    weir_close(w);
}

static void no_wait_is_for_ever(void **state)
{
    char directory[TMPDIR_SIZE];
    uint64_t random;

    (void)state;
    seed_begin();
    random = test_seed;
    assert_true(tmpdir_make(directory, NULL));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        try_place(places[i], directory, &random);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_checked_test(no_wait_is_for_ever)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

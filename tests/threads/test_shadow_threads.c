/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait for an enforced resource of a set, the other one of which is in shadow for part
 * of them. Grants to waiters are made by whichever thread gives back. No unit of the resource in
 * shadow is lost or doubled: it never has more than its capacity, each grant is counted as taken or
 * as one that would have been refused, and none is left in the end. The number of operations of a
 * thread is WEIR_OPERATIONS.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "lib/clock.h"
#include <cmocka.h>

enum { THREADS = 4, CAPACITY = 2 };
#define LIMITS                                                                                     \
    "limits: [ { type: resource, key: enforced, capacity: 3 }, { type: resource, key: shadow, "    \
    "capacity: 2, enforce: 50% } ]"
#define SHARED "backend: process, lifetime: users, "

static const char *const places[] = {
    LIMITS,
    "fair: per_limit, " LIMITS,
    "subjects: { max: 4 }, " LIMITS,
    SHARED LIMITS,
    SHARED "subjects: { max: 4 }, " LIMITS,
};

static weir *w;
static weir_pool *pool;
static uint64_t operations;
static bool has_one_state; /* with subjects the holders are summed up one after the other */

struct worker {
    pthread_t thread;
    uint64_t random, granted; /* with a unit of the limit in shadow */
};

static struct weir_limit_stats shadow_stats(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, limits, 2) == 2);
    return limits[1];
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t i = 0; i < operations; i++) {
        const struct weir_amount amounts[] = {{"enforced", random_below(&worker->random, 3)},
                                              {"shadow", 1}};
        const struct weir_request request = {.size = sizeof(request),
                                             .amounts = amounts,
                                             .amounts_n = 2,
                                             .route = random_below(&worker->random, 100),
                                             .timeout_ns = 1 + random_below(&worker->random, MS),
                                             .subject = "s",
                                             .subject_size = 1};
        weir_acquisition *acquisition = NULL;
        int r = weir_acquire(pool, &request, &acquisition, NULL);

        require(r == 0 || r == -ETIMEDOUT);
        worker->granted += r == 0;
        if (has_one_state && random_chance(&worker->random, 10))
            require(shadow_stats().held <= CAPACITY);
        if (r == 0 && random_chance(&worker->random, 30))
            require(weir_return(acquisition, "shadow", 1) == 0);
        require(weir_release(&acquisition) == 0);
    }
    return NULL;
}

static void run(const char *place, const char *directory)
{
    struct worker workers[THREADS] = {{0}};
    struct weir_limit_stats stats;
    struct weir_options options = {.size = sizeof(options), .process_dir = directory};
    uint64_t granted = 0;
    char text[512];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", place);
    options.text = text;
    has_one_state = !strstr(place, "subjects");
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = number_from("WEIR_SEED", 1) + i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        granted += workers[i].granted;
    }
    stats = shadow_stats();
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.granted + stats.would_refuse, granted);
    pool = weir_pool_close(pool);
    w = weir_close(w);
}

static void no_unit_is_lost_or_doubled(void **state)
{
    char directory[TMPDIR_SIZE];

    (void)state;
    assert_true(tmpdir_make(directory, NULL));
    operations = random_operations(2000);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        run(places[i], directory);
    assert_true(tmpdir_remove(directory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_checked_test(no_unit_is_lost_or_doubled)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

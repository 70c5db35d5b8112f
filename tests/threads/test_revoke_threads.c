/* SPDX-License-Identifier: MIT */
/*
 * Threads that hold units for about as long as `max_hold` allows, so that releases and parts that
 * are returned early come at the time of revocations. No unit is lost or doubled: never is more
 * held than the capacity, each grant ends by a release or by a revocation, and none is left in the
 * end. A thread does a twentieth of WEIR_OPERATIONS, since each takes milliseconds.
 */
#include "lib/clock.h"
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
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#include <cmocka.h>

enum { THREADS = 4, CAPACITY = 3 };
#define LIMITS                                                                                     \
    "limits: [ { type: resource, key: slot, capacity: 3, max_hold: 2ms, max_hold_action: revoke "  \
    "} ]"
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
    uint64_t random, granted, revoked;
};

static struct weir_set_stats read_stats(struct weir_limit_stats *limit)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, limit, 1) == 1);
    return stats;
}

static void hold(struct worker *worker, weir_acquisition *acquisition)
{
    struct timespec time = {0, (long)(MS + random_below(&worker->random, 2 * MS))};
    struct weir_limit_stats limit;
    int r, result;

    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    if (has_one_state && random_chance(&worker->random, 10)) {
        read_stats(&limit);
        require(limit.held <= CAPACITY);
    }
    result = random_chance(&worker->random, 50) ? weir_return(acquisition, "slot", 1) : 0;
    require(result == 0 || result == -EOWNERDEAD);
    r = weir_release(&acquisition);
    require(r == 0 || r == -EOWNERDEAD);
    require(result == 0 || r == -EOWNERDEAD); /* it stays revoked */
    worker->revoked += r == -EOWNERDEAD;
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t i = 0; i < operations; i++) {
        const struct weir_amount amount = {"slot", 1 + random_below(&worker->random, CAPACITY)};
        const struct weir_request request = {.size = sizeof(request),
                                             .amounts = &amount,
                                             .amounts_n = 1,
                                             .timeout_ns =
                                                 1 + random_below(&worker->random, 5 * MS),
                                             .subject = "s",
                                             .subject_size = 1};
        weir_acquisition *acquisition = NULL;
        int r = weir_acquire(pool, &request, &acquisition, NULL);

        /* A grant may be revoked before its thread has woken up. */
        require(r == 0 || r == -ETIMEDOUT || r == -EOWNERDEAD);
        worker->granted += r != -ETIMEDOUT;
        worker->revoked += r == -EOWNERDEAD;
        if (r == 0)
            hold(worker, acquisition);
    }
    return NULL;
}

static void run(const char *place, const char *directory)
{
    struct worker workers[THREADS] = {{0}};
    struct weir_limit_stats limit;
    struct weir_set_stats stats;
    struct weir_options options = {.size = sizeof(options), .process_dir = directory};
    uint64_t granted = 0, revoked = 0;
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
        revoked += workers[i].revoked;
    }
    stats = read_stats(&limit);
    print_message("%s: %u granted, %u revoked\n", place, (unsigned)granted, (unsigned)revoked);
    assert_int_equal(limit.held, 0);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.granted, granted);
    assert_int_equal(stats.released, granted);
    assert_int_equal(stats.revoked, revoked);
    assert_true(stats.overheld >= stats.revoked);
    pool = weir_pool_close(pool);
    w = weir_close(w);
}

static void no_unit_is_lost_or_doubled(void **state)
{
    char directory[TMPDIR_SIZE];

    (void)state;
    assert_true(tmpdir_make(directory, NULL));
    operations = random_operations(3000) / 20; /* each takes milliseconds */
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        run(places[i], directory);
    assert_true(tmpdir_remove(directory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_checked_test(no_unit_is_lost_or_doubled)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

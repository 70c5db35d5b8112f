/* SPDX-License-Identifier: MIT */
/*
 * A call that the fast path serves is stopped at any of its steps (fiber.h), while another thread
 * changes the set, so that each of its compare-and-swaps fails once. It ends as if it had come
 * alone, and in the end nothing is held. One resource has its state in a word, two have theirs in a
 * block.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "fiber.h"
#include "lib/require.h"
#include "system.h"
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <weir/weir.h>

#include <cmocka.h>

enum { CAPACITY = 4, LIMITS_MAX = 2 };

static struct {
    weir *w;
    weir_set *set;
    weir_pool *pool;
    unsigned limits;
    weir_acquisition *acquisition; /* of the call that is stopped */
    int result;
    struct fiber fiber;
    weir_acquisition *rival;
    sem_t begin, done;
    bool ends;
} run;

/* The other thread holds a unit at every second change. */
static void rival_change(void)
{
    if (!run.rival)
        require(weir_try_acquire(run.pool, NULL, &run.rival, NULL) == 0);
    else
        require(weir_release(&run.rival) == 0);
}

static void *rival_main(void *unused)
{
    (void)unused;
    for (;;) {
        while (sem_wait(&run.begin) < 0)
            continue;
        if (run.ends)
            return NULL;
        rival_change();
        sem_post(&run.done);
    }
}

static void change(void)
{
    sem_post(&run.begin);
    while (sem_wait(&run.done) < 0)
        continue;
}

static void run_acquire(void *unused)
{
    (void)unused;
    run.result = weir_try_acquire(run.pool, NULL, &run.acquisition, NULL);
}

static void run_release(void *unused)
{
    (void)unused;
    run.result = weir_release(&run.acquisition);
}

static void check_held(uint64_t held)
{
    struct weir_set_stats set_stats = {.size = sizeof(set_stats)};
    struct weir_limit_stats stats[LIMITS_MAX];

    assert_int_equal(weir_set_stats(run.set, &set_stats, stats, LIMITS_MAX), run.limits);
    for (unsigned i = 0; i < run.limits; i++)
        assert_int_equal(stats[i].held, held);
}

/* The call is stopped after `n` steps. Returns whether it was. */
static bool stop_once(void (*call)(void *), uint64_t n, unsigned changes)
{
    bool stopped;

    fiber_start(&run.fiber, call, NULL);
    stopped = fiber_go(&run.fiber, n) == FIBER_READY;
    for (unsigned i = 0; i < changes; i++)
        change();
    fiber_go(&run.fiber, 0);
    assert_int_equal(run.fiber.state, FIBER_DONE);
    if (run.rival)
        change();
    return stopped;
}

static void each_step(const char *what)
{
    bool stopped = true;
    uint64_t n;

    /* After two changes a word is what it was. */
    for (n = 1; stopped; n++) {
        stopped = false;
        for (unsigned changes = 1; changes <= 2; changes++) {
            run.acquisition = NULL;
            stopped |= stop_once(run_acquire, n, changes);
            assert_int_equal(run.result, 0);
            check_held(1);
            stopped |= stop_once(run_release, n, changes);
            assert_int_equal(run.result, 0);
            assert_null(run.acquisition);
            check_held(0);
        }
    }
    printf("%s: %lu steps\n", what, (unsigned long)n);
    assert_true(n > 5);
}

static void run_with(const char *text, unsigned limits, const char *what)
{
    struct weir_options options = {.size = sizeof(options), .text = text};
    pthread_t rival;

    run.limits = limits;
    assert_int_equal(weir_open(&run.w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&run.pool, run.w, "s", 0, NULL), 0);
    run.set = weir_pool_set(run.pool, 0);
    assert_int_equal(sem_init(&run.begin, 0, 0) | sem_init(&run.done, 0, 0), 0);
    run.ends = false;
    assert_int_equal(pthread_create(&rival, NULL, rival_main, NULL), 0);
    for (unsigned i = 0; i < 4; i++) /* each thread has been there, and has cached what it needs */
        change();
    run_acquire(NULL);
    run_release(NULL);
    fibers_begin(NULL);
    each_step(what);
    fibers_end();
    run.ends = true;
    sem_post(&run.begin);
    assert_int_equal(pthread_join(rival, NULL), 0);
    run.pool = weir_pool_close(run.pool);
    weir_close(run.w);
}

static void a_word(void **state)
{
    (void)state;
    run_with("{version: 1, sets: {s: {limits: [{type: resource, key: a, capacity: 4}]}}}", 1,
             "one resource");
}

static void a_block(void **state)
{
    (void)state;
    run_with("{version: 1, sets: {s: {limits: [{type: resource, key: a, capacity: 4},"
             " {type: resource, key: b, capacity: 4}]}}}",
             2, "two resources");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word),
        cmocka_unit_test(a_block),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    require(system_start());
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Many threads read a shared clock and tell each other what they read: none gets less than it was
 * told of, more than CLOCK_MONOTONIC says afterwards, or less than it said before by more than the
 * bound. That is so on the processor's counter, on one that is computed, and, but for the bound, on
 * one that goes differently on each thread. And what they are granted by such a clock is no more
 * than the limit allows. Long form: WEIR_SECONDS, for each of them.
 */
#include "api/instance.h"
#include "base/clock.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS = 4 };

/* Counters */

static uint64_t raw_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t computed(void *unused)
{
    (void)unused;
    return raw_ns() * 3;
}

static uint64_t differing(void *unused)
{
    static _Thread_local uint64_t random, ahead;

    (void)unused;
    if (!random)
        random = random_case(test_seed, (uint64_t)(uintptr_t)&random);
    if (random_below(&random, 10000) == 0)
        ahead = random_next(&random) >> random_below(&random, 64);
    return raw_ns() * 3 + ahead;
}

/* Readings */

static struct {
    struct clock_tsc *tsc;
    _Atomic uint64_t told; /* the latest reading that a caller got */
    uint64_t until_ns, lag_ns;
} world;

/* Half of the readings come right after each other. */
static void *read_and_tell(void *seed)
{
    uint64_t random = random_case(test_seed, (uint64_t)(uintptr_t)seed), readings = 0, after;

    do {
        uint64_t told = atomic_load_explicit(&world.told, memory_order_acquire);
        uint64_t before = clock_now();
        bool fresh = random_below(&random, 100) == 0;
        uint64_t ns = fresh ? clock_tsc_now_fresh(world.tsc) : clock_tsc_now(world.tsc);

        after = clock_now();
        require(ns >= told);
        require(ns <= after);
        require(!world.lag_ns || ns + world.lag_ns >= before);
        require(!fresh || ns >= before);
        while (told < ns && !atomic_compare_exchange_weak_explicit(
                                &world.told, &told, ns, memory_order_release, memory_order_relaxed))
            ;
        if (random_below(&random, 2) == 0)
            for (uint64_t n = random_below(&random, 400); n > 0; n--)
                atomic_signal_fence(memory_order_seq_cst);
        readings++;
    } while (after < world.until_ns);
    return (void *)(uintptr_t)readings;
}

static uint64_t run_all(void *(*run)(void *))
{
    pthread_t threads[THREADS];
    uint64_t seconds = number_from("WEIR_SECONDS", 0), sum = 0;

    world.until_ns = clock_now() + (seconds ? seconds * SECOND : SECOND / 3);
    for (uintptr_t i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, run, (void *)(i << 32)) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *n;

        require(pthread_join(threads[i], &n) == 0);
        sum += (uintptr_t)n;
    }
    return sum;
}

static void read_by(const struct fake_counter *counter, uint64_t lag_ns)
{
    int r;

    fake_os_set_counter(counter);
    r = clock_tsc_new(&world.tsc);
    if (r < 0) { /* a processor without one, or too busy a machine to measure it */
        print_message("no counter: %s: SKIPPED\n", strerror(-r));
        return;
    }
    atomic_store(&world.told, 0);
    world.lag_ns = lag_ns;
    assert_true(run_all(read_and_tell) >= THREADS);
    os_free(world.tsc);
}

static void the_processors_counter(void **state)
{
    (void)state;
    read_by(NULL, TSC_LAG_NS);
}

static void a_counter_that_is_computed(void **state)
{
    static const struct fake_counter counter = {.ticks = computed};

    (void)state;
    read_by(&counter, TSC_LAG_NS);
}

static void a_counter_that_differs_from_thread_to_thread(void **state)
{
    static const struct fake_counter counter = {.ticks = differing};

    (void)state;
    for (int i = 0; i < 5; i++)
        read_by(&counter, 0);
}

/* Grants */

static weir_pool *pool;

static void *take_all(void *unused)
{
    uintptr_t granted = 0;

    (void)unused;
    do
        granted += weir_take(pool, NULL, NULL) == 0;
    while (granted < 10 || clock_now() < world.until_ns);
    return (void *)granted;
}

/* One in 2 µs, as often as a caller can ask. */
static void no_more_is_granted_than_the_limit_allows(void **state)
{
    static const struct weir_limit_spec limit = {.size = sizeof(limit),
                                                 .type = WEIR_LIMIT_CALL,
                                                 .algorithm = "gcra",
                                                 .capacity = 10,
                                                 .window_ns = 20000};
    static const struct fake_counter counter = {.ticks = computed};
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = "set", .limits = &limit, .limits_n = 1};
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    const struct weir_options options = {.size = sizeof(options), .clock_source = WEIR_CLOCK_TSC};
    uint64_t from_ns, granted;
    weir *w = NULL;

    (void)state;
    fake_os_set_counter(&counter);
    require(weir_open(&w, &options, NULL) == 0);
    from_ns = clock_now();
    require(weir_pool_new(&pool, w, &spec, NULL) == 0);
    granted = run_all(take_all);
    assert_true(granted >= 10);
    assert_true(granted <= 10 + (clock_now() + TSC_LAG_NS - from_ns) / 2000);
    weir_pool_close(pool);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_processors_counter),
        leak_checked_test(a_counter_that_is_computed),
        leak_checked_test(a_counter_that_differs_from_thread_to_thread),
        leak_checked_test(no_more_is_granted_than_the_limit_allows),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

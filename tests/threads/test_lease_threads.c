/* SPDX-License-Identifier: MIT */
/*
 * Many threads take from one rate with a lease, come and go, and wait between: nothing is granted
 * twice or lost. The rate is so slow that nothing comes back while the test lasts, so that there is
 * exactly the burst to be had; or so fast that much does, and the bound holds with all that passed
 * by a clock around the calls. Long form: WEIR_ROUNDS.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <weir/weir.h>

#include <cmocka.h>

enum { THREADS = 4, LIVES = 40, LEASE = 16, BURST = 50000 };

#define RATE(window, burst)                                                                        \
    "{ type: rate, key: k, algorithm: gcra, capacity: 1, window: " window ", burst: " burst        \
    ", lease: 16 }"

static weir *w;
static weir_pool *pool;
static _Atomic uint64_t granted;
static uint64_t most; /* of one acquisition */

static void open_world(const char *fields, uint64_t burst)
{
    char text[512];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
    atomic_store(&granted, 0);
    most = burst;
}

static struct weir_limit_stats figures(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limit;

    assert_int_equal(weir_set_stats(weir_pool_set(pool, 0), &stats, &limit, 1), 1);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.waiting, 0);
    return limit;
}

static void close_world(void)
{
    weir_pool_close(pool);
    weir_close(w);
}

static struct weir_request ask(const struct weir_amount *amount)
{
    return (struct weir_request){
        .size = sizeof(struct weir_request), .amounts = amount, .amounts_n = 1};
}

/* Gives back all of it, or waits a moment for more than there is. */
static void acquire(uint64_t *random)
{
    const struct weir_amount amount = {"k", 1 + random_below(random, most)};
    struct weir_request request = ask(&amount);
    weir_acquisition *acquisition;
    int r;

    request.timeout_ns = 1 + random_below(random, 20000);
    r = weir_acquire(pool, &request, &acquisition, NULL);
    require(r == 0 || r == -ETIMEDOUT || r == -EAGAIN);
    if (r < 0)
        return;
    require(weir_update(acquisition, "k", 0) == 0);
    weir_release(&acquisition);
}

/* One thread's life. */
static void *live(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed, sum = 0;

    for (uint64_t n = random_below(&random, 400); n > 0; n--) {
        const struct weir_amount amount = {
            "k", 1 + random_below(&random, random_below(&random, 9) ? 3 : 3 * LEASE)};
        const struct weir_request request = ask(&amount);
        int r = weir_take(pool, &request, NULL);

        require(r == 0 || r == -EAGAIN);
        sum += r == 0 ? amount.amount : 0;
        if (random_below(&random, 64) == 0)
            acquire(&random);
    }
    atomic_fetch_add(&granted, sum);
    return NULL;
}

static void *live_often(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;

    for (unsigned i = 0; i < LIVES; i++) {
        pthread_t thread;

        require(pthread_create(&thread, NULL, live,
                               (void *)(uintptr_t)(random_next(&random) | 1)) == 0);
        require(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

static void run_all(void)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, live_often, (void *)random_case(test_seed, i)), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* Half of the rounds run out of it, and go on with what others give back. */
static void nothing_is_lost_or_granted_twice(void **state)
{
    (void)state;
    for (uint64_t rounds = effort_from("WEIR_ROUNDS", 4); rounds > 0; rounds--) {
        bool scarce = rounds % 2;
        uint64_t burst = scarce ? 2000 : BURST;
        struct weir_limit_stats limit;

        open_world(scarce ? "limits: [ " RATE("5d", "2000") " ]"
                          : "limits: [ " RATE("5h", "50000") " ]",
                   burst);
        run_all();
        limit = figures();
        assert_int_equal(limit.leased, 0);
        /* Of acquisitions everything was given back. */
        assert_int_equal(limit.granted - limit.refunded, atomic_load(&granted));
        assert_int_equal(atomic_load(&granted) + limit.available, burst);
        close_world();
    }
}

/* All are gone, so nothing was leased at the beginning: the bound is that of the limit. */
static void no_more_is_granted_than_the_limit_allows(void **state)
{
    uint64_t began;

    (void)state;
    for (uint64_t rounds = effort_from("WEIR_ROUNDS", 4); rounds > 0; rounds--) {
        began = clock_now();
        open_world("limits: [ " RATE("1us", "100") " ]", 100);
        run_all();
        require(atomic_load(&granted) <= 100 + (clock_now() - began) / 1000);
        assert_int_equal(figures().leased, 0);
        close_world();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(nothing_is_lost_or_granted_twice),
        leak_checked_test(no_more_is_granted_than_the_limit_allows),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

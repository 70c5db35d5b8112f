/* SPDX-License-Identifier: MIT */
/*
 * Threads that are blocked in a set that is reloaded: the first one times out, which grants to the
 * second one and has the third one watch for its instant, all in what follows from one call. Usage:
 * test_reload_waiters [rounds].
 */
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { WAITERS = 3 };

static const char before[] = "version: 1\nsets: { s: { limits: [ { type: rate, key: k, algorithm: "
                             "token_bucket, capacity: 10, window: 1s } ] } }\n";
static const char after[] = "version: 1\nsets: { s: { limits: [ { type: rate, key: k, algorithm: "
                            "token_bucket, capacity: 11, window: 1s } ] } }\n";

struct waiter {
    pthread_t thread;
    weir_pool *pool;
    uint64_t units, timeout_ns;
    int result;
};

static int acquire(weir_pool *pool, uint64_t units, uint64_t timeout_ns)
{
    const struct weir_amount amount = {"k", units};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1, .timeout_ns = timeout_ns};
    weir_acquisition *acquisition = NULL;
    int r = weir_acquire(pool, &request, &acquisition, NULL);

    require((r == 0) == (acquisition != NULL));
    require(weir_release(&acquisition) >= -EPROTO);
    return r;
}

static void *run_waiter(void *argument)
{
    struct waiter *waiter = argument;

    waiter->result = acquire(waiter->pool, waiter->units, waiter->timeout_ns);
    return NULL;
}

static void await_waiting(weir_pool *pool, uint64_t n)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    do
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    while (stats.waiting < n && stats.timed_out == 0);
}

static void run_round(void)
{
    struct waiter waiters[WAITERS] = {{.units = 10, .timeout_ns = 200 * MS},
                                      {.units = 1, .timeout_ns = WEIR_FOREVER},
                                      {.units = 5, .timeout_ns = WEIR_FOREVER}};
    struct weir_options options = {.size = sizeof(options), .text = before};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    weir_pool *pool;
    weir *w;

    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&pool, w, "s", 0, NULL) == 0);
    require(acquire(pool, 9, 0) == 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        require(weir_pool_open(&waiters[i].pool, w, "s", 0, NULL) == 0);
        require(pthread_create(&waiters[i].thread, NULL, run_waiter, &waiters[i]) == 0);
        await_waiting(pool, i + 1);
    }
    options.text = after;
    require(weir_reload(w, &options, NULL) == 0);
    for (unsigned i = 0; i < WAITERS; i++) {
        require(pthread_join(waiters[i].thread, NULL) == 0);
        require(waiters[i].result == 0 || (i == 0 && waiters[i].result == -ETIMEDOUT));
        weir_pool_close(waiters[i].pool);
    }
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    require(stats.waiting == 0 && stats.held == 0);
    weir_pool_close(pool);
    weir_close(w);
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : effort_from("WEIR_ROUNDS", 8);

    for (uint64_t i = 0; i < rounds; i++)
        run_round();
    return 0;
}

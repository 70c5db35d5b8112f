/* SPDX-License-Identifier: MIT */
/*
 * The time of a permit from a lease at a Redis server, in batches of 1000, beside that of what it
 * cannot do without: a reading of CLOCK_BOOTTIME and an exchange of a word.
 *
 *     lease_bench PLUGIN SOCKET BATCHES
 */
#include "lib/require.h"
#include "server_set.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weir/weir.h>

#define MS UINT64_C(1000000)

enum { BLOCK = 100, BATCH = 1000 };

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static const char limits[] =
    "limits: [ { type: rate, key: tokens, algorithm: gcra, capacity: 100M, "
    "window: 1s, burst: 1001000, lease: { for: 10ms } } ]";

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double median(uint64_t *times, size_t n)
{
    require(n > 0);
    qsort(times, n, sizeof(*times), by_value);
    return (double)times[n / 2] / BLOCK;
}

/* The least that a permit with a deadline takes. */
static double bench_bare(size_t blocks)
{
    static _Atomic uint64_t word = UINT64_MAX;
    uint64_t *times = calloc(blocks, sizeof(*times)), seen, begin_ns;
    double ns;

    require(times);
    for (size_t i = 0; i < blocks; i++) {
        begin_ns = clock_ns(CLOCK_MONOTONIC);
        for (int k = 0; k < BLOCK; k++) {
            seen = atomic_load(&word);
            require(clock_ns(CLOCK_BOOTTIME) > 0);
            while (!atomic_compare_exchange_weak(&word, &seen, seen - 1))
                ;
        }
        times[i] = clock_ns(CLOCK_MONOTONIC) - begin_ns;
    }
    ns = median(times, blocks);
    free(times);
    return ns;
}

static uint64_t leased(weir_pool *pool)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    require(weir_set_lease_stats(weir_pool_set(pool, 0), 0, &stats) == 0);
    return stats.granted;
}

/* Of the blocks that were served from batches alone: the median. And the processor's time of this
 * thread for all permits, with what it does to have batches. */
static double bench_leases(weir_pool *pool, size_t blocks)
{
    const struct weir_amount one = {"tokens", 1};
    const struct weir_request request = {.size = sizeof(request), .amounts = &one, .amounts_n = 1};
    uint64_t *times = calloc(blocks, sizeof(*times)), begin_ns, cpu_ns = 0, before, permits = 0;
    size_t n = 0;
    double ns;

    require(times);
    for (size_t i = 0; i < blocks; i++) {
        if (i % (BATCH / BLOCK) == 0) /* the next batch has come by then */
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        before = leased(pool);
        begin_ns = clock_ns(CLOCK_MONOTONIC);
        for (int k = 0; k < BLOCK; k++)
            permits += weir_take(pool, &request, NULL) == 0;
        times[n] = clock_ns(CLOCK_MONOTONIC) - begin_ns;
        n += leased(pool) - before == BLOCK;
    }
    ns = median(times, n);
    before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < blocks / (BATCH / BLOCK); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        for (int k = 0; k < BATCH; k++)
            permits += weir_take(pool, &request, NULL) == 0;
    }
    cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
    printf("permit from a lease, all that its thread does: %.1f ns\n",
           (double)cpu_ns / (double)(blocks / (BATCH / BLOCK) * BATCH));
    printf("blocks served from batches alone: %zu of %zu\n", n, blocks);
    require(permits > 0);
    free(times);
    return ns;
}

int main(int argc, char **argv)
{
    const struct weir_amount one = {"tokens", 1};
    const struct weir_request request = {.size = sizeof(request), .amounts = &one, .amounts_n = 1};
    weir *w = NULL;
    weir_pool *pool = NULL;
    size_t blocks;
    double bare, lease;

    require(argc == 4);
    blocks = strtoul(argv[3], NULL, 10) * (BATCH / BLOCK);
    server_set_open(&w, &pool, argv[1], argv[2], "session: 100ms", limits);
    while (weir_take(pool, &request, NULL) != 0) /* the server is young */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    for (int i = 0; i < 20000; i++) /* batches grow */
        (void)!weir_take(pool, &request, NULL);
    bare = bench_bare(blocks);
    lease = bench_leases(pool, blocks);
    printf("permit from a lease: %.1f ns; the clock and an exchange: %.1f ns; ratio %.2f\n", lease,
           bare, lease / bare);
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}

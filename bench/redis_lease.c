/* SPDX-License-Identifier: MIT */
/*
 * Permits of a lease, in batches of some 1000, beside what they cannot do without: a reading of
 * CLOCK_BOOTTIME, which ends a batch, and the exchange of a word.
 *
 * More is used in the 10 ms of a batch than a batch can have, which is what the burst leaves: 1000.
 * A block of permits for which the server was asked is not counted.
 */
#include "redis.h"

#include <stdatomic.h>
#include <time.h>

enum { BATCH = 1000, BLOCK = 100, WARM_UP = 10 };

#define PAUSE (200 * US) /* the next batch has come then */

static const struct redis_sets *lease_sets;
static struct bench_figure *lease_bare, *lease_permit;

static void bare_once(void)
{
    static _Atomic uint64_t word = UINT64_MAX;
    struct timespec now;
    uint64_t seen = atomic_load(&word);

    require(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    while (!atomic_compare_exchange_weak(&word, &seen, seen - 1))
        ;
}

static bool permit_once(void)
{
    static const struct weir_amount one = {"tokens", 1};
    const struct weir_request request = {.size = sizeof(request), .amounts = &one, .amounts_n = 1};

    return weir_take(lease_sets->leased, &request, NULL) == 0;
}

static struct weir_lease_stats lease_stats(void)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    require(weir_set_lease_stats(weir_pool_set(lease_sets->leased, 0), 0, &stats) == 0);
    return stats;
}

static void bare_block(void)
{
    uint64_t begin;

    for (unsigned i = 0; i < WARM_UP; i++)
        bare_once();
    begin = clock_now();
    for (unsigned i = 0; i < BLOCK; i++)
        bare_once();
    bench_add(lease_bare, (double)(clock_now() - begin) / BLOCK);
}

/* It counts if all of it was served from batches. */
static void permit_block(void)
{
    uint64_t before, begin;
    double ns;

    for (unsigned i = 0; i < WARM_UP; i++)
        permit_once();
    before = lease_stats().granted;
    begin = clock_now();
    for (unsigned i = 0; i < BLOCK; i++)
        permit_once();
    ns = (double)(clock_now() - begin) / BLOCK;
    if (lease_stats().granted - before == BLOCK)
        bench_add(lease_permit, ns);
}

void lease_open(struct bench *bench, const struct redis_sets *sets)
{
    uint64_t until = clock_now() + PATIENCE;

    lease_sets = sets;
    lease_bare = bench_figure(bench, NULL, "CLOCK_BOOTTIME + exchange");
    lease_permit = bench_figure(bench, lease_bare, "permit of a lease");
    while (!permit_once()) { /* the server is young */
        require(clock_now() < until);
        pause_ns(10 * MS);
    }
}

void lease_round(const struct bench *bench)
{
    unsigned blocks = bench_samples(bench, 200);

    for (unsigned i = 0; i < 20 * BATCH; i++) /* batches grow with use */
        permit_once();
    for (unsigned i = 0; i < blocks; i++) {
        if (i % (BATCH / BLOCK) == 0)
            pause_ns(PAUSE);
        permit_block();
    }
    for (unsigned i = 0; i < blocks; i++)
        bare_block();
}

void lease_close(struct bench *bench)
{
    struct weir_lease_stats stats = lease_stats();

    bench_value(bench, (double)stats.taken / (double)stats.batches, "units", "size of a batch");
}

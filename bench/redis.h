/* SPDX-License-Identifier: MIT */
/* The parts of the benchmark `redis`. */
#ifndef WEIR_BENCH_REDIS_H
#define WEIR_BENCH_REDIS_H

#include "bench.h"
#include "redis_clients.h"

#define PATIENCE (60 * SECOND)

/* The sets of the server: two limits; a resource alone; a rate that is leased. */
struct redis_sets {
    weir *w;
    weir_pool *two, *slots, *leased;
};

/* Returns what is granted of each limit of `two`, at once. */
weir_acquisition *redis_two_acquired(const struct redis_sets *sets);

/* Several clients: their throughput (redis_crowd.c). */
void crowds_open(struct bench *bench, const struct redis_sets *sets, struct client *clients);
void crowds_round(const struct bench *bench);
void crowds_close(void);

/* Permits of a lease (redis_lease.c). */
void lease_open(struct bench *bench, const struct redis_sets *sets);
void lease_round(const struct bench *bench);
void lease_close(struct bench *bench);

#endif

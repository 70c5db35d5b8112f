/* SPDX-License-Identifier: MIT */
/* What the parts of the benchmark of per-subject sets have in common. */
#ifndef WEIR_BENCH_KEYED_H
#define WEIR_BENCH_KEYED_H

#include "bench.h"

/* A burst that no subject uses up, of units that come back in so long that none is forgotten. */
#define KEPT_WINDOW (UINT64_C(1000000000) * 1000 * MS)

/* Returns the n-th subject: no two are equal, and none is 0. */
static inline uint64_t subject_of(uint64_t n)
{
    return (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline int set_take(weir_pool *pool, uint64_t subject)
{
    const struct weir_request request = {
        .size = sizeof(request), .subject = &subject, .subject_size = sizeof(subject)};

    return weir_take(pool, &request, NULL);
}

/* Opens a pool of a private set for n subjects, each with a call limit by GCRA. */
weir_pool *open_set(weir *w, const char *name, uint64_t n, uint64_t capacity, uint64_t window_ns);

/* Returns the counts of subjects of a pool's set, and requires that none was evicted or refused. */
struct weir_subjects_stats keys_of(weir_pool *pool);

/* Subjects that were never seen (keyed_new.c): makes the figures for n subjects, if wanted, and
 * measures one round of them. */
void new_open(struct bench *bench, uint64_t n);
void new_round(void);

#endif

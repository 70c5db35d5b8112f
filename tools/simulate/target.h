/* SPDX-License-Identifier: MIT */
/*
 * What a capacity has to reach: p99<200ms (also p50, p90, p999, max), refused<0.1%, or several of
 * these with commas. A request that is refused, or times out, counts as one that waits for ever:
 * else the smallest capacity would be one that refuses everything. Counts are exact.
 */
#ifndef WEIR_TOOLS_SIMULATE_TARGET_H
#define WEIR_TOOLS_SIMULATE_TARGET_H

#include "limit_option.h"
#include <stdbool.h>
#include <stdint.h>

#define TARGETS_MAX 8

struct target {
    bool is_refused; /* of requests refused; otherwise of waits */
    uint32_t share;  /* that is below the bound, or may be refused; millionths */
    uint64_t bound_ns;
    uint64_t over_n; /* requests beyond it, so far */
};

struct targets {
    struct target items[TARGETS_MAX];
    unsigned n;
};

/* Takes all targets of an argument. Returns false and what is wrong. */
bool targets_parse(struct targets *ret, char *text, struct option_complaint *ret_wrong);

void targets_clear(struct targets *targets);

/* Counts a request that has waited so long; UINT64_MAX: it was not granted. */
static inline void targets_count(struct targets *targets, uint64_t wait_ns)
{
    for (unsigned i = 0; i < targets->n; i++)
        if (wait_ns >= targets->items[i].bound_ns)
            targets->items[i].over_n++;
}

/* Returns whether all are met, of `n` requests in all. If not, more requests do not help. */
bool targets_are_met(const struct targets *targets, uint64_t n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Finds the smallest capacity of a limit with which the traffic meets the targets, by bisection. It
 * assumes that more capacity is never worse. What is found meets the targets, and one less does
 * not; where that assumption fails, a smaller one may meet them as well.
 */
#ifndef WEIR_TOOLS_SIMULATE_SUGGEST_H
#define WEIR_TOOLS_SIMULATE_SUGGEST_H

#include "simulation.h"

#define SUGGEST_CAPACITY_MAX (UINT64_C(1) << 40)

struct suggestion {
    const char *set, *key; /* as long as the candidate is open */
    uint64_t before;       /* the capacity as it is written */
    uint64_t capacity;     /* 0: none meets the targets */
    uint64_t most;         /* the largest capacity that the limit can have, or is tried */
    unsigned runs_n;
};

/*
 * Finds the capacity of the limit `name` of the first candidate. The traffic can be read again. At
 * the end the last run is the one with that capacity, or with the largest one that was tried, and
 * its tally stands. Returns 0, or a negative errno after a message.
 */
int suggest(struct simulation *simulation, const struct engine_options *options, const char *name,
            struct suggestion *ret);

#endif

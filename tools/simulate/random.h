/* SPDX-License-Identifier: MIT */
/*
 * Random numbers of generated load: by a seed, with integers alone, so that a seed means the same
 * events on every machine.
 */
#ifndef WEIR_TOOLS_SIMULATE_RANDOM_H
#define WEIR_TOOLS_SIMULATE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* Starts a sequence of its own for each `stream` of a seed. */
struct random random_start(uint64_t seed, uint64_t stream);

uint64_t random_next(struct random *random);

/* Returns a number from `low` to `high`, all equally likely. */
uint64_t random_between(struct random *random, uint64_t low, uint64_t high);

/* Returns an exponentially distributed number with the mean 1, in units of 2^-32. */
uint64_t random_exponential(struct random *random);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Repeatable randomness. The seed is --seed N, or WEIR_SEED, or the time; it is printed by whoever
 * uses it, so that a failure can be played again. WEIR_OPERATIONS sets how much is done.
 */
#ifndef WEIR_TESTS_RANDOM_H
#define WEIR_TESTS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct random {
    uint64_t state;
};

/* splitmix64 (S. Vigna). */
static inline uint64_t random_bits(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* From 0 to n - 1. */
static inline uint64_t random_below(struct random *random, uint64_t n)
{
    return random_bits(random) % n;
}

/* From low to high, both included. */
static inline uint64_t random_from(struct random *random, uint64_t low, uint64_t high)
{
    uint64_t n = high - low + 1;
    return low + (n == 0 ? random_bits(random) : random_below(random, n));
}

/* Of any magnitude up to `most`, small ones as likely as large ones; at least 1. */
static inline uint64_t random_magnitude(struct random *random, uint64_t most)
{
    uint64_t value = random_bits(random) >> random_below(random, 64);
    return value % most + 1;
}

static inline bool random_chance(struct random *random, unsigned percent)
{
    return random_below(random, 100) < percent;
}

static inline uint64_t random_seed(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seed") == 0)
            return strtoull(argv[i + 1], NULL, 0);
    const char *given = getenv("WEIR_SEED");
    return given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
}

static inline uint64_t random_operations(uint64_t usual)
{
    const char *given = getenv("WEIR_OPERATIONS");
    return given != NULL ? strtoull(given, NULL, 0) : usual;
}

#endif

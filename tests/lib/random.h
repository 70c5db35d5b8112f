/* SPDX-License-Identifier: MIT */
/*
 * Repeatable randomness for all tests. A test prints its seed, so that a failure can be played
 * again: the seed is --seed N, or WEIR_SEED, or the time. WEIR_OPERATIONS sets how much is done.
 *
 * Every case, thread or process of a test has a number, and its random numbers begin at
 * random_case(seed, number). Runs with neighboring seeds share no case then.
 */
#ifndef WEIR_TESTS_RANDOM_H
#define WEIR_TESTS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* SplitMix64 (S. Vigna). */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The state that the random numbers of this case begin with. Both the seed and the number are mixed
 * into all bits, since `seed + number` gives case 1 of a seed to the next seed as its case 0. */
static inline uint64_t random_case(uint64_t seed, uint64_t number)
{
    uint64_t state = seed;

    state = random_next(&state) + number;
    return random_next(&state);
}

/* From 0 to n - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
    return random_next(state) % n;
}

/* From low to high, both included. */
static inline uint64_t random_from(uint64_t *state, uint64_t low, uint64_t high)
{
    uint64_t n = high - low + 1;

    return low + (n == 0 ? random_next(state) : random_below(state, n));
}

/* Of any magnitude up to `most`, small ones as likely as large ones; at least 1. */
static inline uint64_t random_magnitude(uint64_t *state, uint64_t most)
{
    uint64_t value = random_next(state) >> random_below(state, 64);

    return value % most + 1;
}

static inline bool random_chance(uint64_t *state, unsigned percent)
{
    return random_below(state, 100) < percent;
}

/* WEIR_SEED, or else the time of day, which no two runs share and no time namespace moves. */
static inline uint64_t random_seed(void)
{
    const char *given = getenv("WEIR_SEED");
    struct timespec now;

    if (given && *given)
        return strtoull(given, NULL, 0);
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the N of the arguments --seed N, else random_seed(). */
static inline uint64_t random_seed_of(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seed") == 0)
            return strtoull(argv[i + 1], NULL, 0);
    return random_seed();
}

/* WEIR_PERCENT, or else 100: how much tests try of what they try by themselves. */
static inline uint64_t effort_percent(void)
{
    const char *given = getenv("WEIR_PERCENT");
    uint64_t percent = given && *given ? strtoull(given, NULL, 10) : 100;

    return percent ? percent : 1;
}

/* The number that the variable says, or else WEIR_PERCENT of `usual`; at least 1, unless `usual` is
 * 0. */
static inline uint64_t effort_from(const char *variable, uint64_t usual)
{
    const char *given = getenv(variable);
    uint64_t effort = usual / 100 * effort_percent() + usual % 100 * effort_percent() / 100;

    if (given && *given)
        return strtoull(given, NULL, 0);
    return usual && !effort ? 1 : effort;
}

/* The distance between cases that are tried, where `usual` is that of WEIR_PERCENT=100. */
static inline uint64_t effort_stride(uint64_t usual)
{
    uint64_t stride = usual * 100 / effort_percent();

    return stride ? stride : 1;
}

/* WEIR_OPERATIONS, or else WEIR_PERCENT of `usual`. */
static inline uint64_t random_operations(uint64_t usual)
{
    return effort_from("WEIR_OPERATIONS", usual);
}

#endif

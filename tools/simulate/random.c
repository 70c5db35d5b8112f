/* SPDX-License-Identifier: MIT */
/* Random numbers of generated load. */
#include "random.h"

__extension__ typedef unsigned __int128 random_u128;

struct random random_start(uint64_t seed, uint64_t stream)
{
    struct random start = {seed}, random = {random_next(&start) ^ stream};

    random.state = random_next(&random);
    return random;
}

/* SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
 */
uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_between(struct random *random, uint64_t low, uint64_t high)
{
    random_u128 span = (random_u128)(high - low) + 1;

    return low + (uint64_t)(span * random_next(random) >> 64);
}

/*
 * J. von Neumann, "Various techniques used in connection with random digits", 1951: compares
 * uniform numbers and needs no logarithm. A run of falling numbers that begins with x has an odd
 * length with the probability exp(-x).
 */
uint64_t random_exponential(struct random *random)
{
    for (uint64_t whole = 0;; whole++) {
        uint64_t first = random_next(random), last = first, next;
        unsigned length = 1;

        while ((next = random_next(random)) < last) {
            last = next;
            length++;
        }
        if (length % 2 == 1)
            return whole << 32 | first >> 32;
    }
}

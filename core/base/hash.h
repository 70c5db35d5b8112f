/* SPDX-License-Identifier: MIT */
/* Hashes and random numbers that need not withstand an attacker; siphash.h has those that do. */
#ifndef WEIR_CORE_BASE_HASH_H
#define WEIR_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define FNV1A_INIT UINT64_C(14695981039346656037)

/* Continues an FNV-1a hash (Fowler, Noll, Vo) over these bytes. */
static inline uint64_t fnv1a_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Returns the next number of a SplitMix64 generator (Steele, Lea, Flood: Fast Splittable
 * Pseudorandom Number Generators, 2014). One thread at a time uses a state. */
static inline uint64_t splitmix64_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif

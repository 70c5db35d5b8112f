/* SPDX-License-Identifier: MIT */
/*
 * Signed 256-bit integers, just enough for the reference: it multiplies by unreduced capacities and
 * windows, never divides, and has room to spare.
 */
#ifndef WEIR_TESTS_WIDE_H
#define WEIR_TESTS_WIDE_H

#include <stdint.h>

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

/* Two's complement, least significant word first. */
struct wide {
    uint64_t word[4];
};

static inline struct wide wide_of(u128 value)
{
    return (struct wide){{(uint64_t)value, (uint64_t)(value >> 64), 0, 0}};
}

static inline struct wide wide_add(struct wide a, struct wide b)
{
    u128 carry = 0;
    for (int i = 0; i < 4; i++) {
        carry += (u128)a.word[i] + b.word[i];
        a.word[i] = (uint64_t)carry;
        carry >>= 64;
    }
    return a;
}

static inline struct wide wide_negative(struct wide a)
{
    for (int i = 0; i < 4; i++)
        a.word[i] = ~a.word[i];
    return wide_add(a, wide_of(1));
}

static inline struct wide wide_subtract(struct wide a, struct wide b)
{
    return wide_add(a, wide_negative(b));
}

/* a · b, for a ≥ 0. */
static inline struct wide wide_multiply(struct wide a, uint64_t b)
{
    u128 carry = 0;
    for (int i = 0; i < 4; i++) {
        carry += (u128)a.word[i] * b;
        a.word[i] = (uint64_t)carry;
        carry >>= 64;
    }
    return a;
}

static inline struct wide wide_product(u128 a, uint64_t b)
{
    return wide_multiply(wide_of(a), b);
}

/* Below, equal, above: -1, 0, 1. */
static inline int wide_compare(struct wide a, struct wide b)
{
    struct wide difference = wide_subtract(a, b);
    if (difference.word[3] >> 63 != 0)
        return -1;
    return (difference.word[0] | difference.word[1] | difference.word[2] | difference.word[3]) != 0;
}

static inline struct wide wide_least(struct wide a, struct wide b)
{
    return wide_compare(a, b) <= 0 ? a : b;
}

static inline struct wide wide_most(struct wide a, struct wide b)
{
    return wide_compare(a, b) >= 0 ? a : b;
}

#endif

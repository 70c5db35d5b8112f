/* SPDX-License-Identifier: MIT */
/*
 * Exact arithmetic for rates. A rate of C units per W ns, with g = gcd(C, W), is `units` = C/g per
 * `span` = W/g ns. Amounts and time have a common unit, the tick:
 *
 *     one unit is `span` ticks; one ns brings `units` ticks; one tick is 1/units ns.
 *
 * So levels, debts and instants are whole numbers of ticks, and nothing is rounded. Bounds: amounts
 * are at most AMOUNT_MAX < 2^63, windows at most WINDOW_MAX = 2^62 ns (146 years), instants below
 * 2^64. Hence, in ticks, a full bucket is below 2^125, an instant below 2^127, and any 64-bit
 * amount below 2^126. The largest sum is an instant, plus a bucket in debt by its depth, plus one
 * more amount: below 2^127 + 2^126 + 2^126 = 2^128.
 */
#ifndef WEIR_PLUGINS_EXACT_H
#define WEIR_PLUGINS_EXACT_H

#include <weir/algorithm.h>

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

#define AMOUNT_MAX ((UINT64_C(1) << 63) - 1)
#define WINDOW_MAX (UINT64_C(1) << 62)

struct rate {
    uint64_t units, span;
};

static inline struct rate rate_reduce(uint64_t capacity, uint64_t window_ns)
{
    uint64_t a = capacity, b = window_ns;
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (struct rate){capacity / a, window_ns / a};
}

/* A u128 is stored as two words, because the state is aligned to 8 bytes only. */
static inline u128 u128_load(const uint64_t words[2])
{
    return (u128)words[1] << 64 | words[0];
}

static inline void u128_store(uint64_t words[2], u128 value)
{
    words[0] = (uint64_t)value;
    words[1] = (uint64_t)(value >> 64);
}

static inline u128 ceil_div(u128 a, u128 b)
{
    if ((a | b) >> 64 == 0) { /* one machine division */
        uint64_t dividend = (uint64_t)a, divisor = (uint64_t)b;
        return dividend / divisor + (dividend % divisor != 0);
    }
    return a / b + (a % b != 0);
}

/* Returns a - b, or 0 if that is negative. */
static inline u128 sub_or_zero(u128 a, u128 b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/*
 * Returns the ticks of `back`, granted at `granted_ns`, that a strict refund gives back at `now`:
 * less than all by what has come since, `units` each ns.
 *
 * Why a bucket then keeps its bound: let V(t) be what it would lack if only those units had been
 * granted that are not refunded yet. That is the largest of granted(s, t) - units * (t - s) over
 * all s <= t. Without k ticks of an instant g, the terms of s <= g are less by k. A term of s > g
 * is at most granted(s, t), and by the term of g that is at most V(t) - k + units * (t - g). So V
 * falls by at least what is given back, and what the bucket lacks remains at least V. In the end V
 * counts what was used, and shows that in any [a, b] it is at most full + units * (b - a).
 */
static inline u128 strict_back(u128 back, uint64_t units, uint64_t granted_ns, uint64_t now)
{
    return now > granted_ns ? sub_or_zero(back, (u128)units * (now - granted_ns)) : back;
}

/* Returns the instant `wait` ≥ 1 ns after `now`, at most WEIR_INSTANT_MAX; WEIR_NEVER if `now` is
 * that already. */
static inline uint64_t instant_after(uint64_t now, u128 wait)
{
    if (now >= WEIR_INSTANT_MAX)
        return WEIR_NEVER;
    return wait > WEIR_INSTANT_MAX - now ? WEIR_INSTANT_MAX : now + (uint64_t)wait;
}

/*
 * Converts ticks of one rate to ticks of another, for a changed configuration: x units stay x
 * units. This is the only place with a remainder, less than one tick. rescale_down() drops it;
 * rescale_up() rounds up, for what counts against the limit. With ticks below 2^126, the quotient
 * is below 2^126 / from. Both products stay below 2^128, because ticks / from is an amount (below
 * 2^64).
 */
static inline u128 rescale_down(u128 ticks, uint64_t from, uint64_t to)
{
    return ticks / from * to + ticks % from * to / from;
}

static inline u128 rescale_up(u128 ticks, uint64_t from, uint64_t to)
{
    return ticks / from * to + ceil_div(ticks % from * to, from);
}

/* Depth of a bucket: `full` ticks, of `unit` ticks per unit of amount. */
struct bucket_depth {
    u128 full;
    uint64_t unit;
    uint64_t units; /* units of amount in a full bucket: the burst */
};

static inline struct bucket_depth bucket_depth_of(uint64_t burst, uint64_t unit)
{
    return (struct bucket_depth){(u128)burst * unit, unit, burst};
}

/* Returns what a bucket of a new configuration lacks to be full. It keeps the old bucket's level or
 * debt, cut to the new depth. */
static inline u128 carry_missing(const struct bucket_depth *old, u128 missing,
                                 const struct bucket_depth *new)
{
    if (missing <= old->full)
        return sub_or_zero(new->full, rescale_down(old->full - missing, old->unit, new->unit));
    u128 debt = rescale_up(missing - old->full, old->unit, new->unit);
    return new->full + (debt < new->full ? debt : new->full);
}

#endif

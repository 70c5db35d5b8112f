/* SPDX-License-Identifier: MIT */
/*
 * Leases: `lease: N` of a rate or call lets weir_take take N units from the set at once and keep
 * what is not needed yet, so that most calls touch nothing that threads share and read no clock.
 * What is leased lies with the thread's actor, in its counters; only that thread changes it.
 *
 * Taken ahead of use, never the other way round. Let L(t) be what is leased at t, in all. A unit
 * that the set parts with is granted or leased, and one that goes back to it was leased before, so
 * between a and b
 *
 *     granted = taken from the set - given back to it + L(a) - L(b).
 *
 * The set decides exactly, hence taken - given back <= B + r(b - a) for burst B and rate r: giving
 * back can never make it fuller than full. Whoever takes from the set uses up what was left and one
 * unit of the new lease at least, so each thread has at most N - 1:
 *
 *     granted <= B + r(b - a) + L(a) <= B + r(b - a) + (N - 1) * threads that had a lease at a.
 *
 * Therefore no lease need expire, which would take a clock: a thousand idle hours make L no larger.
 *
 * If N units are not to be had, what is needed is asked for alone, as without a lease; so nothing
 * is refused that would be granted otherwise. While anybody is in line, or has reserved, leases are
 * not filled. What is left of them may still be used up: it was taken before he came, the instant
 * that he was foreseen to be granted at has it counted as gone, and using it does not move that.
 *
 * What is left goes back when the thread ends or closes the instance, or after somebody else closed
 * it, when the thread next uses another. What a process had leased that dies counts as used.
 */
#ifndef WEIR_CORE_SET_LEASE_H
#define WEIR_CORE_SET_LEASE_H

#include "set/set.h"

/* As lease_take() when the lease is too small, or not sound. */
int lease_refill(struct thread_ctx *ctx, weir_set *set, uint64_t amount, struct decision *ret);

/* Of a set that processes share: whether it is as the thread left it, and the set worth anything. */
bool lease_is_valid(const weir_set *set, uint64_t left);

/* Takes `amount`, not 0, from the lease, or else from the set. As set_acquire() of MODE_TRY; `ret` is
 * for refusals. */
static inline int lease_take(struct thread_ctx *ctx, weir_set *set, uint64_t amount,
                             struct decision *ret)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);
    struct limit_counters *limit = &counters->limits[0];
    uint64_t left = atomic_load_explicit(&limit->leased, memory_order_relaxed);

    if (amount > left || (set->participant && !lease_is_valid(set, left)))
        return lease_refill(ctx, set, amount, ret);
    atomic_store_explicit(&limit->leased, left - amount, memory_order_relaxed);
    counter_add(&limit->granted, amount);
    counter_add(&counters->granted, 1);
    counter_add(&counters->taken, 1);
    return 0;
}

/* An actor's part in a set that processes share begins: who was there before may have died. */
void lease_reset(const weir_set *set, struct counters *counters);

/* The actor's thread is about to leave it: gives back what is leased in all sets. */
void lease_return_all(struct thread_ctx *ctx);

#endif

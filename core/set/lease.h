/* SPDX-License-Identifier: MIT */
/*
 * Leases: with `lease: N` of a rate or call, weir_take() takes N units at once and keeps the rest
 * for later calls, which then touch nothing shared and read no clock. README.md has the bound and
 * the reasons. The lease is in the counters of the thread context; only that thread changes it, and
 * other threads read it for statistics. So relaxed accesses suffice.
 */
#ifndef WEIR_CORE_SET_LEASE_H
#define WEIR_CORE_SET_LEASE_H

#include "limit/counters.h"
#include "set/set.h"
#include "shm/participant.h"

/* Returns true if a shared set is not broken and the lease can be what its thread stored. */
static inline bool lease_is_valid(const weir_set *set, uint64_t left)
{
    return !participant_is_broken(set->participant) && left < set->limits.items->lease;
}

/* Takes `amount`, not 0, from the lease. False: it is too small or invalid. */
WEIR_ALWAYS_INLINE bool lease_take_rest(struct counters *counters, const weir_set *set,
                                        uint64_t amount)
{
    struct limit_counters *limit = &counters->limits[0];
    uint64_t left = atomic_load_explicit(&limit->leased, memory_order_relaxed);

    if (amount > left || (set_is_shared(set) && !lease_is_valid(set, left)))
        return false;
    atomic_store_explicit(&limit->leased, left - amount, memory_order_relaxed);
    counter_add(&limit->granted, amount);
    counter_add(&counters->taken, 1);
    return true;
}

/* Takes `amount`, not 0, from the lease, or else from the set. Returns what set_acquire() returns
 * for MODE_TRY; `ret` is filled for refusals only. */
int lease_take(struct thread_ctx *ctx, weir_set *set, uint64_t amount, struct decision *ret);

/* Returns the lease of a thread context, which is prepared for the set, if it has one of that. */
void lease_return_rest(struct thread_ctx *ctx, weir_set *set);

/* Returns all leases of a thread context to their sets. Called by its thread, before it ends. */
void lease_return_all(struct thread_ctx *ctx);

#endif

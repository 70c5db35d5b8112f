/* SPDX-License-Identifier: MIT */
/* Fills leases from the set and returns what is left of them. */
#include "set/lease.h"
#include "limit/counters.h"

#include "base/invariant.h"
#include "set/instance_base.h"
#include "set/set_ops.h"

static _Atomic uint64_t *lease_counter(struct counters *counters)
{
    return &counters->limits[0].leased;
}

/* Stores the rest of a lease that was taken at `at_ns`. */
static void lease_store(struct thread_ctx *ctx, const weir_set *set, uint64_t amount,
                        uint64_t at_ns)
{
    struct thread_set_ctx *set_ctx = &ctx->set_ctxs[set->number];

    WEIR_INVARIANT(amount < set->limits.items->lease);
    atomic_store_explicit(lease_counter(set_ctx->counters), amount, memory_order_relaxed);
    set_ctx->has_lease = true;
    set_ctx->lease_ns = at_ns;
}

/* Clears the lease, then returns the units: a death in between loses them and grants none twice. It
 * is of the first limit, which a shared set may have had beside others before. */
static void lease_return(struct thread_ctx *ctx, weir_set *set)
{
    const struct thread_set_ctx *set_ctx = &ctx->set_ctxs[set->number];
    uint64_t left = atomic_load_explicit(lease_counter(set_ctx->counters), memory_order_relaxed);
    const uint64_t amounts[WEIR_LIMITS_MAX] = {left}, unused[WEIR_LIMITS_MAX] = {0};
    const struct release_args args = {
        .amounts = amounts, .used = unused, .return_all = true, .granted_ns = set_ctx->lease_ns};

    WEIR_INVARIANT(set_is_shared(set) ||
                   (set->limits.has_lease && left < set->limits.items->lease));
    if (!left || (set_is_shared(set) && !lease_is_valid(set, left)))
        return;
    atomic_store_explicit(lease_counter(set_ctx->counters), 0, memory_order_relaxed);
    set->ops->return_units(ctx, set, &args);
}

int lease_take(struct thread_ctx *ctx, weir_set *set, uint64_t amount, struct decision *ret)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);
    uint64_t left = atomic_load_explicit(lease_counter(counters), memory_order_relaxed);
    uint64_t lease = set->limits.items->lease, needed;
    int r;

    WEIR_INVARIANT(set->limits.has_lease && thread_ctx_is_ready(ctx, set));
    WEIR_INVARIANT(set_is_shared(set) || left < lease);
    if (lease_take_rest(counters, set, amount))
        return 0;
    if (set_is_shared(set) && left >= lease) { /* no operation writes that */
        participant_mark_broken(set->participant);
        left = 0;
    } else if (left >= amount) {
        left = 0; /* the set is broken; it finds out itself */
    }
    needed = amount - left;
    r = set->ops->lease(ctx, set, needed, needed < lease ? lease : 0, ret);
    if (r == -ESTALE)
        lease_return(ctx, set); /* by the new definition it may not be enough, or be another one */
    if (r < 0)
        return r;
    counter_add(&counters->limits[0].granted, amount - needed);
    lease_store(ctx, set, ret->lease_rest, ret->now_ns);
    return 0;
}

void lease_return_rest(struct thread_ctx *ctx, weir_set *set)
{
    struct thread_set_ctx *set_ctx = &ctx->set_ctxs[set->number];

    if (set_ctx->has_lease)
        lease_return(ctx, set);
    set_ctx->has_lease = false;
}

void lease_return_all(struct thread_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->set_ctxs_n; i++)
        if (ctx->set_ctxs[i].has_lease)
            lease_return_rest(ctx, instance_set(ctx->w, i));
}

/* SPDX-License-Identifier: MIT */
/* The fast path as the first step of set_acquire() and set_release(), for every set. */
#include "set/try_now.h"
#include "set/events.h"
#include "set/inline_state.h"

#include "base/backoff.h"
#include "limit/counters.h"

/* Stores the active set, where the recovery of a dead thread starts, and claims an announcement
 * slot. */
static void try_now_prepare_dcas(struct thread_ctx *ctx, const weir_set *set)
{
    version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    dcas_slot(ctx, set);
}

bool try_now_is_taken(const weir_set *set, uint64_t state_word, const uint64_t *states,
                      const uint64_t *amounts)
{
    const struct set_head *head = set_head_at(set->region, set->head_unit);
    const struct version_block *block =
        block_at(true, set->region, block_class_of(true, set->region, head), state_word);
    uint64_t before[STACK_VERSION_WORDS];

    for (uint32_t i = 0; i < STACK_VERSION_WORDS; i++)
        before[i] = shm_load_relaxed(&block->content[i]);
    return limits_are_taken(&set->limits, before + CONTENT_STATES, states, amounts);
}

void try_now_give_turn(const struct thread_ctx *ctx, const weir_set *set)
{
    contention_give_turn(set->region, set->head_unit, thread_ctx_for_set(ctx, set->number)->unit);
}

void try_now_backoff(enum state_repr repr, const struct thread_ctx *ctx, const weir_set *set,
                     unsigned *losses)
{
    if (repr_is_inline(repr)) {
        spin_backoff(losses);
        return;
    }
    contention_backoff(set->region, set->head_unit, thread_ctx_for_set(ctx, set->number)->unit,
                       losses);
}

/* Defines the instances of the templates for one representation of the state: out of line, so that
 * each has registers of its own. */
#define TRY_NOW_INSTANCE(name, repr, shared)                                                       \
    WEIR_NOINLINE enum try_result try_now_##name(const struct thread_ctx *ctx,                     \
                                                 const weir_set *set, struct try_grant *grant)     \
    {                                                                                              \
        return try_now(repr, shared, false, ctx, set, grant);                                      \
    }                                                                                              \
    WEIR_NOINLINE enum try_result give_back_##name(const struct thread_ctx *ctx,                   \
                                                   const weir_set *set, struct release_op *rel)    \
    {                                                                                              \
        return give_back_now(repr, shared, false, ctx, set,                                        \
                             try_now_record(shared, set, rel->record), rel);                       \
    }

TRY_NOW_INSTANCE(word_private, REPR_WORD, false)
TRY_NOW_INSTANCE(word_shared, REPR_WORD, true)
TRY_NOW_INSTANCE(count_private, REPR_COUNT, false)
TRY_NOW_INSTANCE(count_shared, REPR_COUNT, true)
TRY_NOW_INSTANCE(block_private, REPR_BLOCK, false)
TRY_NOW_INSTANCE(block_shared, REPR_BLOCK, true)
TRY_NOW_INSTANCE(key_set_private, REPR_KEY_SET, false)

WEIR_ALWAYS_INLINE enum try_result try_now_dispatch_inline(struct thread_ctx *ctx, weir_set *set,
                                                           struct try_grant *grant)
{
    if (set->inline_format == INLINE_DCAS) {
        try_now_prepare_dcas(ctx, set);
        return try_now_count_shared(ctx, set, grant);
    }
    if (set->inline_format == INLINE_COUNT)
        return try_now_count_private(ctx, set, grant);
    return set->is_robust ? try_now_word_shared(ctx, set, grant)
                          : try_now_word_private(ctx, set, grant);
}

WEIR_ALWAYS_INLINE enum try_result try_now_dispatch(struct thread_ctx *ctx, weir_set *set,
                                                    struct try_grant *grant)
{
    WEIR_INVARIANT(thread_ctx_is_ready(ctx, set));
    if (set->inline_format != INLINE_NONE)
        return try_now_dispatch_inline(ctx, set, grant);
    grant->word = INFLATED_BIT;
    if (!try_now_fits_stack(set))
        return TRY_SLOW;
    if (set_is_key_set(set))
        return set->is_robust ? TRY_SLOW : try_now_key_set_private(ctx, set, grant);
    return set->is_robust ? try_now_block_shared(ctx, set, grant)
                          : try_now_block_private(ctx, set, grant);
}

int try_now_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum wait_mode mode, struct decision *ret)
{
    /* Another thread may complete and release the grant of a request that can wait, and complete
     * and revoke any one. */
    struct try_grant grant = {
        .amounts = amounts,
        .record = record,
        .is_owner = (mode == MODE_PROBE || mode == MODE_TRY) && !set->limits.revokes,
        .is_dated = record && (set->limits.counts_holds || set->limits.has_max_hold ||
                               events_are_on(set->w))};
    enum try_result result = try_now_dispatch(ctx, set, &grant);
    int r = ACQUIRE_RETRY;

    if (result == TRY_DONE) {
        ret->now_ns = ret->forecast_ns = grant.now_ns;
        counters_add_grant(thread_ctx_counters(ctx, set->number), amounts, set->limits.n, !record);
        return ACQUIRE_GRANTED;
    }
    if (grant.word & INFLATED_BIT)
        return ACQUIRE_RETRY;
    if (result == TRY_REFUSED)
        r = try_now_refuse(true, ctx, set, &grant, mode, thread_ctx_counters(ctx, set->number),
                           ret);
    if (r != ACQUIRE_RETRY || grant.word & INFLATED_BIT)
        return r;
    /* The request waits, the state does not fit the word, or the clock is behind. */
    return set_inflate(ctx, set, grant.word) < 0 ? -ENOMEM : ACQUIRE_RETRY;
}

int try_now_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                  struct decision *ret)
{
    struct try_grant grant = {.amounts = &lease};

    WEIR_INVARIANT(lease == 0 || lease > amount);
    ret->lease_rest = 0;
    if (!lease || try_now_dispatch(ctx, set, &grant) != TRY_DONE)
        return try_now_acquire(ctx, set, &amount, 0, MODE_TRY, ret);
    ret->now_ns = ret->forecast_ns = grant.now_ns;
    ret->lease_rest = lease - amount;
    set_count_grant(ctx, set, &amount, 0);
    return ACQUIRE_GRANTED;
}

/* Releases in the state word of a shared set. Inflates the set if that does not serve. */
static enum try_result try_now_release_shared(struct thread_ctx *ctx, weir_set *set,
                                              struct release_op *rel)
{
    enum try_result r;

    if (set->inline_format == INLINE_DCAS) {
        try_now_prepare_dcas(ctx, set);
        r = give_back_count_shared(ctx, set, rel);
    } else {
        r = give_back_word_shared(ctx, set, rel);
    }
    if (r == TRY_SLOW && !(rel->word & INFLATED_BIT) && !set_is_broken(set))
        set_inflate(ctx, set, rel->word);
    return r;
}

enum try_result try_now_release(struct thread_ctx *ctx, weir_set *set, struct release_op *rel)
{
    WEIR_INVARIANT(thread_ctx_is_ready(ctx, set) && (rel->record_freed || rel->record));
    if (set->inline_format != INLINE_NONE) {
        if (set->is_robust)
            return try_now_release_shared(ctx, set, rel);
        return set->inline_format == INLINE_COUNT ? give_back_count_private(ctx, set, rel)
                                                  : give_back_word_private(ctx, set, rel);
    }
    if (!try_now_fits_stack(set))
        return TRY_SLOW;
    if (set_is_key_set(set))
        return set->is_robust ? TRY_SLOW : give_back_key_set_private(ctx, set, rel);
    return set->is_robust ? give_back_block_shared(ctx, set, rel)
                          : give_back_block_private(ctx, set, rel);
}

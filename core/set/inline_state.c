/* SPDX-License-Identifier: MIT */
/* Formats of inline state; inflation and deflation. */
#include "set/inline_state.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/txn_internal.h"

enum inline_format inline_format_for(const struct limits *limits, bool use_dcas)
{
    const struct limit *limit = limits->items;

    if (limits->n != 1 || limits->state_words != 1 || !limit_fits_word(limit))
        return INLINE_NONE;
    if (limits->has_shadow || limits->revokes)
        return INLINE_NONE;
    if (!use_dcas)
        return limit->algorithm ? INLINE_STATE : INLINE_COUNT;
    if (limit->type != WEIR_LIMIT_RESOURCE)
        return INLINE_STATE;
    return !limit->algorithm && limit->capacity <= DCAS_USED_MAX ? INLINE_DCAS : INLINE_NONE;
}

/* Inflates a set with the inline state `word`. The set stays inflated until the caller has
 * published something, or another thread commits first. */
static void inline_state_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word)
{
    uint32_t unit = thread_ctx_for_set(ctx, set->number)->unit;
    struct txn txn;

    txn_init(&txn, ctx, set);
    version_set_active(set->region, unit, set->head_unit);
    version_from_inline(&txn.version, word);
    version_set_flags(&txn.version, CONTENT_JOIN_PENDING);
    txn.version.content[CONTENT_LAST_NS] =
        atomic_load_explicit(set->deflated_ns, memory_order_acquire);
    version_commit(set->region, unit, set->head_unit, &txn.version);
}

bool inline_word_is_valid(const weir_set *set, uint64_t word)
{
    bool is_valid = set->inline_format != INLINE_DCAS || !set_is_shared(set) || word & DCAS_MARK;

    if (!is_valid)
        participant_mark_broken(set->participant); /* no correct process writes that */
    return is_valid;
}

int set_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word)
{
    int r = 0;

    WEIR_INVARIANT(set->inline_format != INLINE_NONE && !(word & INFLATED_BIT));
    if (!inline_word_is_valid(set, word))
        return 0;
    /* A private set has no reserve block until it is first inflated. */
    if (!set_is_shared(set) && !version_reserve_block(set->region, set->head_unit)) {
        pthread_mutex_lock(&set->w->lock);
        r = version_add_reserve_block(set->region, set->head_unit);
        pthread_mutex_unlock(&set->w->lock);
    }
    if (r == 0)
        inline_state_inflate(ctx, set, word);
    return r;
}

/* Returns the inline form of the state; INFLATED_BIT if it does not fit. */
static uint64_t inline_encode(const struct txn *txn)
{
    uint64_t state = *txn_states(txn);

    if (txn->set->inline_format != INLINE_DCAS)
        return state;
    return state > DCAS_USED_MAX
               ? INFLATED_BIT
               : state << DCAS_USED_SHIFT | (txn->version.content[DCAS_BITS_AT] & DCAS_BITS);
}

bool set_become_inline(const struct txn *txn)
{
    const struct version *version = &txn->version;

    if (!version_is_inflated(version))
        return true;
    if (txn->set->inline_format == INLINE_NONE || waitq_length(version) || set_is_faulty(txn->set))
        return false;
    WEIR_INVARIANT(!waitq_head(version));
    if ((version_flags(version) & (CONTENT_CLOSED | CONTENT_JOIN_PENDING)) ||
        version->content[CONTENT_LAST_NS] > txn->now_ns || (inline_encode(txn) & INFLATED_BIT))
        return false;
    if (txn->set->inline_format == INLINE_DCAS && !dcas_slot(txn->ctx, txn->set))
        return false; /* a thread without a slot leaves the set inflated */
    shm_raise_seq_cst(txn->set->deflated_ns, txn->now_ns); /* another thread may be ahead */
    return version_deflate(txn->set->region, txn->set->head_unit, version, inline_encode(txn));
}

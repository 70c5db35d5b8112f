/* SPDX-License-Identifier: MIT */
/* Sets whose state is in their word: see inline_state.h. */
#include "set/inline_state.h"

#include "base/sched_point.h"
#include "set/detectable_cas.h"
#include "set/hooks.h"
#include "set/inline_state_step.h"
#include "set/instance_base.h"
#include "shm/participant.h"
#include <errno.h>

enum inline_format inline_format_for(const struct limits *limits, bool use_dcas)
{
    const struct limit *limit = limits->items;

    if (limits->n != 1 || limits->state_words != 1)
        return INLINE_NONE;
    if (limit->algorithm && !(limit->algorithm->flags & WEIR_ALGORITHM_WORD))
        return INLINE_NONE;
    if (limit->type != WEIR_LIMIT_RESOURCE || !use_dcas)
        return INLINE_STATE;
    return !limit->algorithm && limit->capacity <= DCAS_USED_MAX ? INLINE_DCAS : INLINE_NONE;
}

static struct acq_record *inline_record(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

/* Whether others can die in the set and be recovered. */
static bool inline_is_shared(const weir_set *set)
{
    return set->participant || set->inline_format == INLINE_DCAS;
}

int set_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word)
{
    struct txn txn;
    int r = 0;

    /* Private sets have no box until they first need one. */
    if (!set->participant && !version_reserve_block(set->region, set->head_unit)) {
        pthread_mutex_lock(&set->w->lock);
        r = version_add_reserve_block(set->region, set->head_unit);
        pthread_mutex_unlock(&set->w->lock);
    }
    if (r == 0)
        txn_inflate(&txn, ctx, set, word);
    return r < 0 ? r : -EINPROGRESS;
}

/* Nobody is in line, so what the state says is all that there is to say. 1: it has to wait. */
static int inline_refuse(struct thread_ctx *ctx, weir_set *set, uint64_t now_ns, uint64_t ready,
                         enum wait_mode mode, struct decision *ret)
{
    const struct limit *limit = set->limits.items;

    /* What is short may be held by the dead. */
    if (set->participant && peer_reap_if_due(ctx, set, now_ns))
        return -EINPROGRESS;
    *ret = (struct decision){.now_ns = now_ns, .forecast_ns = ready, .limiting = limit};
    if (ready == WEIR_NEVER) {
        set_count_refusal(ctx, set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (mode == MODE_PROBE)
        return -EAGAIN;
    if (mode != MODE_TRY)
        return 1;
    if (limit->type == WEIR_LIMIT_RESOURCE)
        ret->forecast_ns = now_ns; /* not foreseen */
    set_count_busy(ctx, set, limit);
    return -EAGAIN;
}

/*
 * The newcomer's record, which is free until its word says HELD: that one. Who completes a ledger
 * knows nothing of the instants, so they come first.
 */
static uint64_t inline_prepare_record(const weir_set *set, uint32_t record, uint64_t now_ns)
{
    struct acq_record *r = inline_record(set, record);

    record_store(&r->granted_ns, now_ns);
    SCHED_POINT();
    record_store(&r->enqueued_ns, now_ns);
    SCHED_POINT();
    return record_next_word(record_load(&r->word), RECORD_HELD);
}

/*
 * What was granted is now the record's. Nobody knows of one that does not wait. Of others whoever
 * completed a ledger may have woken the waiter, who may have given it back.
 */
static void inline_set_held(const weir_set *set, uint32_t record, uint64_t held,
                            enum wait_mode mode)
{
    struct acq_record *r = inline_record(set, record);
    uint64_t expected = ((held >> 8) - 1) << 8 | RECORD_FREE;

    if (mode == MODE_PROBE || mode == MODE_TRY)
        atomic_store_explicit(&r->word, held, memory_order_release);
    else
        atomic_compare_exchange_strong(&r->word, &expected, held);
    SCHED_POINT();
}

static void inline_count_grant(struct thread_ctx *ctx, const weir_set *set, uint64_t amount,
                               uint32_t record)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    counter_add(&counters->granted, 1);
    counter_add(&counters->limits[0].granted, amount);
    if (!record)
        counter_add(&counters->taken, 1);
}

/* The actor's seat in a ledger, if there is one for it. Whoever recovers it looks there first. */
static uint32_t inline_dcas_slot(struct thread_ctx *ctx, const weir_set *set)
{
    version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    return dcas_slot(ctx, set);
}

WEIR_ALWAYS_INLINE int inline_acquire_impl(bool shared, struct thread_ctx *ctx, weir_set *set,
                                           uint64_t amount, uint64_t lease, uint32_t record,
                                           enum wait_mode mode, struct decision *ret)
{
    struct inline_grant grant = {.amount = amount, .lease = lease, .record = record};
    struct weir_instant at;
    uint64_t word, ready;
    int r;

    if (shared && set->inline_format == INLINE_DCAS)
        grant.dcas_slot = inline_dcas_slot(ctx, set);
    at = inline_clock(set);
    version_prefetch(set->region, set->head_unit);
    for (;;) {
        grant.held_word = record ? inline_prepare_record(set, record, at.now_ns) : 0;
        r = inline_try_take(shared, set, &at, &grant, &word, &ready);
        if (r != -EINPROGRESS)
            break;
        if (word & INFLATED_BIT)
            return -EINPROGRESS;
        if (at.now_ns >= inline_deflated_ns(set))
            return set_inflate(ctx, set, word); /* it does not fit */
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
        if (at.now_ns < inline_deflated_ns(set))
            return set_inflate(ctx, set, word); /* it goes backwards: until it catches up */
    }
    if (r == -EAGAIN) {
        r = inline_refuse(ctx, set, at.now_ns, ready, mode, ret);
        return r == 1 ? set_inflate(ctx, set, word) : r;
    }
    SCHED_POINT();
    if (record)
        inline_set_held(set, record, grant.held_word, mode);
    ret->now_ns = ret->forecast_ns = at.now_ns;
    ret->lease_rest = grant.lease_rest;
    inline_count_grant(ctx, set, amount, record);
    return 0;
}

int inline_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                   enum wait_mode mode, struct decision *ret)
{
    /* Who can wait often finds others in line, and then needs no clock here. */
    if (mode != MODE_TRY && version_peek_word(set->region, set->head_unit) & INFLATED_BIT)
        return -EINPROGRESS;
    return inline_is_shared(set)
               ? inline_acquire_impl(true, ctx, set, amounts[0], 0, record, mode, ret)
               : inline_acquire_impl(false, ctx, set, amounts[0], 0, record, mode, ret);
}

int inline_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                 struct decision *ret)
{
    ret->lease_rest = 0;
    return inline_acquire_impl(inline_is_shared(set), ctx, set, amount, lease, 0, MODE_TRY, ret);
}

/*
 * Gives back by a ledger what is the caller's own. For others that is done with the whole of the set,
 * and once it is boxed they are told apart who did it before.
 */
static int inline_release_dcas(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                               uint64_t word, bool is_owner, const struct release_args *args)
{
    uint32_t slot = inline_dcas_slot(ctx, set);
    struct acq_record *of = inline_record(set, record);
    uint64_t expected;
    int r = inline_try_give_back(set, is_owner ? slot : 0, record, of, word, args->amounts[0],
                                 &expected);

    if (r == -EINPROGRESS && !(expected & INFLATED_BIT) && !set_is_broken(set))
        set_inflate(ctx, set, expected);
    if (r != 1)
        return r;
    SCHED_POINT();
    atomic_store_explicit(&of->word, record_next_word(word, RECORD_FREE), memory_order_release);
    SCHED_POINT();
    return 1;
}

/* From HELD to FREE: of all who try, one gives back what the record held. */
static bool inline_claim_record(const weir_set *set, uint32_t record, uint64_t word, bool is_owner)
{
    _Atomic uint64_t *at = &inline_record(set, record)->word;
    uint64_t free_word = record_next_word(word, RECORD_FREE);
    bool record_freed = true;

    if (is_owner)
        atomic_store_explicit(at, free_word, memory_order_release);
    else
        record_freed = atomic_compare_exchange_strong(at, &word, free_word);

    SCHED_POINT();
    return record_freed;
}

WEIR_ALWAYS_INLINE int inline_release_state(bool shared, weir_set *set, uint64_t granted_ns,
                                            const struct release_args *args)
{
    const struct limit *limit = set->limits.items;
    struct weir_instant at = {0};
    unsigned turn = 0;

    if (limit->algorithm)
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
    for (;; spin_backoff(&turn)) {
        uint64_t word, state;

        if (!inline_read(shared, set, &word, &state))
            return -EINPROGRESS;
        if (limit->algorithm)
            set_release_limit(set, 0, &state, &at, args, granted_ns);
        else
            state -= args->amounts[0];
        if (state & INFLATED_BIT)
            return 1; /* the algorithm broke its word */
        if (version_cas_word(set->region, set->head_unit, word, state))
            return 1;
    }
}

int inline_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args, bool *record_freed)
{
    uint64_t granted_ns;

    if (set->inline_format == INLINE_DCAS)
        return inline_release_dcas(ctx, set, record, word, is_owner, args);
    granted_ns = set_granted_ns(set, record, args);
    if (!*record_freed && !inline_claim_record(set, record, word, is_owner))
        return 0;
    *record_freed = true;
    return set->participant ? inline_release_state(true, set, granted_ns, args)
                            : inline_release_state(false, set, granted_ns, args);
}

/* What the word would be; boxed: it does not fit. */
static uint64_t inline_encode(const struct txn *txn)
{
    uint64_t state = *txn_states(txn);

    if (txn->set->inline_format != INLINE_DCAS)
        return state;
    return state > DCAS_USED_MAX
               ? INFLATED_BIT
               : state << DCAS_USED_SHIFT | (txn->version.content[DCAS_BITS_AT] & DCAS_BITS);
}

/* Whoever unboxes a later version may have been faster. */
static void inline_raise_deflated(const weir_set *set, uint64_t now_ns)
{
    uint64_t expected = atomic_load_explicit(set->deflated_ns, memory_order_relaxed);

    while (expected < now_ns && !atomic_compare_exchange_weak(set->deflated_ns, &expected, now_ns))
        ;
    SCHED_POINT();
}

bool set_deflate(const struct txn *txn)
{
    const struct version *version = &txn->version;

    if ((version_flags(version) & (CONTENT_SHUT_DOWN | CONTENT_JOIN_PENDING)) ||
        version->content[CONTENT_LAST_NS] > txn->now_ns || (inline_encode(txn) & INFLATED_BIT))
        return false;
    if (txn->set->inline_format == INLINE_DCAS && !dcas_slot(txn->ctx, txn->set))
        return false; /* who has no seat there leaves it as he needs it */
    inline_raise_deflated(txn->set, txn->now_ns);
    return version_deflate(txn->set->region, txn->set->head_unit, version, inline_encode(txn));
}

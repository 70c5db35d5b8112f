/* SPDX-License-Identifier: MIT */
/* Operations on sets with inline state; inflation and deflation. */
#include "set/inline_state.h"
#include "base/backoff.h"
#include "limit/counters.h"

#include "base/invariant.h"
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

/* Returns whether other processes may die in the set, and its operations must be recoverable. */
static bool inline_is_robust(const weir_set *set)
{
    return set_is_shared(set) || set->inline_format == INLINE_DCAS;
}

int set_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word)
{
    struct txn txn;
    int r = 0;

    WEIR_INVARIANT(set->inline_format != INLINE_NONE && !(word & INFLATED_BIT));
    /* A private set has no reserve block until it is first inflated. */
    if (!set_is_shared(set) && !version_reserve_block(set->region, set->head_unit)) {
        pthread_mutex_lock(&set->w->lock);
        r = version_add_reserve_block(set->region, set->head_unit);
        pthread_mutex_unlock(&set->w->lock);
    }
    if (r == 0)
        txn_inflate(&txn, ctx, set, word);
    return r < 0 ? r : -EINPROGRESS;
}

/* Refuses a request that the state does not admit. Returns the error, 1 if the request has to wait,
 * or -EINPROGRESS if the cleanup of dead peers changed the set. The wait queue is empty, so the
 * forecast is the limit's own. */
static int inline_refuse(struct thread_ctx *ctx, weir_set *set, uint64_t now_ns, uint64_t ready,
                         enum wait_mode mode, struct decision *ret)
{
    const struct limit *limit = set->limits.items;

    /* Dead peers may hold the missing units. */
    if (set_is_shared(set) && peer_reap_if_due(ctx, set, now_ns))
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
        ret->forecast_ns = now_ns; /* no forecast */
    set_count_busy(ctx, set, limit);
    return -EAGAIN;
}

/* Fills the timestamps of the request's record, which is FREE, and returns its HELD word. They
 * precede the announcement: a thread that completes it does not know them. */
static uint64_t inline_prepare_record(const weir_set *set, uint32_t record, uint64_t now_ns)
{
    struct acq_record *r = inline_record(set, record);

    WEIR_INVARIANT(set_is_shared(set) || record_state(record_load(&r->word)) == RECORD_FREE);
    record_store(&r->granted_ns, now_ns);
    SCHED_POINT();
    record_store(&r->enqueued_ns, now_ns);
    SCHED_POINT();
    return record_next_word(record_load(&r->word), RECORD_HELD);
}

/*
 * Makes the record HELD after the grant. A record without a waiter is known to this thread alone,
 * or to a helper with an equal word, so a store suffices. With a waiter, another thread may have
 * completed the announcement and notified it, and the waiter may have released the grant: hence
 * CAS.
 */
static void inline_set_held(const weir_set *set, uint32_t record, uint64_t held,
                            enum wait_mode mode)
{
    struct acq_record *r = inline_record(set, record);
    uint64_t expected = ((held >> 8) - 1) << 8 | RECORD_FREE;

    WEIR_INVARIANT(record_state(held) == RECORD_HELD &&
                   (set->is_robust || record_load(&r->word) == expected));
    if (mode == MODE_PROBE || mode == MODE_TRY)
        atomic_store_explicit(&r->word, held, memory_order_release);
    else
        atomic_compare_exchange_strong_explicit(&r->word, &expected, held, memory_order_seq_cst,
                                                memory_order_seq_cst);
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

/* Returns the thread's announcement slot, or 0. Stores the active set first: recovery of a dead
 * thread starts there. */
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

    WEIR_INVARIANT(set->inline_format != INLINE_NONE && thread_ctx_is_usable(ctx));
    WEIR_INVARIANT(lease == 0 || (lease > amount && !record));
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
            return set_inflate(ctx, set, word); /* the state does not fit */
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
        if (at.now_ns < inline_deflated_ns(set))
            return set_inflate(ctx, set,
                               word); /* the clock is behind: inflated until it catches up */
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
    /* A request that can wait often finds the set inflated, and then needs no clock read here. */
    if (mode != MODE_TRY && version_peek_word(set->region, set->head_unit) & INFLATED_BIT)
        return -EINPROGRESS;
    return inline_is_robust(set)
               ? inline_acquire_impl(true, ctx, set, amounts[0], 0, record, mode, ret)
               : inline_acquire_impl(false, ctx, set, amounts[0], 0, record, mode, ret);
}

int inline_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                 struct decision *ret)
{
    ret->lease_rest = 0;
    return inline_acquire_impl(inline_is_robust(set), ctx, set, amount, lease, 0, MODE_TRY, ret);
}

/* Releases the caller's own record by detectable CAS. For another thread's record `slot` is 0: the
 * set is inflated, and the slow path completes the announcements to learn whether the record was
 * released. */
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

/* Changes the record from HELD to FREE. Of all callers one succeeds, and returns the units. */
static bool inline_claim_record(const weir_set *set, uint32_t record, uint64_t word, bool is_owner)
{
    _Atomic uint64_t *at = &inline_record(set, record)->word;
    uint64_t free_word = record_next_word(word, RECORD_FREE);
    bool record_freed = true;

    WEIR_INVARIANT(record && (set->is_robust || record_state(word) == RECORD_HELD));
    WEIR_INVARIANT(set->is_robust || !is_owner || record_load(at) == word);
    if (is_owner)
        atomic_store_explicit(at, free_word, memory_order_release);
    else
        record_freed = atomic_compare_exchange_strong_explicit(
            at, &word, free_word, memory_order_seq_cst, memory_order_seq_cst);

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
        else {
            WEIR_INVARIANT(set->is_robust || state >= args->amounts[0]);
            state -= args->amounts[0];
        }
        if (state & INFLATED_BIT)
            return 1; /* the algorithm set the top bit, against its contract */
        if (version_cas_word(set->region, set->head_unit, word, state))
            return 1;
    }
}

int inline_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args, bool *record_freed)
{
    uint64_t granted_ns;

    WEIR_INVARIANT(set->inline_format != INLINE_NONE && thread_ctx_is_ready(ctx, set));
    if (set->inline_format == INLINE_DCAS)
        return inline_release_dcas(ctx, set, record, word, is_owner, args);
    granted_ns = set_granted_ns(set, record, args);
    if (!*record_freed && !inline_claim_record(set, record, word, is_owner))
        return 0;
    *record_freed = true;
    return set_is_shared(set) ? inline_release_state(true, set, granted_ns, args)
                              : inline_release_state(false, set, granted_ns, args);
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

/* Raises `deflated_ns` to `now_ns`. Never lowers it: a thread that deflates a later version may be
 * ahead. The relaxed load is only the CAS's first guess. */
static void inline_raise_deflated(const weir_set *set, uint64_t now_ns)
{
    uint64_t expected = atomic_load_explicit(set->deflated_ns, memory_order_relaxed);

    while (expected < now_ns &&
           !atomic_compare_exchange_weak_explicit(set->deflated_ns, &expected, now_ns,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
    WEIR_INVARIANT(set_is_shared(set) ||
                   atomic_load_explicit(set->deflated_ns, memory_order_relaxed) >= now_ns);
    SCHED_POINT();
}

bool set_deflate(const struct txn *txn)
{
    const struct version *version = &txn->version;

    WEIR_INVARIANT(version_is_inflated(version) && !waitq_length(version) && !waitq_head(version));
    if ((version_flags(version) & (CONTENT_SHUT_DOWN | CONTENT_JOIN_PENDING)) ||
        version->content[CONTENT_LAST_NS] > txn->now_ns || (inline_encode(txn) & INFLATED_BIT))
        return false;
    if (txn->set->inline_format == INLINE_DCAS && !dcas_slot(txn->ctx, txn->set))
        return false; /* a thread without a slot leaves the set inflated */
    inline_raise_deflated(txn->set, txn->now_ns);
    return version_deflate(txn->set->region, txn->set->head_unit, version, inline_encode(txn));
}

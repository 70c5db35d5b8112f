/* SPDX-License-Identifier: MIT */
/* Releases grants: returns resources, refunds or charges rates, and hands over to the head. */
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/set.h"

#include "base/backoff.h"
#include "base/compiler.h"
#include "set/detectable_cas.h"
#include "set/hooks.h"
#include "set/inline_state.h"
#include "set/instance_base.h"
#include "set/shadow.h"
#include "set/try_now.h"
#include "set/txn_internal.h"
#include "state/version_ops.h"
#include <errno.h>

/* Releases units of a resource with an algorithm. */
static void set_release_observed(const weir_set *set, uint32_t i, uint64_t *state,
                                 const struct weir_instant *at, const struct release_args *args,
                                 uint64_t granted_ns)
{
    const struct limit *limit = &set->limits.items[i];
    struct weir_release release = {.size = sizeof(release),
                                   .amount = args->amounts[i],
                                   .granted_ns = granted_ns,
                                   .latency_ns = args->latency_ns,
                                   .outcome = args->outcome};

    if (args->return_all)
        release.outcome = WEIR_OUTCOME_CANCELED;
    if (!release.latency_ns && at->now_ns > granted_ns)
        release.latency_ns = at->now_ns - granted_ns;
    limit_release(limit, state, at, &release);
    if (limit_is_unfit(limit, *state))
        limits_note_fault(&set->limits, i);
}

bool set_release_limit(const weir_set *set, uint32_t i, uint64_t *state,
                       const struct weir_instant *at, const struct release_args *args,
                       uint64_t granted_ns)
{
    const struct limit *limit = &set->limits.items[i];
    uint64_t amount = args->amounts[i], used = args->used[i];
    bool is_right;

    WEIR_INVARIANT(i < set->limits.n);
    if (!amount)
        return false;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        WEIR_INVARIANT(set->is_robust || limit->algorithm || *state >= amount);
        if (limit->algorithm)
            set_release_observed(set, i, state, at, args, granted_ns);
        else if (set_is_shared(set) && *state < amount)
            participant_mark_broken(set->participant); /* no correct process writes that */
        else
            *state -= amount;
        return false;
    }
    if (args->return_all)
        used = 0;
    if (used == amount || (set_is_shared(set) && successor_began_after(set, i, granted_ns)))
        return false;
    if (used < amount && (limit->refund != REFUND_NO || args->return_all))
        is_right = limit_refund(limit, state, at, amount - used, granted_ns);
    else if (used > amount && limit->charges)
        is_right = limit_charge(limit, state, at, used - amount);
    else
        return false;
    if (!is_right || limit_is_unfit(limit, *state))
        limits_note_fault(&set->limits, i);
    return true;
}

static void set_release_count(struct counters *counters, const struct release_args *args)
{
    counter_add(&counters->released, 1);
    if (args->return_all)
        counter_add(&counters->canceled, 1);
}

/* Counts what went back to rates and calls, and what was used beyond the amounts. */
static void set_count_usage(struct counters *counters, const weir_set *set,
                            const struct release_args *args)
{
    uint64_t refunded = 0, overused = 0;

    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t amount = args->amounts[i];
        uint64_t used = args->return_all ? 0 : args->used[i];

        if (!amount || limit->type == WEIR_LIMIT_RESOURCE)
            continue;
        if (used < amount && (limit->refund != REFUND_NO || args->return_all) &&
            limit->algorithm->refund) {
            counter_add(&counters->limits[i].refunded, amount - used);
            refunded = 1;
        } else if (used > amount) {
            counter_add(&counters->limits[i].overused, used - amount);
            overused = 1;
        }
    }
    if (refunded | overused) {
        counter_add(&counters->refunded, refunded);
        counter_add(&counters->overused, overused);
    }
}

void set_count_release(struct thread_ctx *ctx, const weir_set *set, const struct release_args *args)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    set_count_usage(counters, set, args);
    set_release_count(counters, args);
}

void set_count_return(struct thread_ctx *ctx, const weir_set *set, const struct release_args *args)
{
    set_count_usage(thread_ctx_counters(ctx, set->number), set, args);
}

/* Applies a release to all limits. Returns true if a rate or call has changed. */
static inline bool set_release_limits(struct txn *txn, const struct release_args *args,
                                      uint64_t granted_ns)
{
    const struct limits *limits = &txn->set->limits;
    bool is_changed = false;

    for (uint32_t i = 0; i < limits->n; i++)
        is_changed |=
            set_release_limit(txn->set, i, txn_states(txn) + limits->items[i].state_offset,
                              &txn->at, args, granted_ns);
    return is_changed;
}

/* Ends the record with the version, unless it is FREE already, and makes the one with the rest
 * HELD. */
static void set_release_record(struct txn *txn, const struct release_op *rel)
{
    uint64_t word = rel->record_word;

    if (rel->record_freed)
        return;
    WEIR_INVARIANT(rel->record && (txn->set->is_robust || record_state(word) == RECORD_HELD));
    version_defer_state(&txn->version, rel->record, word, release_end_state(rel->args),
                        rel->is_owner);
    if (rel->rest)
        version_defer_state(&txn->version, rel->rest,
                            record_load(&set_record(txn->set, rel->rest)->word), RECORD_HELD,
                            rel->is_owner);
}

/* Grants waiters after a release: the head with this version. A version that exchanges a record has
 * no room for the writes of a grant; then waiters are granted after the commit. */
static void set_release_grant(struct txn *txn, const struct release_op *rel)
{
    if (rel->rest)
        txn->grant_again = waitq_head(&txn->version) != 0;
    else
        txn_grant_waiters(txn, HEAD_WATCH_AS_READ);
}

/* Makes one attempt on the slow path. Returns an enum try_result, TRY_SLOW if another thread
 * committed first; or -ESTALE of a key set. txn->grant_again: more waiters are ready after the
 * commit. */
static int set_release_once(struct txn *txn, const struct release_op *rel)
{
    const weir_set *set = txn->set;
    const struct release_args *args = rel->args;
    uint64_t granted_ns = grant_time(set_granted_ns(set, rel->record, args));
    bool is_changed;

    if (set_is_key_set(set) && !key_set_admits(txn->ctx, set, txn->version.content))
        return -ESTALE;
    WEIR_INVARIANT(rel->record_freed || rel->record);
    if (!rel->record_freed && record_load(&set_record(set, rel->record)->word) != rel->record_word)
        return TRY_REFUSED;
    txn_save_states(txn);
    is_changed = set_release_limits(txn, args, granted_ns);
    set_release_record(txn, rel);
    set_release_grant(txn, rel);
    if (is_changed || txn->granted_record)
        forecast_invalidate(txn);
    return txn_commit(txn) ? TRY_DONE : TRY_SLOW;
}

/* Releases in the state word if the set is inline or can be deflated, else on the slow path.
 * Results as set_release_once(). */
static int set_release_begun(struct txn *txn, struct release_op *rel)
{
    if (rel->rest && !version_is_inflated(&txn->version)) {
        set_inflate(txn->ctx, txn->set, txn->version.state_word); /* a state word has no writes */
        return TRY_SLOW;
    }
    /* The record's word says whether it was released only once announced writes are complete. */
    if (!rel->is_owner && version_is_inflated(&txn->version) && dcas_may_be_announced(txn->set))
        dcas_complete(txn->set, &txn->version, rel->record);
    else if (!rel->rest && set_become_inline(txn))
        return try_now_release(txn->ctx, txn->set, rel);
    return set_release_once(txn, rel);
}

/* Prefetches the version and the record of the probable head. Otherwise each cache miss would wait
 * for the one before: state word, version, head, wait target. Relaxed: recent_head is a guess. */
static inline void set_release_prefetch(const weir_set *set)
{
    const struct set_head *head = set_head_at(set->region, set->head_unit);
    uint64_t word = version_peek_word(set->region, set->head_unit);
    const char *block, *first;

    if (!(word & INFLATED_BIT))
        return;
    block = (const char *)block_at(false, set->region, head->block_class, word);
    first = (const char *)set_record(
        set, atomic_load_explicit(&head->recent_head, memory_order_relaxed));
    prefetch_read(block);
    prefetch_read(block + PREFETCH_LINE_SIZE);
    prefetch_read(block + 2 * PREFETCH_LINE_SIZE);
    prefetch_write(first);
    prefetch_write(first + PREFETCH_LINE_SIZE);
}

bool set_may_hand_over(const weir_set *set)
{
    if (set_is_shared(set) || set_is_key_set(set) || set->reorders || set->limits.has_shadow)
        return false;
    return !set->limits.has_waits && !set->limits.has_opaque_resources;
}

/* Returns units to the counted limits of a set, and takes those that a waiter asks for if they are
 * there. Returns whether they are. */
WEIR_ALWAYS_INLINE bool set_hand_over_units(const weir_set *set, uint64_t *states,
                                            const uint64_t *returned, const struct acq_record *r,
                                            uint64_t *ret_taken)
{
    bool fits = true;

    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t *state = &states[limit->state_offset], amount = record_load(&r->amounts[i]);

        WEIR_INVARIANT(!limit->algorithm && *state >= returned[i]);
        *state -= returned[i];
        fits &= !amount || (amount <= limit->capacity && *state <= limit->capacity - amount);
        ret_taken[i] = amount;
    }
    for (uint32_t i = 0; fits && i < set->limits.n; i++)
        states[set->limits.items[i].state_offset] += ret_taken[i];
    return fits;
}

/* Grants to the next waiter as well, if it is ready by the states after a grant at `at`, or may be
 * none that this definition ever grants to. */
WEIR_NOINLINE void set_hand_over_again(struct thread_ctx *ctx, weir_set *set,
                                       const uint64_t *states, struct weir_instant at,
                                       uint32_t next)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct limit *limiting;

    fairness_amounts(set, next, amounts);
    if (set_may_be_impossible(set, set_record(set, next)) ||
        limits_ready_at(&set->limits, states, &at, amounts, true, &limiting) <= at.now_ns)
        set_grant_waiters(ctx, set);
}

/*
 * Releases on a set with waiters, in a row: the next waiter is examined only after the first was
 * notified. False: nothing has happened, and the slow path is needed. All that has the address of
 * the transaction is inlined, so that it can be in registers.
 */
WEIR_NOINLINE bool set_release_hand_over(struct thread_ctx *ctx, weir_set *set,
                                         const struct release_args *args)
{
    const struct acq_record *r;
    struct counters *counters;
    struct txn txn;
    uint32_t head;

    set_release_prefetch(set);
    if (!txn_read_private(&txn, ctx, set, 0))
        return false;
    head = waitq_head(&txn.version);
    r = record_known(set->region, head);
    if (!head || set_is_foreign(set, r))
        return false;
    cq_prefetch_target(set->w, r);
    txn_read_clock(&txn);
    if (txn.at.now_ns != txn.now_ns)
        return false; /* it is too early to grant */
    if (!set_hand_over_units(set, txn_states(&txn), args->amounts, r, ctx->granted_amounts))
        return txn_commit_private(&txn);
    waitq_dequeue_to(&txn.version, record_link_target(record_load(&r->next)));
    txn_make_held(&txn, head, r, txn.at.now_ns);
    if (!txn_commit_private(&txn))
        return false;
    counters = thread_ctx_counters(ctx, set->number);
    counters_add_grant(counters, ctx->granted_amounts, set->limits.n, false);
    timer_notify(set->w, head, txn.notifications[0].word);
    SCHED_POINT();
    counters_add_wait(counters, txn.waited_ns);
    head = waitq_head(&txn.version);
    version_hint_head(set->region, set->head_unit, head);
    if (head)
        set_hand_over_again(ctx, set, txn_states(&txn), txn.at, head);
    return true;
}

WEIR_NOINLINE int set_release_by_versions(struct thread_ctx *ctx, weir_set *set,
                                          struct release_op *rel)
{
    struct txn txn;
    unsigned turn = 0;
    int r;

    txn.grant_again = false;
    for (;; spin_backoff(&turn)) {
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set))
            return TRY_DONE; /* there is nothing to return units to */
        if (version_flags(&txn.version) & CONTENT_MOVED)
            return set_is_key_set(set) ? -ESTALE : moved_release(ctx, set, rel);
        r = set_release_begun(&txn, rel);
        if (r != TRY_SLOW)
            break;
    }
    set_end_if_faulty(ctx, set);
    if (r == TRY_DONE && txn.grant_again)
        set_grant_waiters(ctx, set);
    return r;
}

int set_release_inflated(struct thread_ctx *ctx, weir_set *set, struct release_op *rel)
{
    if (rel->record_freed && set->hands_over && set_release_hand_over(ctx, set, rel->args))
        return TRY_DONE;
    return set_release_by_versions(ctx, set, rel);
}

/* As set_release(), of what was taken. */
static bool set_release_taken(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                              bool is_owner, const struct release_args *args)
{
    bool use_algorithm = set_release_uses_algorithm(set, args);
    struct release_op rel = {.args = args,
                             .record = record,
                             .record_word = word,
                             .is_owner = is_owner,
                             .use_algorithm = use_algorithm};
    int r;

    WEIR_INVARIANT(record && thread_ctx_is_usable(ctx) && thread_ctx_is_ready(ctx, set));
    WEIR_INVARIANT(record_state(word) == RECORD_HELD || set->is_robust);
    /* A limit that holds nothing by this definition may hold something by the one that granted. */
    r = set_successor(set) || set->limits.revokes ? TRY_SLOW : try_now_release(ctx, set, &rel);
    if (r == TRY_SLOW)
        r = set_release_inflated(ctx, set, &rel);
    if (r == TRY_REFUSED)
        return false;
    if (use_algorithm)
        set_end_if_faulty(ctx, set);
    if (use_algorithm && !set_is_broken(set))
        set_count_release(ctx, set, args);
    else if (!set_is_broken(set))
        set_release_count(thread_ctx_counters(ctx, set->number), args);
    return true;
}

WEIR_NOINLINE bool set_release_shadow(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                      uint64_t word, bool is_owner, const struct release_args *args)
{
    struct shadow_release taken;

    shadow_release_args(set, record, args, &taken);
    return set_release_taken(ctx, set, record, word, is_owner, &taken.args);
}

bool set_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                 bool is_owner, const struct release_args *args)
{
    return shadow_may_be_untaken(set) ? set_release_shadow(ctx, set, record, word, is_owner, args)
                                      : set_release_taken(ctx, set, record, word, is_owner, args);
}

void set_return_units(struct thread_ctx *ctx, weir_set *set, const struct release_args *args)
{
    struct release_op rel = {
        .args = args, .is_owner = true, .record_freed = true, .use_algorithm = true};

    set_release_inflated(ctx, set, &rel);
}

/* As set_return_part(), of what was taken. */
static void set_return_taken(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                             const struct release_args *args)
{
    struct release_op rel = {.args = args,
                             .record = set_is_shared(set) ? 0 : record,
                             .is_owner = !set->limits.revokes,
                             .record_freed = !rest,
                             .use_algorithm = true,
                             .rest = rest};
    int r = TRY_SLOW;

    WEIR_INVARIANT(record && thread_ctx_is_usable(ctx) && thread_ctx_is_ready(ctx, set));
    WEIR_INVARIANT(!rest || set_exchanges_records(set));
    if (rest) {
        rel.record = record;
        rel.record_word = record_load(&set_record(set, record)->word);
        if (record_state(rel.record_word) != RECORD_HELD)
            return; /* it was revoked */
    } else {
        r = try_now_release(ctx, set, &rel);
    }
    if (r == TRY_SLOW)
        r = set_release_inflated(ctx, set, &rel);
    set_end_if_faulty(ctx, set);
    if (r != TRY_REFUSED && !set_is_broken(set))
        set_count_return(ctx, set, args);
}

void set_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                     const struct release_args *args)
{
    struct shadow_release taken;

    if (shadow_may_be_untaken(set)) {
        shadow_release_args(set, record, args, &taken);
        args = &taken.args;
    }
    set_return_taken(ctx, set, record, rest, args);
}

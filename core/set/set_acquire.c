/* SPDX-License-Identifier: MIT */
/* Acquires from a set on the slow path: a request is granted, enqueued or refused. */
#include "base/backoff.h"
#include "base/compiler.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/set_ops.h"

#include "base/sched_point.h"
#include "set/class_order.h"
#include "set/hooks.h"
#include "set/inline_state.h"
#include "set/instance_base.h"
#include "set/nesting.h"
#include "set/shadow.h"
#include "set/try_now.h"
#include "set/txn_internal.h"
#include <errno.h>
#include <string.h>

void set_count_not_now(struct thread_ctx *ctx, const weir_set *set, int code, enum wait_mode mode,
                       const struct limit *limiting)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    WEIR_INVARIANT(code < 0 && (!limiting || limiting < set->limits.items + set->limits.n));
    if (code == -ENOBUFS)
        counter_add(&counters->refused_full, 1);
    else if (code == -EDEADLK)
        counter_add(&counters->refused_deadlock, 1);
    else if (mode == MODE_WAIT)
        counter_add(&counters->refused_max_wait, 1);
    else
        counter_add(&counters->refused_busy, 1);
    if (limiting)
        counter_add(&counters->limits[limiting - set->limits.items].refused, 1);
}

void set_count_refusal(struct thread_ctx *ctx, weir_set *set, int code, const char *key)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    if (code == -ENOENT)
        counter_add(&counters->refused_unknown, 1);
    if (code != -ERANGE)
        return;
    counter_add(&counters->refused_impossible, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (set->limits.items[i].key == key)
            counter_add(&counters->limits[i].refused, 1);
}

void set_count_grant(struct thread_ctx *ctx, const weir_set *set, const uint64_t *amounts,
                     uint32_t record)
{
    counters_add_grant(thread_ctx_counters(ctx, set->number), amounts, set->limits.n, !record);
}

/* How often a request looks at the set again after it has done other threads' work. */
enum { SETTLED_MAX = 64 };

/* Makes the record HELD with the version. Without waiting, no other thread knows the record, except
 * to revoke it once it is HELD. */
static void set_acquire_set_held(struct txn *txn, uint32_t record, enum wait_mode mode,
                                 uint64_t granted_ns)
{
    struct acq_record *r = set_record(txn->set, record);
    uint64_t word = record_load(&r->word);

    WEIR_INVARIANT(record_is_unused(txn->set, record));
    shm_store_relaxed(&r->granted_ns, granted_ns);
    shm_store_relaxed(&r->enqueued_ns, txn->now_ns);
    version_defer_state(&txn->version, record, word, RECORD_HELD,
                        (mode == MODE_PROBE || mode == MODE_TRY) && !txn->set->limits.revokes);
}

/* Grants what was taken. Returns ACQUIRE_GRANTED, or ACQUIRE_RETRY if another thread committed
 * first. */
static int set_acquire_commit(struct txn *txn, const uint64_t *amounts, uint32_t record,
                              enum wait_mode mode)
{
    bool overtakes = txn->set->classes && waitq_length(&txn->version) && !txn->within;
    uint64_t granted_ns = txn->at.now_ns;

    forecast_invalidate(txn); /* it may overtake waiters of an unfair set */
    if (overtakes)
        class_order_charge(txn->set, &txn->version, txn->wait_class, amounts);
    if (txn->set->limits.has_shadow) {
        memcpy(txn->ctx->granted_amounts, amounts, txn->set->limits.n * sizeof(*amounts));
        amounts = txn->ctx->granted_amounts;
        granted_ns = shadow_take(txn, 0, txn->asked, txn->shadow_number);
        if (set_is_faulty(txn->set))
            return -EUCLEAN;
    }
    if (record)
        set_acquire_set_held(txn, record, mode, granted_ns);
    if (!txn_commit(txn))
        return ACQUIRE_RETRY;
    set_count_grant(txn->ctx, txn->set, amounts, record);
    if (txn->set->limits.has_shadow)
        shadow_count(txn);
    if (overtakes) /* a class may have come of age, and no thread watches its waiter yet */
        set_grant_waiters(txn->ctx, txn->set);
    return 0;
}

/* Adds the record to the wait queue: at the end, of its class if it has one, or behind the other
 * nested ones. Returns how many are ahead of it, or with classes how many wait. */
static uint32_t set_acquire_join(struct txn *txn, uint32_t record)
{
    uint32_t ahead = waitq_length(&txn->version), prev = waitq_tail(&txn->version);

    if (txn->within) {
        prev = fairness_last_nested(txn->set, &txn->version, &ahead);
        waitq_insert(txn->set->region, &txn->version, prev, record, txn->within);
    } else if (txn->set->classes) {
        prev = class_order_before(txn->set, &txn->version, txn->wait_class);
        if (!prev)
            prev = fairness_last_nested(txn->set, &txn->version, &(uint32_t){0});
        class_order_add(txn->set, &txn->version, txn->wait_class, record);
        waitq_insert(txn->set->region, &txn->version, prev, record, 0);
    } else {
        waitq_enqueue(txn->set->region, &txn->version, prev, record);
    }
    if (!prev && !set_is_shared(txn->set))
        version_hint_head(txn->set->region, txn->set->head_unit, record);
    return ahead;
}

/* Enqueues a request that the forecast includes. Returns ACQUIRE_ENQUEUED or ACQUIRE_RETRY. */
static int set_acquire_enqueue(struct txn *txn, const uint64_t *amounts, uint32_t record,
                               uint64_t ready, struct decision *ret)
{
    struct acq_record *r = set_record(txn->set, record);
    bool is_next = txn->set->reorders && !txn_first_ahead(txn, amounts);
    uint64_t word = record_next_word(record_load(&r->word), RECORD_WAITING);

    WEIR_INVARIANT(record && record_is_unused(txn->set, record));
    shm_store_relaxed(&r->enqueued_ns, txn->now_ns);
    ret->ticket = waitq_departures(&txn->version) + set_acquire_join(txn, record);
    is_next |= !txn->set->reorders && waitq_head(&txn->version) == record;
    if (is_next && ready < WEIR_BLOCKED &&
        wait_target_kind(record_wait_target(r)) != WAIT_TARGET_FUTEX) {
        txn->recheck_ns = ready;
        txn->recheck = (struct notification){record, word};
    }
    return txn_commit(txn) ? ACQUIRE_ENQUEUED : ACQUIRE_RETRY;
}

static bool set_acquire_is_full(const weir_set *set, uint32_t length)
{
    return set->max_waiters && length >= set->max_waiters;
}

/* Returns true if a request that may wait for ever is enqueued because others wait, unless it can
 * never be granted. */
WEIR_ALWAYS_INLINE bool set_acquire_must_queue(const weir_set *set, const struct version *version)
{
    uint32_t length = waitq_length(version);
    bool is_fifo = set->fair && !set->reorders;

    return length && is_fifo && !set->limits.has_opaque_resources &&
           !set_acquire_is_full(set, length);
}

/* Extends the forecast, if there is one, by a request behind others. False: it can never be
 * granted, or the states that say so were not read. */
WEIR_ALWAYS_INLINE bool set_acquire_can_wait(const struct txn *txn, const uint64_t *amounts)
{
    const struct limits *limits = &txn->set->limits;
    const struct limit *limiting;
    struct weir_instant at = txn->at; /* a copy, so that the transaction can be in registers */

    if (!limits->has_waits)
        return true;
    if (forecast_is_valid(txn))
        return forecast_extend(limits, &at, forecast_words(txn), amounts);
    return !txn->version.uncopied_n &&
           limits_ready_at(limits, txn_states(txn), &at, amounts, true, &limiting) != WEIR_NEVER &&
           !set_is_faulty(txn->set);
}

static int set_acquire_refuse(struct txn *txn, const uint64_t *amounts, int code,
                              enum wait_mode mode, struct decision *ret)
{
    if (!forecast_compute(txn, amounts, ret))
        return ACQUIRE_RETRY;
    set_count_not_now(txn->ctx, txn->set, code, mode, ret->limiting);
    return code;
}

/* Refuses a request that would have waited behind too many, or for too long, unless some of those
 * are overdue. */
static int set_acquire_refuse_wait(struct txn *txn, const uint64_t *amounts, int code,
                                   struct decision *ret)
{
    if (set_end_overdue_waits(txn->ctx, txn->set, waitq_length(&txn->version), txn->now_ns))
        return ACQUIRE_RETRY;
    return set_acquire_refuse(txn, amounts, code, MODE_WAIT, ret);
}

static bool set_acquire_exceeds_wait(struct txn *txn, const uint64_t *amounts, uint64_t max_wait_ns,
                                     struct decision *ret)
{
    if (max_wait_ns == WEIR_FOREVER || !forecast_compute(txn, amounts, ret))
        return false;
    WEIR_INVARIANT(ret->forecast_ns >= txn->now_ns);
    return ret->forecast_ns - txn->now_ns > max_wait_ns;
}

/* Grants in advance, as of `ready`. Returns 0, -EAGAIN or ACQUIRE_RETRY. The set moves to that
 * time, and nothing is granted before the clock reaches it. Waiters come first. */
static int set_acquire_reserve(struct txn *txn, const uint64_t *amounts, uint32_t record,
                               uint64_t ready, uint64_t max_wait_ns, struct decision *ret)
{
    if (waitq_length(&txn->version) || ready > CLOCK_MAX_NS)
        return set_acquire_refuse(txn, amounts, -EAGAIN, MODE_TRY, ret);
    WEIR_INVARIANT(record && ready >= txn->at.now_ns && txn->at.now_ns >= txn->now_ns);
    if (ready - txn->now_ns > max_wait_ns)
        return set_acquire_refuse(txn, amounts, -EAGAIN, MODE_WAIT, ret);
    txn->at.now_ns = ready;
    limits_take(&txn->set->limits, txn_states(txn), &txn->at, amounts, true);
    if (set_is_faulty(txn->set))
        return -EUCLEAN;
    return set_acquire_commit(txn, amounts, record, MODE_RESERVE);
}

/* Returns when the limits are ready. If that is now and `do_take` is set, takes the amounts. */
static uint64_t set_acquire_decide(const struct txn *txn, const uint64_t *amounts, bool do_take,
                                   struct decision *ret)
{
    const struct limits *limits = &txn->set->limits;

    ret->forecast_ns =
        do_take ? limits_try_take(limits, txn_states(txn), &txn->at, amounts, &ret->limiting)
                : limits_ready_at(limits, txn_states(txn), &txn->at, amounts, true, &ret->limiting);
    return ret->forecast_ns;
}

/* Settles heads that hold up the request, although they are ready or overdue. Returns whether the
 * set was looked at again. Bounded, since a damaged segment may never be settled. */
static bool set_acquire_settle(struct txn *txn)
{
    if (txn->settled_n >= SETTLED_MAX || !txn_is_unsettled(txn))
        return false;
    txn->settled_n++;
    set_settle_heads(txn->ctx, txn->set);
    return true;
}

/*
 * Refuses a nested request that would wait for ever. A holder that is dead waits for nothing, so
 * these are looked for first. Returns 0 if it may wait.
 */
static int set_acquire_check_circle(struct txn *txn, const uint64_t *amounts, struct decision *ret)
{
    int r = txn->within ? nesting_closes_circle(txn, amounts, &ret->limiting) : 0;

    if (r <= 0)
        return r;
    if (!txn_is_current(txn))
        return ACQUIRE_RETRY;
    if (set_is_shared(txn->set) && txn->settled_n++ < SETTLED_MAX &&
        peer_make_room(txn->ctx, txn->set) > 0)
        return ACQUIRE_RETRY;
    ret->forecast_ns = WEIR_NEVER;
    set_count_not_now(txn->ctx, txn->set, -EDEADLK, MODE_WAIT, ret->limiting);
    return -EDEADLK;
}

int set_acquire_closed(const weir_set *set)
{
    int r = set_is_shared(set) ? set_catch_up(set, false) : 0;

    if (r < 0)
        return r;
    return set_successor(set) ? -ESTALE : -ESHUTDOWN;
}

static int set_acquire_once(struct txn *txn, const uint64_t *amounts, uint32_t record,
                            enum wait_mode mode, uint64_t max_wait_ns, struct decision *ret)
{
    weir_set *set = txn->set;
    uint32_t length = waitq_length(&txn->version);
    /* Limits in shadow delay no request, nor do the waiters for others. */
    bool is_free = set->limits.has_shadow && !fairness_limits(set, amounts);
    bool may_grant, may_wait;
    uint64_t ready;
    int r;

    *ret = (struct decision){.now_ns = txn->now_ns, .forecast_ns = WEIR_NEVER};
    if (set_is_broken(set) || set_is_faulty(set))
        return -EUCLEAN;
    if (version_flags(&txn->version) & CONTENT_CLOSED)
        return set_acquire_closed(set);
    if (set_is_key_set(set) && !key_set_admits(txn->ctx, set, txn->version.content))
        return -ESTALE;
    may_wait = mode == MODE_WAIT && max_wait_ns == WEIR_FOREVER && !is_free;
    if (may_wait && !txn->within && set_acquire_must_queue(set, &txn->version) &&
        set_acquire_can_wait(txn, amounts))
        return set_acquire_enqueue(txn, amounts, record, WEIR_BLOCKED, ret);
    may_grant = is_free || txn_first_ahead(txn, amounts) == 0;
    ready = set_acquire_decide(txn, amounts, may_grant && (txn->at.now_ns == txn->now_ns), ret);
    if (set_is_faulty(set))
        return -EUCLEAN;
    if (is_free)
        ret->forecast_ns = txn->now_ns; /* a reservation does not delay it either */
    if (is_free || (may_grant && txn_is_ready(txn, ready)))
        return set_acquire_commit(txn, amounts, record, mode);
    /* Dead peers may hold what is short. */
    if (set_is_shared(set) && peer_reap_if_due(txn->ctx, set, txn->now_ns))
        return ACQUIRE_RETRY;
    if (!may_grant && set_acquire_settle(txn))
        return ACQUIRE_RETRY;
    if (ready == WEIR_NEVER) {
        WEIR_INVARIANT(ret->limiting);
        set_count_refusal(txn->ctx, set, -ERANGE, ret->limiting->key);
        return -ERANGE;
    }
    if (mode == MODE_PROBE)
        return -EAGAIN;
    if (mode == MODE_TRY)
        return set_acquire_refuse(txn, amounts, -EAGAIN, mode, ret);
    if (mode == MODE_RESERVE)
        return set_acquire_reserve(txn, amounts, record, ready, max_wait_ns, ret);
    r = set_acquire_check_circle(txn, amounts, ret);
    if (r)
        return r;
    if (set_acquire_is_full(set, length))
        return set_acquire_refuse_wait(txn, amounts, -ENOBUFS, ret);
    if (set_acquire_exceeds_wait(txn, amounts, max_wait_ns, ret))
        return set_acquire_refuse_wait(txn, amounts, -EAGAIN, ret);
    forecast_append(txn, amounts);
    return set_acquire_enqueue(txn, amounts, record, ready, ret);
}

/* Returns the word of the record once it is enqueued. A submission may be decided, reaped and its
 * record reused before the submitting thread goes on. 0: the record stays the caller's, and its
 * word may change while it waits. */
static uint64_t set_acquire_waiting_word(const weir_set *set, uint32_t record)
{
    const struct acq_record *r = set_record(set, record);

    return wait_target_kind(record_wait_target(r)) == WAIT_TARGET_CQ
               ? record_next_word(record_load(&r->word), RECORD_WAITING)
               : 0;
}

/*
 * Cancels a wait in a private set of a closed instance. The commit, INSTANCE_CLOSED and the fence
 * in B are seq_cst:
 * 1. A commits the version with its record.
 * 2. A loads INSTANCE_CLOSED, here.
 * 3. B (weir_close) stores INSTANCE_CLOSED.
 * 4. B passes the fence of set_shutdown() and reads the state word.
 *
 * Either B finds the record, or A finds INSTANCE_CLOSED.
 */
static int set_acquire_recheck_closed(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                      uint64_t word)
{
    if (set_is_shared(set) ||
        !(atomic_load_explicit(set->w->state, memory_order_seq_cst) & INSTANCE_CLOSED))
        return 1;
    if (!set_cancel_wait(ctx, set, record, word, RECORD_SHUT_DOWN))
        return 1;
    set_free_record(set, record);
    return -ESHUTDOWN;
}

/* Returns true if a request behind others is decided without the states: by the forecast, or since
 * only returned units matter. */
static bool set_enqueue_needs_no_states(const weir_set *set)
{
    uint64_t count;

    if (!set->limits.has_waits)
        return true;
    count = version_peek_content(set->region, set->head_unit, CONTENT_COUNT);
    return content_flags_in(count) & CONTENT_FORECAST;
}

/* Enqueues a request that may wait for ever behind the waiters of a private set. States that it
 * does not need are not read; the commit copies them. Returns ACQUIRE_ENQUEUED or ACQUIRE_RETRY. */
static int set_enqueue(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                       uint32_t record, struct decision *ret)
{
    uint32_t uncopied_n = set_enqueue_needs_no_states(set) ? set->limits.state_words : 0, tail;
    struct txn txn;

    WEIR_INVARIANT(!set->is_robust);
    if (!txn_read_private(&txn, ctx, set, uncopied_n) || !set_acquire_must_queue(set, &txn.version))
        return ACQUIRE_RETRY;
    tail = waitq_tail(&txn.version);
    txn_read_clock(&txn);
    if (!tail || !set_acquire_can_wait(&txn, amounts))
        return ACQUIRE_RETRY;
    *ret = (struct decision){.now_ns = txn.now_ns,
                             .forecast_ns = WEIR_NEVER,
                             .ticket = waitq_departures(&txn.version) + waitq_length(&txn.version)};
    shm_store_relaxed(&set_record(set, record)->enqueued_ns, txn.now_ns);
    waitq_enqueue(set->region, &txn.version, tail, record);
    return txn_commit_private(&txn) ? ACQUIRE_ENQUEUED : ACQUIRE_RETRY;
}

/* Acquires on the slow path, in the state word once the set can be deflated. `amounts` are those
 * that count, of op->amounts. Results as set_acquire(). */
static int set_acquire_inflated(struct acquire_op *op, const uint64_t *amounts, uint32_t record,
                                enum wait_mode mode, uint64_t max_wait_ns)
{
    struct thread_ctx *ctx = op->ctx;
    weir_set *set = op->set;
    struct txn txn;
    unsigned turn = 0;
    int r;

    txn.asked = op->amounts;
    if (set->limits.has_shadow)
        txn.shadow_number = shadow_number(op->request);
    WEIR_INVARIANT(set->head_unit && thread_ctx_is_usable(ctx) && thread_ctx_is_ready(ctx, set));
    txn.forecast_walks = txn.settled_n = 0;
    txn.within = op->within;
    txn.wait_class = op->wait_class;
    for (;; spin_backoff(&turn)) {
        txn_begin(&txn, ctx, set);
        if (!set_is_broken(set) && set_become_inline(&txn))
            r = try_now_acquire(ctx, set, op->amounts, record, mode, &op->decision);
        else
            r = set_acquire_once(&txn, amounts, record, mode, max_wait_ns, &op->decision);
        if (r != ACQUIRE_RETRY)
            break;
    }
    set_end_if_faulty(ctx, set);
    return r;
}

/* As set_acquire() for a set that has limits in shadow: what they are asked for does not count. */
WEIR_NOINLINE int set_acquire_shadow(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                                     uint64_t max_wait_ns)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    memcpy(amounts, op->amounts, op->set->limits.n * sizeof(*amounts));
    shadow_remove(op->set, shadow_number(op->request), amounts);
    return set_acquire_inflated(op, amounts, record, mode, max_wait_ns);
}

/* Returns true if the request can only be enqueued, as far as its set and its wait say so. The
 * binding of a key set is among the states. */
static inline bool set_acquire_may_enqueue(const struct acquire_op *op, enum wait_mode mode,
                                           uint64_t max_wait_ns)
{
    bool may_wait = mode == MODE_WAIT && max_wait_ns == WEIR_FOREVER;

    return may_wait && !op->within && !op->set->is_robust && !set_is_key_set(op->set);
}

int set_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode, uint64_t max_wait_ns)
{
    struct thread_ctx *ctx = op->ctx;
    weir_set *set = op->set;
    int r = ACQUIRE_RETRY;
    uint64_t word;

    WEIR_INVARIANT(record || mode == MODE_TRY || mode == MODE_PROBE);
    if (mode == MODE_TRY || !try_now_has_queue(set))
        r = try_now_acquire(ctx, set, op->amounts, record, mode, &op->decision);
    if (r != ACQUIRE_RETRY)
        return r;
    word = mode == MODE_WAIT ? set_acquire_waiting_word(set, record) : 0;
    if (set->limits.has_shadow)
        r = set_acquire_shadow(op, record, mode, max_wait_ns);
    else if (set_acquire_may_enqueue(op, mode, max_wait_ns))
        r = set_enqueue(ctx, set, op->amounts, record, &op->decision);
    if (r == ACQUIRE_RETRY)
        r = set_acquire_inflated(op, op->amounts, record, mode, max_wait_ns);
    /* By a nested request another waiter may have become the next one, and its process has set no
     * timer for it. */
    if (r == ACQUIRE_ENQUEUED && op->within && set->per_limit && set_is_shared(set))
        set_grant_waiters(ctx, set);
    return r == ACQUIRE_ENQUEUED ? set_acquire_recheck_closed(ctx, set, record, word) : r;
}

int set_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
              struct decision *ret)
{
    struct txn txn;
    unsigned turn = 0;
    int r;

    txn.forecast_walks = txn.settled_n = 0;
    txn.within = txn.wait_class = 0;
    for (;; spin_backoff(&turn)) {
        r = try_now_lease(ctx, set, amount, lease, ret);
        if (r != ACQUIRE_RETRY)
            return r;
        txn_begin(&txn, ctx, set);
        if (!set_is_broken(set) && set_become_inline(&txn))
            continue;
        r = set_acquire_once(&txn, &amount, 0, MODE_TRY, WEIR_FOREVER, ret);
        if (r == ACQUIRE_RETRY)
            continue;
        set_end_if_faulty(ctx, set);
        return r;
    }
}

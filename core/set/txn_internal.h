/* SPDX-License-Identifier: MIT */
/* Steps of transactions, inlined into txn.c and into the frequent hand-over of set_release.c. */
#ifndef WEIR_CORE_SET_TXN_INTERNAL_H
#define WEIR_CORE_SET_TXN_INTERNAL_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include "set/waiter.h"
#include "state/version_ops.h"

/* Initializes single fields, since the arrays are large and filled only up to their counts. What
 * set_enqueue() calls is always inlined, so that its transaction can be in registers. */
WEIR_ALWAYS_INLINE void txn_init(struct txn *txn, struct thread_ctx *ctx, weir_set *set)
{
    WEIR_INVARIANT(set->head_unit && thread_ctx_is_ready(ctx, set));
    txn->ctx = ctx;
    txn->set = set;
    txn->version.content = ctx->content;
    txn->version.content_capacity = /* of a key set it may be by another definition */
        set_is_shared(set) ? (uint32_t)block_capacity(set->block_class) : ctx->content_capacity;
    txn->version.inline_format = set->inline_format;
    txn->version.uncopied_n = txn->version.writes_n = 0;
    txn->notifications_n = 0;
    txn->recheck_ns = txn->next_ready_ns = WEIR_FOREVER;
    txn->grant_again = false;
    txn->granted_record = 0;
    txn->ends_impossible = false;
    txn->version.will_notify = false;
}

#define TXN_WALK_MAX 64u /* waiters that an invariant walks over */

/* Returns true if the first waiters of a private set are linked and WAITING, as far as the version
 * is still current. For invariants. */
static inline bool txn_is_queue_linked(const struct txn *txn)
{
    const struct region *region = txn->set->region;
    uint32_t record = waitq_head(&txn->version), n = waitq_length(&txn->version);
    bool is_linked = true;

    for (uint32_t i = 0; i < n && i < TXN_WALK_MAX && is_linked; i++) {
        uint32_t next = record ? waitq_next(region, record) : 0;

        is_linked = record && (i + 1 < n) == (next != 0) &&
                    record_state(record_load(&record_at(region, record)->word)) == RECORD_WAITING;
        record = next;
    }
    return is_linked || !txn_is_current(txn);
}

/* Returns true if a version that was read from a private set can be. For invariants. */
static inline bool txn_is_consistent(const struct txn *txn)
{
    const struct limits *limits = &txn->set->limits;

    if (txn->set->is_robust || !txn->version.content_n)
        return true;
    if (version_flags(&txn->version) & CONTENT_MOVED) /* its records go on elsewhere */
        return true;
    for (uint32_t i = 0; i < limits->n && !txn->version.uncopied_n && !txn->set->origin; i++)
        if (!limits->items[i].algorithm &&
            txn_states(txn)[limits->items[i].state_offset] > limits->items[i].capacity)
            return false;
    return txn->version.content_n >= set_content_min(txn->set) &&
           waitq_is_consistent(&txn->version) && txn_is_queue_linked(txn);
}

/* After the state word: no published version can contain a later clock reading. */
WEIR_ALWAYS_INLINE void txn_read_clock(struct txn *txn)
{
    txn->at = clock_instant(&txn->ctx->w->clock, txn->set->limits.clock_needs);
    txn->now_ns = txn->at.now_ns;
    if (txn->at.now_ns < txn->version.content[CONTENT_LAST_NS])
        txn->at.now_ns = txn->version.content[CONTENT_LAST_NS];
    if (txn->set->limits.reads_wall)
        forecast_check_wall(txn);
}

/* Reads a version of a private set, inlined. False: it is inline, incomplete or closed; nothing has
 * happened. */
WEIR_ALWAYS_INLINE bool txn_read_private(struct txn *txn, struct thread_ctx *ctx, weir_set *set,
                                         uint32_t uncopied_n)
{
    WEIR_INVARIANT(!set_is_shared(set));
    txn_init(txn, ctx, set);
    txn->version.uncopied_n = uncopied_n;
    version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    if (version_read_once(false, set->region, set_head_at(set->region, set->head_unit),
                          &txn->version) != READ_COMPLETE)
        return false;
    WEIR_INVARIANT(txn_is_consistent(txn));
    return !(version_flags(&txn->version) & CONTENT_CLOSED);
}

/* Returns when the next waiter, `record`, is ready. If that is now and nothing is reserved, takes
 * its amounts, copied to ctx->granted_amounts. */
static inline uint64_t txn_try_take(const struct txn *txn, uint32_t record)
{
    const struct limits *limits = &txn->set->limits;
    uint64_t *amounts = txn->ctx->granted_amounts;
    const struct limit *limiting;

    if (txn->at.now_ns != txn->now_ns)
        return txn_next_ready(txn);
    txn_amounts(txn, record, amounts);
    return limits_try_take(limits, txn_states(txn), &txn->at, amounts, &limiting);
}

/* Removes a waiter that is granted: of a set in which that is not always the head. A function of
 * its own, so that the common case needs few registers. */
void txn_remove_granted(struct txn *txn, uint32_t record);

/* Says in a record of an earlier definition that this set grants to it. Returns whether that has to
 * be said. */
static inline bool txn_adopt(struct txn *txn, uint32_t record)
{
    const struct acq_record *r = record_at(txn->set->region, record);
    uint64_t owner;

    if (!set_is_foreign(txn->set, r))
        return false;
    owner = record_load(&r->owner);
    if (owner == txn->set->number) /* of a key set, its owner's */
        return false;
    version_defer_write(&txn->version, record, RECORD_FIELD_OWNER, owner, txn->set->number);
    return true;
}

/* Makes a waiter HELD with the version. */
WEIR_ALWAYS_INLINE void txn_make_held(struct txn *txn, uint32_t record, const struct acq_record *r,
                                      uint64_t granted_ns)
{
    uint64_t word = record_load(&r->word), since = record_load(&r->enqueued_ns);
    uint64_t held = record_next_word(word, RECORD_HELD);

    WEIR_INVARIANT(!txn->granted_record && txn->notifications_n < 2);
    /* In this order: a thread that sees the record HELD finds the time of the grant. */
    version_defer_write(&txn->version, record, RECORD_FIELD_GRANTED_NS, record_load(&r->granted_ns),
                        granted_ns);
    version_defer_write(&txn->version, record, RECORD_FIELD_WORD, word, held);
    txn->granted_record = record;
    txn->waited_ns = txn->at.now_ns > since ? txn->at.now_ns - since : 0;
    txn->notifications[txn->notifications_n++] = (struct notification){record, held};
}

/* Grants to the next waiter if it is ready: with four deferred writes from the middle of the wait
 * queue, where it was adopted before. `is_head`: it is known to be the head. Returns when it is, or
 * was, ready. */
static inline uint64_t txn_grant_next(struct txn *txn, uint32_t record, bool is_head)
{
    const struct acq_record *r = record_at(txn->set->region, record);
    uint64_t ready = txn_try_take(txn, record), granted_ns = txn->at.now_ns;

    if (!txn_is_ready(txn, ready))
        return ready;
    if (txn->set->limits.has_shadow)
        granted_ns = shadow_take_waiter(txn, record);
    if (is_head)
        waitq_dequeue_to(&txn->version, record_link_target(record_load(&r->next)));
    else
        txn_remove_granted(txn, record);
    txn_adopt(txn, record);
    txn_make_held(txn, record, r, granted_ns);
    return ready;
}

/* Completes the content before the commit. */
WEIR_ALWAYS_INLINE void txn_finalize(struct txn *txn)
{
    const weir_set *set = txn->set;
    uint32_t n = set_content_min(set);
    uint32_t flags = version_flags(&txn->version) & ~(uint32_t)CONTENT_JOIN_PENDING;

    WEIR_INVARIANT(txn->at.now_ns >= txn->version.content[CONTENT_LAST_NS]);
    WEIR_INVARIANT(txn->at.now_ns >= txn->now_ns);
    if (!waitq_length(&txn->version))
        flags &= ~(uint32_t)CONTENT_FORECAST;
    if (flags & CONTENT_FORECAST)
        n += set_forecast_words(set);
    WEIR_INVARIANT(n <= txn->version.content_capacity);
    version_set_flags(&txn->version, flags);
    txn->version.content[CONTENT_LAST_NS] = txn->at.now_ns;
    txn->version.content_n = n;
    txn->version.will_notify = set_is_shared(set) && txn->notifications_n;
}

/* Commits a version of a private set, inlined; txn_finish() comes next. */
WEIR_ALWAYS_INLINE bool txn_commit_private(struct txn *txn)
{
    const weir_set *set = txn->set;

    txn_finalize(txn);
    return version_commit_impl(false, set->region, thread_ctx_for_set(txn->ctx, set->number)->unit,
                               set->head_unit, &txn->version);
}

/* Counts what a grant to a waiter is for limits in shadow and for its class. */
void txn_count_apart(const struct txn *txn);

static inline void txn_count_grant(const struct txn *txn)
{
    counters_add_grant(thread_ctx_counters(txn->ctx, txn->set->number), txn->ctx->granted_amounts,
                       txn->set->limits.n, false);
    if (txn->set->limits.has_shadow || txn->set->limits.has_classes)
        txn_count_apart(txn);
}

/* Counts a waiter that can never be granted. */
void txn_count_impossible(const struct txn *txn);

/* Counts a grant before its notification. The length of the wait is counted after. */
static inline void txn_finish(const struct txn *txn)
{
    WEIR_INVARIANT(txn->notifications_n <= 2);
    if (txn->granted_record)
        txn_count_grant(txn);
    if (txn->ends_impossible)
        txn_count_impossible(txn);
    for (uint32_t i = 0; i < txn->notifications_n; i++) {
        notify_waiter(txn->set, txn->notifications[i].record, txn->notifications[i].word);
        SCHED_POINT();
    }
    if (txn->version.will_notify)
        version_set_notified(txn->set->region, txn->set->head_unit, &txn->version);
    if (txn->recheck_ns != WEIR_FOREVER) {
        notify_recheck_at(txn->set, txn->recheck.record, txn->recheck.word, txn->recheck_ns);
        if (txn->set->limits.reads_wall)
            wall_watch_confirm(txn->set, txn->at.wall_offset_ns);
    }
    if (txn->granted_record)
        counters_add_wait(thread_ctx_counters(txn->ctx, txn->set->number), txn->waited_ns);
}

#endif

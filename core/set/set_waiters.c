/* SPDX-License-Identifier: MIT */
/* Reads a set for observers, grants to waiters, polls the head for a blocked thread, and cancels
 * waits. */
#include "base/backoff.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/set.h"

#include "set/instance_base.h"
#include "set/txn_internal.h"

uint64_t set_record_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    if (set_is_shared(set) &&
        (participant_is_broken(set->participant) || (word & 0xff) >= RECORD_BROKEN))
        return record_next_word(word, RECORD_BROKEN);
    return word;
}

void set_snapshot(struct thread_ctx *ctx, weir_set *set, struct set_view *ret)
{
    struct txn txn;

    txn_begin(&txn, ctx, set);
    ret->content = txn.version.content;
    ret->last_ns = txn.version.content[CONTENT_LAST_NS];
    ret->head = waitq_head(&txn.version);
    ret->length = waitq_length(&txn.version);
}

/* Publishes one version per grant. With nothing to publish, the head may still need a recheck. */
void set_grant_waiters(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;
    unsigned turn = 0;

    for (;;) {
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set))
            return;
        txn_grant_waiters(&txn, HEAD_WATCH_NONE);
        if (!txn.version.writes_n)
            break;
        if (!txn_commit(&txn))
            spin_backoff(&turn);
        else if (!txn.grant_again)
            return;
    }
    txn_finish(&txn);
}

uint64_t set_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    struct txn txn;
    unsigned turn = 0;

    WEIR_INVARIANT(record && thread_ctx_is_usable(ctx) && thread_ctx_is_ready(ctx, set));
    for (;;) {
        txn_begin(&txn, ctx, set);
        if (waitq_head(&txn.version) != record || set_is_broken(set))
            return WEIR_FOREVER;
        txn_grant_waiters(&txn, HEAD_WATCH_BY_CALLER);
        if (!txn.granted_record)
            return txn.head_ready_ns;
        if (!txn_commit(&txn)) {
            spin_backoff(&turn);
            continue;
        }
        if (txn.grant_again)
            set_grant_waiters(ctx, set);
        return 0;
    }
}

static void set_count_cancel(struct thread_ctx *ctx, weir_set *set, enum record_state state)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    if (state == RECORD_TIMED_OUT)
        counter_add(&counters->timed_out, 1);
    else if (state == RECORD_REFUSED)
        counter_add(&counters->refused_max_wait, 1);
    else
        counter_add(&counters->canceled, 1);
}

bool set_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                     enum record_state state)
{
    struct txn txn;
    unsigned turn = 0;

    WEIR_INVARIANT(record && state > RECORD_HELD && state < RECORD_QUEUE_FULL);
    for (;; spin_backoff(&turn)) {
        uint64_t word;
        bool head;

        txn_begin(&txn, ctx, set);
        word = set_record_word(set, record);
        if (record_state(word) != RECORD_WAITING || (expected && word != expected))
            return false;
        if (!txn_has_waiter(&txn, record))
            continue;
        head = waitq_head(&txn.version) == record;
        waitq_remove(set->region, &txn.version, record);
        version_defer_state(&txn.version, record, word, state, false);
        forecast_invalidate(&txn);
        if (head)
            txn_grant_waiters(&txn, HEAD_WATCH_NONE);
        if (txn_commit(&txn))
            break;
    }
    set_count_cancel(ctx, set, state);
    if (txn.grant_again)
        set_grant_waiters(ctx, set);
    return true;
}

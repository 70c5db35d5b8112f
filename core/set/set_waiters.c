/* SPDX-License-Identifier: MIT */
/* Reads a set for observers, grants to waiters, polls the head for a blocked thread, cancels waits,
 * and settles waiters for their threads. */
#include "base/backoff.h"
#include "base/compiler.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/class_count.h"
#include "set/set.h"

#include "set/hooks.h"
#include "set/instance_base.h"
#include "set/txn_internal.h"
#include <errno.h>

uint64_t set_check_word(const weir_set *set, uint64_t word)
{
    bool is_stored = !participant_is_broken(set->participant) && record_is_stored_shared(word);

    return is_stored ? word : record_next_word(word, RECORD_BROKEN);
}

/* Returns the state of a record that was shut down, or that is damaged: not its word's. */
WEIR_NOINLINE enum record_state set_ended_record_state(const weir_set *set, uint64_t word)
{
    if (!word)
        participant_mark_broken(set->participant);
    else if (!set_is_faulty(set_newest(set_definition(set))))
        return record_state(word);
    return RECORD_BROKEN;
}

enum record_state set_used_record_state(const weir_set *set, uint32_t record)
{
    uint64_t word = set_record_word(set, record);

    WEIR_INVARIANT(word || set_is_shared(set));
    if (!word || record_state(word) == RECORD_SHUT_DOWN)
        return set_ended_record_state(set, word);
    return record_state(word);
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

struct weir_instant set_view_instant(const weir_set *set, const struct set_view *view)
{
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.clock_needs);

    if (at.now_ns < view->last_ns)
        at.now_ns = view->last_ns;
    return at;
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
        if (version_flags(&txn.version) & CONTENT_MOVED) {
            moved_grant_waiters(ctx, set);
            return;
        }
        txn_grant_waiters(&txn, HEAD_WATCH_NONE);
        if (set_is_faulty(set)) {
            set_end_faulty(ctx, set);
            return;
        }
        if (!txn.version.writes_n)
            break;
        if (!txn_commit(&txn))
            spin_backoff(&turn);
        else if (!txn.grant_again)
            return;
    }
    txn_finish(&txn);
}

/* Returns whether a blocked waiter has to keep the time: it is the next one to be granted. */
static bool txn_is_next(const struct txn *txn, uint32_t record)
{
    uint64_t ready;

    if (!txn->set->reorders)
        return waitq_head(&txn->version) == record;
    return txn_next(txn, &ready) == record;
}

uint64_t set_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    struct txn txn;
    unsigned turn = 0;

    WEIR_INVARIANT(record && thread_ctx_is_usable(ctx) && thread_ctx_is_ready(ctx, set));
    for (;;) {
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set))
            return WEIR_FOREVER;
        if (version_flags(&txn.version) & CONTENT_MOVED)
            return moved_poll_head(ctx, set, record);
        if (!txn_is_next(&txn, record)) {
            if (set->reorders) /* it was; the one that is now may not know */
                set_grant_waiters(ctx, set);
            return WEIR_FOREVER;
        }
        txn_grant_waiters(&txn, HEAD_WATCH_BY_CALLER);
        if (set_is_faulty(set)) {
            set_end_faulty(ctx, set);
            return 0;
        }
        if (!txn.granted_record && !txn.grant_again)
            return set_to_instance_ns(set, txn.next_ready_ns);
        if (!txn_commit(&txn)) {
            spin_backoff(&turn);
            continue;
        }
        if (txn.grant_again)
            set_grant_waiters(ctx, set);
        return 0;
    }
}

void set_count_cancel(struct thread_ctx *ctx, const weir_set *set, enum record_state state)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    if (state == RECORD_TIMED_OUT)
        counter_add(&counters->timed_out, 1);
    else if (state == RECORD_REFUSED)
        counter_add(&counters->refused_max_wait, 1);
    else
        counter_add(&counters->canceled, 1);
}

/* Returns true if the wait of a record ends without a decision on another one, unless it is the
 * head. */
static inline bool set_may_cancel_behind(const weir_set *set)
{
    return !set->is_robust && !set->reorders && !set_is_key_set(set);
}

/* Ends the wait of a record behind the head. Neither the clock nor the states are read. False:
 * nothing has happened, and it is the head, was decided, or needs the slow path. */
static bool set_cancel_behind(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                              uint64_t expected, enum record_state state)
{
    struct txn txn;
    uint64_t word;

    if (!txn_read_private(&txn, ctx, set, set->limits.state_words))
        return false;
    word = record_load(&set_record(set, record)->word);
    if (record_state(word) != RECORD_WAITING || (expected && word != expected) ||
        waitq_head(&txn.version) == record)
        return false;
    txn.at.now_ns = txn.now_ns = txn.version.content[CONTENT_LAST_NS];
    waitq_remove(set->region, &txn.version, record);
    version_defer_state(&txn.version, record, word, state, false);
    forecast_invalidate(&txn);
    return txn_commit_private(&txn);
}

bool set_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                     enum record_state state)
{
    struct txn txn;
    unsigned turn = 0;

    WEIR_INVARIANT(record && state > RECORD_HELD && state < RECORD_QUEUE_FULL);
    if (set_may_cancel_behind(set) && set_cancel_behind(ctx, set, record, expected, state)) {
        set_count_cancel(ctx, set, state);
        return true;
    }
    for (;; spin_backoff(&turn)) {
        uint64_t word;
        bool head;

        txn_begin(&txn, ctx, set);
        word = set_record_word(set, record);
        if (record_state(word) != RECORD_WAITING || (expected && word != expected))
            return false;
        if (version_flags(&txn.version) & CONTENT_MOVED)
            return moved_cancel_wait(ctx, set, record, expected, state);
        if (!txn_has_waiter(&txn, record))
            continue;
        head = waitq_head(&txn.version) == record;
        txn_remove_waiter(&txn, record);
        version_defer_state(&txn.version, record, word, state, false);
        forecast_invalidate(&txn);
        if (head || set->reorders)
            txn_grant_waiters(&txn, HEAD_WATCH_NONE);
        if (txn_commit(&txn))
            break;
    }
    set_count_cancel(ctx, set, state);
    if (set->limits.has_classes) /* with classes, no other waiter has left by this version */
        class_count(ctx, set, txn.left_class,
                    state == RECORD_TIMED_OUT ? -ETIMEDOUT
                    : state == RECORD_REFUSED ? -EAGAIN
                                              : -ECANCELED);
    set_end_if_faulty(ctx, set);
    if (txn.grant_again)
        set_grant_waiters(ctx, set);
    return true;
}

/* ---- for threads that do not run: they are stopped, or do not reap their queue ---- */

/* Unit of set_head.walk_tick: log2 of 16.8 ms. For every WAITERS_PER_TICK waiters a walk may take
 * place one tick later. */
#define WALK_TICK_SHIFT  24
#define WAITERS_PER_TICK (UINT32_C(1) << 14)

/* Returns how the wait of a record ends by its deadline; RECORD_WAITING: that has not passed.
 * Deadlines are of the instance's clock. */
static enum record_state set_overdue_state(const struct txn *txn, const struct acq_record *r)
{
    if (record_load(&r->deadline_ns) > set_to_instance_ns(txn->set, txn->now_ns))
        return RECORD_WAITING;
    return record_prev_flags(r) & RECORD_REFUSE_AT_DEADLINE ? RECORD_REFUSED : RECORD_TIMED_OUT;
}

/* Returns the first waiter that holds up others and is overdue; 0: none is. That is the next one,
 * or any waiter of a set that is fair per limit. */
static uint32_t txn_overdue_waiter(const struct txn *txn)
{
    uint32_t record = waitq_head(&txn->version), left = waitq_length(&txn->version);
    uint64_t ready;

    if (txn->set->classes)
        record = txn_next(txn, &ready);
    for (; record && left; left--) {
        if (set_overdue_state(txn, set_record(txn->set, record)) != RECORD_WAITING)
            return record;
        if (!txn->set->per_limit)
            return 0;
        record = waitq_next(txn->set->region, record);
    }
    return 0;
}

bool txn_is_unsettled(const struct txn *txn)
{
    uint32_t next;
    uint64_t ready;

    if (!waitq_length(&txn->version) || version_flags(&txn->version) & CONTENT_CLOSED)
        return false;
    next = txn_next(txn, &ready);
    return txn_overdue_waiter(txn) || txn_is_ready(txn, ready) ||
           txn_is_impossible(txn, next, ready);
}

/* Ends the wait of a record with the word `word` by its deadline, and notifies it. Returns whether
 * this call did so. */
static bool set_end_overdue(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                            enum record_state state)
{
    WEIR_INVARIANT(state == RECORD_TIMED_OUT || state == RECORD_REFUSED);
    if (record_state(word) != RECORD_WAITING || !set_cancel_wait(ctx, set, record, word, state))
        return false;
    notify_waiter(set, record, record_next_word(word, state));
    return true;
}

/* Settles a waiter that is overdue, or all that are ready. Returns false if there is nothing to
 * do. */
static bool set_settle_head(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;
    enum record_state state;
    uint64_t word;
    uint32_t overdue;
    bool is_unsettled;

    do {
        txn_begin(&txn, ctx, set);
        if (!waitq_length(&txn.version) || set_is_broken(set))
            return false;
        is_unsettled = txn_is_unsettled(&txn);
        overdue = txn_overdue_waiter(&txn);
        state = overdue ? set_overdue_state(&txn, set_record(set, overdue)) : RECORD_WAITING;
        word = overdue ? set_record_word(set, overdue) : 0;
    } while (!txn_is_current(&txn) && !set_is_broken(set));
    if (!is_unsettled)
        return false;
    if (state != RECORD_WAITING)
        set_end_overdue(ctx, set, overdue, word, state);
    else
        set_grant_waiters(ctx, set);
    return true;
}

/* Bounded, since a damaged segment may never be settled. */
void set_settle_heads(struct thread_ctx *ctx, weir_set *set)
{
    struct set_view view;

    set_snapshot(ctx, set, &view);
    while (view.length-- && set_settle_head(ctx, set))
        ;
}

/* Waits that are overdue, found in one version. */
enum { OVERDUE_MAX = 64 };
struct overdue_waits {
    uint32_t n;
    struct {
        uint32_t record;
        uint64_t word;
        enum record_state state;
    } items[OVERDUE_MAX];
};

/* Collects overdue waits until `ret` is full. Returns false if the set has changed meanwhile: then
 * the links may have led into the wait queue of another set. */
static bool set_find_overdue(struct thread_ctx *ctx, weir_set *set, struct overdue_waits *ret)
{
    struct txn txn;
    uint32_t record, left;

    txn_begin(&txn, ctx, set);
    record = waitq_head(&txn.version);
    /* The links of a set that has moved are those of its successor. */
    left = version_flags(&txn.version) & CONTENT_MOVED ? 0 : waitq_length(&txn.version);
    for (ret->n = 0; record && left && ret->n < OVERDUE_MAX; left--) {
        const struct acq_record *r = set_record(set, record);
        enum record_state state = set_overdue_state(&txn, r);

        ret->items[ret->n].record = record;
        ret->items[ret->n].word = set_record_word(set, record);
        ret->items[ret->n].state = state;
        ret->n += state != RECORD_WAITING;
        record = waitq_next(set->region, record);
    }
    return txn_is_current(&txn);
}

/* Returns whether it is time for a walk over `length` waiters. Walks take a small part of the time.
 * By an injected clock that may pass fast, but the timers know. Relaxed: the tick is a hint. */
static bool set_may_walk(const weir_set *set, uint32_t length, uint64_t now_ns)
{
    struct set_head *head = set_head_at(set->region, set->head_unit);
    uint16_t tick = (uint16_t)(now_ns >> WALK_TICK_SHIFT);
    uint16_t before = atomic_load_explicit(&head->walk_tick, memory_order_relaxed);

    if ((uint16_t)(tick - before) <= length / WAITERS_PER_TICK)
        return false;
    atomic_store_explicit(&head->walk_tick, tick, memory_order_relaxed);
    return !set->w->clock.injected.now_ns || set_is_shared(set) ||
           timer_next_of_all(set->w) <= set_to_instance_ns(set, now_ns);
}

bool set_end_overdue_waits(struct thread_ctx *ctx, weir_set *set, uint32_t length, uint64_t now_ns)
{
    struct overdue_waits overdue;
    uint32_t ended_n = 0;

    if (!set_may_walk(set, length, now_ns))
        return false;
    do {
        if (!set_find_overdue(ctx, set, &overdue))
            break;
        for (uint32_t i = 0; i < overdue.n; i++)
            set_end_overdue(ctx, set, overdue.items[i].record, overdue.items[i].word,
                            overdue.items[i].state);
        ended_n += overdue.n;
    } while (overdue.n == OVERDUE_MAX && ended_n < length);
    return true;
}

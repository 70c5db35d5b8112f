/* SPDX-License-Identifier: MIT */
/* Transactions: read and check a version, commit it, grant to the head and notify. */
#include "base/compiler.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/class_count.h"
#include "set/class_order.h"
#include "set/txn_internal.h"
#include "shm/segment.h"

#include "set/hooks.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

/* Returns true if the wait queue of a shared set is well-formed at its ends. */
static bool txn_is_queue_valid(const struct txn *txn)
{
    const struct segment *segment = txn->set->participant->segment;
    uint32_t head = waitq_head(&txn->version), tail = waitq_tail(&txn->version);
    uint32_t length = waitq_length(&txn->version);
    uint64_t units = (uint64_t)segment->layout.sizes.runs_n * SEGMENT_RUN_UNITS;

    if (!length)
        return !head && !tail;
    if (length > units / segment->layout.sizes.record_units)
        return false; /* walks over it have to end */
    return segment_has_record(segment, head) && segment_has_record(segment, tail) &&
           (head == tail) == (length == 1);
}

/* Returns true for the empty version of a key set that was never bound. */
static bool txn_is_unused(const struct txn *txn)
{
    return set_is_key_set(txn->set) && !txn->version.content_n && !txn->version.is_mismatch;
}

/* Returns true if the content has all words by definition `by`, and no more than fit. */
static bool txn_is_complete(const struct txn *txn, const weir_set *by)
{
    uint32_t n = set_content_min(by);

    if (version_flags(&txn->version) & CONTENT_FORECAST)
        n += set_forecast_words(by);
    return txn->version.content_n >= n && n <= set_content_max(by);
}

/* Returns true if the states of the limits and the classes can be by definition `by`, and those of
 * the forecast if there is one. */
static bool txn_are_states_valid(const struct txn *txn, const weir_set *by)
{
    const struct limits *limits = &by->limits;

    if (limits_check(limits, txn_states(txn)) != 0)
        return false;
    if (txn->set->classes && !class_order_is_valid(txn->set, &txn->version))
        return false;
    if (!(version_flags(&txn->version) & CONTENT_FORECAST))
        return true;
    return limits_check(limits, txn_states(txn) + limits->state_words + 1) == 0;
}

/* Returns true if the content is valid, so that all code that reads it terminates. `by`: the
 * definition that it is of, or NULL: its states are not to be read. */
static bool txn_is_valid(const struct txn *txn, const weir_set *by)
{
    if (txn_is_unused(txn))
        return true;
    /* No process shuts a set down for others. Of a key set the template moves. */
    if (version_flags(&txn->version) & CONTENT_SHUT_DOWN)
        return false;
    if (version_flags(&txn->version) & CONTENT_CLOSED &&
        (set_is_key_set(txn->set) || version_flags(&txn->version) & CONTENT_UNOPENED))
        return false;
    if (version_flags(&txn->version) > CONTENT_FLAGS_ALL)
        return false;
    if (txn->version.is_mismatch || txn->version.content_n < CONTENT_STATES)
        return false;
    if (txn->version.content[CONTENT_LAST_NS] > CLOCK_MAX_NS || !txn_is_queue_valid(txn))
        return false;
    return !by || (txn_is_complete(txn, by) && txn_are_states_valid(txn, by));
}

/* Returns true if the deferred write ended a wait; some versions to be notified have none. */
static bool deferred_write_ends_wait(const struct deferred_write *write)
{
    enum record_state state = record_state(write->desired);

    return (write->target & 7) == RECORD_FIELD_WORD && state != RECORD_FREE &&
           state != RECORD_WAITING;
}

void notify_shared_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    uint32_t waiter = participant_waiter(set->participant, record);

    if (waiter)
        timer_notify(set->w, waiter, word);
    else
        participant_notify_owner(set->participant, record);
}

void notify_recheck_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns)
{
    uint32_t waiter = set_is_shared(set) ? participant_waiter(set->participant, record) : record;

    WEIR_INVARIANT(at_ns != WEIR_FOREVER);
    if (waiter)
        timer_arm_recheck(set->w, waiter, word, set_to_instance_ns(set, at_ns));
    else
        participant_notify_owner(set->participant, record);
}

/* Repeats the notifications of a version: its publisher may have died or been stopped before it
 * sent them. Notifying a waiter twice is harmless. A version of an earlier definition is about to
 * be replaced by one that is notified to the next waiter. */
static void txn_notify_again(const struct txn *txn, bool is_earlier)
{
    struct deferred_write writes[DEFERRED_WRITES_MAX];
    weir_set *set = txn->set;
    uint32_t n = version_deferred_writes(set->region, set->head_unit, &txn->version, writes);
    uint64_t ready;
    uint32_t next;

    for (uint32_t i = 0; i < n; i++)
        if (deferred_write_ends_wait(&writes[i]))
            notify_waiter(set, writes[i].target >> 3, writes[i].desired);
    if (is_earlier)
        return;
    next = txn_next(txn, &ready);
    if (next)
        notify_recheck_at(set, next, set_record_word(set, next), txn->now_ns);
    version_set_notified(set->region, set->head_unit, &txn->version);
}

/* Checks what other processes may have written, or left undone. `by`: the definition that the
 * version is of; NULL: a later one. */
static void txn_check_by(struct txn *txn, const weir_set *by, bool is_outdated)
{
    struct participant *participant = txn->set->participant;

    if (!participant_has_slot(participant) || !txn_is_valid(txn, by) || (!by && !is_outdated))
        participant_mark_broken(participant);
    if (participant_is_broken(participant)) {
        memset(txn->version.content, 0, set_content_max(txn->set) * sizeof(uint64_t));
        participant_report_broken(participant);
    } else if (txn->version.needs_notify && !is_outdated) {
        txn_notify_again(txn, by != set_definition(txn->set));
    }
}

/* A key set is read as one that has moved once its template has: after the clock was read, so that
 * nothing is granted by an earlier definition as of a later instant than that of the change. Its
 * states may be of any definition. */
static void txn_check_key_set(struct txn *txn)
{
    const weir_set *set = txn->set;
    bool is_outdated = set_is_moved(set_definition(set));
    const weir_set *by = txn_is_unused(txn) ? set_definition(set)
                                            : key_set_version_definition(set, txn->version.content);

    txn_check_by(txn, by, is_outdated);
    if (!is_outdated || set_is_broken(set))
        return;
    memset(txn_states(txn), 0, set->limits.state_words * sizeof(uint64_t));
    version_set_flags(&txn->version,
                      (version_flags(&txn->version) & ~(uint32_t)CONTENT_FORECAST) | CONTENT_MOVED);
}

static void txn_check_shared(struct txn *txn)
{
    if (set_is_key_set(txn->set))
        txn_check_key_set(txn);
    else
        txn_check_by(txn, txn->set, false);
}

void txn_begin(struct txn *txn, struct thread_ctx *ctx, weir_set *set)
{
    do {
        txn_init(txn, ctx, set);
        version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
        version_read(set->region, set->head_unit, &txn->version);
        while (set->origin && txn->version.state_word == set->origin->unopened_word &&
               !set_is_broken(set)) {
            set_open(ctx, set);
            txn_init(txn, ctx, set);
            version_read(set->region, set->head_unit, &txn->version);
        }
        if (set_is_key_set(set) && txn_is_unused(txn))
            memset(txn->version.content, 0, set_content_max(set) * sizeof(uint64_t));
        txn_read_clock(txn);
        if (set_is_shared(set))
            txn_check_shared(txn);
        WEIR_INVARIANT(txn_is_consistent(txn));
    } while (set_is_shared(set) && set_is_key_set(set) && key_set_renew(txn));
}

bool txn_is_current(const struct txn *txn)
{
    return version_is_current(txn->set->region, txn->set->head_unit, &txn->version);
}

bool txn_is_queue_current(const struct txn *txn)
{
    return txn_is_current(txn) && !(version_flags(&txn->version) & CONTENT_MOVED);
}

bool txn_has_waiter(const struct txn *txn, uint32_t record)
{
    const weir_set *set = txn->set;
    bool is_inflated = version_is_inflated(&txn->version); /* inline: no waiters */

    if (is_inflated && (!set_is_shared(set) || waitq_contains(set->region, &txn->version, record)))
        return true;
    if (set_is_shared(set) && txn_is_queue_current(txn))
        participant_mark_broken(set->participant);
    return false;
}

bool txn_commit(struct txn *txn)
{
    const weir_set *set = txn->set;

    txn_finalize(txn);
    if (!version_commit(set->region, thread_ctx_for_set(txn->ctx, set->number)->unit,
                        set->head_unit, &txn->version))
        return false;
    WEIR_INVARIANT(set->is_robust || waitq_is_consistent(&txn->version));
    SCHED_POINT();
    txn_finish(txn);
    return true;
}

/* Arranges a check of the next waiter at `ready`. */
static void txn_watch_next(struct txn *txn, uint32_t record, uint64_t ready)
{
    struct acq_record *r = record_at(txn->set->region, record);
    uint64_t word = record_load(&r->word);
    bool is_blocked = wait_target_kind(record_wait_target(r)) == WAIT_TARGET_FUTEX;
    bool is_local = !set_is_shared(txn->set) || participant_waiter(txn->set->participant, record);

    WEIR_INVARIANT(record && txn->notifications_n < 2);
    if (!is_blocked && is_local) {
        if (!set_is_shared(txn->set)) { /* the one behind it has waited for long, too */
            r = record_at(txn->set->region, waitq_next(txn->set->region, record));
            prefetch_write(r);
            prefetch_write(r->amounts);
        }
        txn->recheck_ns = ready;
        txn->recheck = (struct notification){record, word};
        return;
    }
    if (is_blocked) {
        /* It has its own timeout. Its word changes, so it misses no notification. */
        uint64_t next = record_next_word(word, RECORD_WAITING);

        version_defer_write(&txn->version, record, RECORD_FIELD_WORD, word, next);
        word = next;
    }
    /* Of a waiter in another process, that process has the timer. */
    txn->notifications[txn->notifications_n++] = (struct notification){record, word};
}

/* Notifies the new head of a shared set, even if it waits for a release: its stall checks speed
 * up. */
static void txn_notify_head(struct txn *txn)
{
    uint32_t head = waitq_head(&txn->version);

    if (head && set_is_shared(txn->set))
        txn_watch_next(txn, head, txn->now_ns + STALL_CHECK_NS);
}

uint64_t txn_next_ready(const struct txn *txn)
{
    uint64_t ready;

    txn_next(txn, &ready);
    return ready;
}

/* Returns true if the former ready time of the head matters: not where only releases decide. */
static bool set_depends_on_time(const weir_set *set)
{
    return set->limits.has_waits || set->limits.has_opaque_resources || set_is_shared(set);
}

void txn_save_states(const struct txn *txn)
{
    if (set_depends_on_time(txn->set))
        for (uint32_t i = 0; i < txn->set->limits.state_words; i++)
            txn->ctx->saved_states[i] = txn_states(txn)[i];
}

/* Returns true if the next waiter needs no other check than before this version. Where time does
 * not matter, a ready time only says that the clock is behind, and no thread waits for it. */
static bool txn_is_next_watched(const struct txn *txn, uint32_t record, uint64_t ready)
{
    uint64_t before;

    if (!set_depends_on_time(txn->set))
        return ready >= WEIR_BLOCKED;
    return txn_next_by(txn, txn->ctx->saved_states, &before) == record && ready == before;
}

/* Returns true if the record waits; a damaged segment may say otherwise. */
static bool txn_is_waiting(const struct txn *txn, uint32_t record)
{
    if (!set_is_shared(txn->set))
        return true;
    if (record_state(set_record_word(txn->set, record)) == RECORD_WAITING)
        return !txn->set->reorders || txn_has_waiter(txn, record);
    if (txn_is_queue_current(txn))
        participant_mark_broken(txn->set->participant);
    return false;
}

void txn_remove_waiter(struct txn *txn, uint32_t record)
{
    if (txn->set->classes) {
        /* Before the commit: afterwards the record may be that of another request. */
        txn->left_class = record_wait_class(set_record(txn->set, record));
        class_order_remove(txn->set, &txn->version, record);
    }
    waitq_remove(txn->set->region, &txn->version, record);
}

void txn_count_apart(const struct txn *txn)
{
    if (txn->set->limits.has_shadow)
        shadow_count(txn);
    if (txn->set->limits.has_classes)
        class_count_waited(txn->ctx, txn->set, txn->left_class, txn->waited_ns);
}

void txn_count_impossible(const struct txn *txn)
{
    counter_add(&thread_ctx_counters(txn->ctx, txn->set->number)->refused_impossible, 1);
    if (txn->set->limits.has_classes)
        class_count(txn->ctx, txn->set, txn->left_class, -ERANGE);
}

void txn_remove_granted(struct txn *txn, uint32_t record)
{
    if (txn->set->classes)
        class_order_charge_waiter(txn->set, &txn->version, record, txn->ctx->granted_amounts);
    txn_remove_waiter(txn, record);
}

/* Notes an algorithm by which the next waiter would wait for ever, asked again and again. Amounts
 * that were read while the set changed prove nothing. */
static void txn_check_receding(const struct txn *txn, uint32_t record, uint64_t ready)
{
    const struct limits *limits = &txn->set->limits;
    const struct limit *receding;
    uint64_t amounts[WEIR_LIMITS_MAX];

    txn_amounts(txn, record, amounts);
    receding = limits_find_receding(limits, txn_states(txn), &txn->at, amounts, ready);
    if (receding && txn_is_current(txn))
        limits_note_fault(limits, (uint32_t)(receding - limits->items));
}

/* Makes sure that the next waiter is checked when it is ready. */
static void txn_arrange_check(struct txn *txn, enum head_watch watch, uint32_t record,
                              uint64_t ready)
{
    if (ready < WEIR_BLOCKED)
        txn->next_ready_ns = ready;
    if (watch == HEAD_WATCH_AS_READ && txn_is_next_watched(txn, record, ready))
        return;
    if (ready < WEIR_BLOCKED)
        txn_check_receding(txn, record, ready);
    if (watch == HEAD_WATCH_BY_CALLER)
        return;
    if (ready < WEIR_BLOCKED)
        txn_watch_next(txn, record, ready);
    else
        txn_notify_head(txn);
}

/* Ends the wait of a record that can never be granted any more. */
static void txn_end_impossible(struct txn *txn, uint32_t record)
{
    uint64_t word = record_load(&record_at(txn->set->region, record)->word);
    uint64_t next = record_next_word(word, RECORD_IMPOSSIBLE);

    WEIR_INVARIANT(txn->notifications_n < 2);
    txn_remove_waiter(txn, record);
    version_defer_write(&txn->version, record, RECORD_FIELD_WORD, word, next);
    txn->notifications[txn->notifications_n++] = (struct notification){record, next};
    forecast_invalidate(txn);
    txn->ends_impossible = txn->grant_again = true;
}

/* A grant out of the middle of the wait queue leaves no room for other deferred writes: it is a
 * version of its own, and so is what comes after it. */
void txn_grant_waiters(struct txn *txn, enum head_watch watch)
{
    uint32_t next = waitq_head(&txn->version);
    uint64_t ready;

    if (!next || version_flags(&txn->version) & CONTENT_CLOSED)
        return;
    WEIR_INVARIANT(!txn->granted_record && !txn->grant_again);
    txn->grant_again = txn->set->reorders && txn->version.writes_n;
    if (txn->set->reorders)
        next = txn_next(txn, &ready);
    if (txn->grant_again || !next || !txn_is_waiting(txn, next))
        return;
    if (txn->set->reorders && txn_adopt(txn, next)) {
        txn->grant_again = true;
        return;
    }
    /* The grant to a record of an earlier definition is three writes, and a look at the next one
     * may be the fourth: it gets a version of its own. */
    if (txn->version.writes_n && set_is_foreign(txn->set, set_record(txn->set, next))) {
        txn->grant_again = true;
        return;
    }
    ready = txn_grant_next(txn, next, !txn->set->reorders);
    if (!txn->granted_record && txn_is_impossible(txn, next, ready)) {
        if (txn->version.writes_n) /* its end is three writes */
            txn->grant_again = true;
        else
            txn_end_impossible(txn, next);
        return;
    }
    if (!txn->granted_record) {
        txn_arrange_check(txn, watch, next, ready);
        return;
    }
    if (txn->set->limits.has_anomalies)
        forecast_invalidate(txn); /* the grant may be later than the forecast */
    next = txn_next(txn, &ready);
    txn->grant_again =
        txn_is_ready(txn, ready) || txn->set->reorders || txn_is_impossible(txn, next, ready);
    if (!txn->grant_again)
        txn_arrange_check(txn, HEAD_WATCH_NONE, waitq_head(&txn->version), ready);
}

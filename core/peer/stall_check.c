/* SPDX-License-Identifier: MIT */
/* Checks a shared set on behalf of waiters, in case the head's process is stopped. */
#include "peer/peer.h"

#include "base/invariant.h"
#include "set/hooks.h"
#include "set/txn.h"
#include "set/waiter.h"
#include "shm/participant.h"

/* Returns true if the wait of the head should have ended one period ago, and how. */
static bool stall_check_head_overdue(const struct txn *txn, const struct acq_record *r,
                                     enum record_state *ret_state)
{
    uint64_t deadline_ns = record_load(&r->deadline_ns);

    WEIR_INVARIANT(txn->set->participant);
    *ret_state =
        record_prev_flags(r) & RECORD_REFUSE_AT_DEADLINE ? RECORD_REFUSED : RECORD_TIMED_OUT;
    return deadline_ns < txn->now_ns && txn->now_ns - deadline_ns >= STALL_CHECK_NS;
}

/* Returns true if the waiter is queued, or decided already; marks the set broken if the head can
 * never be granted. Once decided, the record may wait again, for another key of a keyed set. */
static bool stall_check_wait_is_sound(const struct txn *txn, uint32_t record, uint64_t word,
                                      uint64_t ready)
{
    uint64_t now = set_record_word(txn->set, record);

    if (now != word)
        return true;
    if (ready == WEIR_NEVER && txn_is_current(txn))
        participant_mark_broken(txn->set->participant);
    return txn_has_waiter(txn, record);
}

void stall_check_run(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word)
{
    struct txn txn;
    enum record_state state;
    uint32_t head;
    uint64_t head_word, ready;

    WEIR_INVARIANT(set_is_shared(set) && record);
    WEIR_INVARIANT(record_state(word) == RECORD_WAITING);
    txn_begin(&txn, ctx, set);
    if (set_is_broken(set))
        return;
    ready = txn_head_ready(&txn);
    head = waitq_head(&txn.version);
    if (!stall_check_wait_is_sound(&txn, record, word, ready) || !head)
        return;
    head_word = set_record_word(set, head);
    if (txn_is_ready(&txn, ready) || participant_waiter(set->participant, head)) {
        set_grant_waiters(ctx, set);
        return;
    }
    if (!stall_check_head_overdue(&txn, record_at(set->region, head), &state) ||
        !txn_is_current(&txn))
        return;
    if (set_cancel_wait(ctx, set, head, head_word, state))
        notify_waiter(set, head, record_next_word(head_word, state));
}

uint64_t stall_check_deadline(struct thread_ctx *ctx, weir_set *set, uint32_t ticket,
                              uint64_t now_ns)
{
    struct set_view view;
    uint32_t place;

    set_snapshot(ctx, set, &view);
    place = (ticket - waitq_departures_in(view.content[CONTENT_COUNT])) & WAITQ_COUNT_MASK;
    /* Departures from behind the waiter count, too, so the difference may be below 0. */
    if (place > WAITQ_COUNT_MASK / 2)
        place = 0;
    if (place > view.length)
        place = view.length; /* only in a damaged segment */
    return now_ns + (place + 1) * STALL_CHECK_NS;
}

void stall_check_arm(struct thread_ctx *ctx, weir_set *set, uint32_t waiter, uint64_t word)
{
    uint32_t ticket = (uint32_t)record_load(&waiter_at(set->w, waiter)->granted_ns);

    WEIR_INVARIANT(waiter_is_proxy(waiter_at(set->w, waiter)));
    if (record_state(word) == RECORD_WAITING)
        timer_arm_recheck(set->w, waiter, word,
                          stall_check_deadline(ctx, set, ticket, clock_now_ns(&set->w->clock)));
}

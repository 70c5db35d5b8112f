/* SPDX-License-Identifier: MIT */
/* Checks a shared set on behalf of waiters, in case processes of waiters ahead are stopped. */
#include "peer/peer.h"

#include "base/invariant.h"
#include "limit/counters.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/txn.h"
#include "set/waiter.h"
#include "shm/participant.h"

static bool stall_check_is_never_ready(const struct txn *txn, uint32_t record)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct limit *limiting;

    txn_amounts(txn, record, amounts);
    return limits_ready_at(&txn->set->limits, txn_states(txn), &txn->at, amounts, true,
                           &limiting) == WEIR_NEVER;
}

/* Returns true if the waiter is queued, or decided already; marks the set broken if it, or the next
 * one, can never be granted: in a set that is fair per limit others may be next for ever. By a
 * later definition that may be so; then their waits end. Once decided, the record may wait again,
 * for another key of a keyed set. */
static bool stall_check_wait_is_sound(const struct txn *txn, uint32_t record, uint64_t word,
                                      uint64_t next_ready)
{
    bool is_stuck = next_ready == WEIR_NEVER || stall_check_is_never_ready(txn, record);

    if (set_record_word(txn->set, record) != word)
        return true;
    if (is_stuck && !txn->set->is_later && txn_is_queue_current(txn))
        participant_mark_broken(txn->set->participant);
    return txn_has_waiter(txn, record);
}

void stall_check_run(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word)
{
    struct txn txn;
    uint64_t ready;
    uint32_t next;

    WEIR_INVARIANT(set_is_shared(set) && record);
    WEIR_INVARIANT(record_state(word) == RECORD_WAITING);
    set = set_current(set);
    txn_begin(&txn, ctx, set);
    if (set_is_broken(set) || version_flags(&txn.version) & CONTENT_MOVED)
        return;
    next = txn_next(&txn, &ready);
    if (!stall_check_wait_is_sound(&txn, record, word, ready) || !next)
        return;
    set_settle_heads(ctx, set);
    if (participant_waiter(set->participant, next))
        set_grant_waiters(ctx, set); /* it may need another check, at the time it is ready */
}

/* A walk over the first waiters, each granted as soon as possible, to the first one that no running
 * timer attends to. */
enum { STALL_CHECK_WALK_MAX = 64 };

/* Returns the earlier of `next_ns` and `at_ns`, if that is to come. */
static uint64_t stall_check_earlier(uint64_t now_ns, uint64_t at_ns, uint64_t next_ns)
{
    return at_ns > now_ns && at_ns < next_ns ? at_ns : next_ns;
}

/*
 * Returns when a waiter that no running timer attends to is ready or overdue, by the instance's
 * clock, or a time STALL_CHECK_NS ahead if that is earlier. Then this process attends to it,
 * without delay, however many there are. Behind so many others that the walk ends, it looks again
 * at the time of the last of these.
 */
static uint64_t stall_check_foresee(struct txn *txn)
{
    weir_set *set = txn->set;
    const struct limits *limits = &set->limits;
    /* A release comes first, and hands over. */
    uint64_t ready = txn_next_ready(txn);
    bool is_timed = limits->has_waits && ready < WEIR_BLOCKED && !set->reorders;
    uint32_t record = waitq_head(&txn->version), n = waitq_length(&txn->version);
    uint64_t now_ns = set_to_instance_ns(set, txn->now_ns), next_ns = now_ns + STALL_CHECK_NS;
    uint64_t amounts[WEIR_LIMITS_MAX];
    bool is_stalled = false;

    if (is_timed)
        forecast_init(txn);
    else if (ready < WEIR_BLOCKED) /* of several that are next, this process attends to the first */
        next_ns = stall_check_earlier(now_ns, set_to_instance_ns(set, ready), next_ns);
    n = n < STALL_CHECK_WALK_MAX ? n : STALL_CHECK_WALK_MAX;
    for (uint32_t i = 0; i < n && record && !is_stalled; i++) {
        is_stalled = participant_is_stalled(set->participant, record, now_ns);
        if (is_stalled)
            next_ns = stall_check_earlier(
                now_ns, record_load(&set_record(set, record)->deadline_ns), next_ns);
        txn_amounts(txn, record, amounts);
        if (is_timed)
            is_timed = forecast_extend(limits, &txn->at, forecast_words(txn), amounts);
        record = waitq_next(set->region, record);
    }
    if (is_timed && (is_stalled || n == STALL_CHECK_WALK_MAX))
        next_ns = stall_check_earlier(
            now_ns, set_to_instance_ns(set, forecast_words(txn)[FORECAST_AT_NS]), next_ns);
    return next_ns;
}

/* Links and amounts that were read while the set changed may lead to a wrong time. But then the
 * thread that changed it was running, and the next check is near. */
uint64_t stall_check_queue(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;

    WEIR_INVARIANT(set_is_shared(set));
    set = set_current(set);
    set_settle_heads(ctx, set);
    txn_begin(&txn, ctx, set);
    if (!waitq_length(&txn.version) || set_is_broken(set))
        return WEIR_FOREVER;
    if (set_end_overdue_waits(ctx, set, waitq_length(&txn.version), txn.now_ns))
        txn_begin(&txn, ctx, set);
    if (version_flags(&txn.version) & CONTENT_MOVED) /* its waiters are those of another set */
        return txn.now_ns + STALL_CHECK_NS;
    return stall_check_foresee(&txn);
}

int stall_check_set(weir_set *set, uint64_t *ret_next_ns)
{
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    const struct counters *counters = thread_ctx_counters(ctx, set->number);
    uint64_t before = counters_decided(counters), decided;

    *ret_next_ns = set->ops->check_stalls(ctx, set);
    decided = counters_decided(counters) - before;
    thread_ctx_return(ctx);
    return (int)decided;
}

uint64_t stall_check_deadline(struct thread_ctx *ctx, weir_set *set, uint32_t ticket,
                              uint64_t now_ns)
{
    struct set_view view;
    uint32_t place;

    set_snapshot(ctx, set_current(set), &view);
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

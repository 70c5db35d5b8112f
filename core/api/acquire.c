/* SPDX-License-Identifier: MIT */
/* The calls that ask: take, try, acquire, submit. See acquire.h. */
#include "api/acquire.h"

#include "api/acquire_op.h"
#include "base/mutant.h"
#include "os/os.h"
#include "peer/participant.h"
#include "peer/peer_cleanup.h"
#include "peer/stall_check.h"
#include "set/lease.h"
#include "wait/peer_events.h"
#include "wait/timer_thread.h"
#include "wait/waiter.h"
#include <errno.h>

int acquire_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    struct asking asking;
    int r = asking_begin(&asking, pool, request, PURPOSE_TAKE, retref);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < asking.set->limits.n; i++)
        if (asking.amounts[i]) {
            r = asking.set->limits.has_lease
                    ? lease_take(asking.actor, asking.set, asking.amounts[0], &asking.verdict)
                    : asking_ask(&asking, 0, ENTRY_TRY, WEIR_FOREVER);
            if (r < 0)
                asking_say(retref, asking.set, &asking.verdict);
            return r;
        }
    count(&actor_counters(asking.actor, asking.set->number)->granted, 1);
    count(&actor_counters(asking.actor, asking.set->number)->taken, 1);
    return 0;
}

int acquire_try(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    struct asking asking;
    int r = ret ? asking_begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r == 0)
        r = asking_start(&asking, ENTRY_TRY, ret);
    if (r == 0)
        acquisition_see(*ret);
    return r;
}

/* Others see when a record's wait is to end, and the instance hears of them. 0 or an errno. */
static int share(const struct asking *asking, uint32_t record)
{
    asking_publish_deadline(asking, record);
    return hearing_begin(&asking->set->w->keeper, 0, asking->set);
}

/* The keeper gets to know the acquisition. 0 or a negative errno. */
static int keep(const struct asking *asking, weir_acquisition *acquisition)
{
    weir_set *set = asking->set;
    int r;

    acquisition->keeping = kept_new(set, acquisition->record);
    if (!acquisition->keeping)
        return -ENOMEM;
    r = timekeeper_expect(set->w);
    if (r < 0)
        return r;
    acquisition->kept = true;
    r = set->member ? share(asking, acquisition->record) : 0;
    if (r < 0) {
        timekeeper_forget(set->w, acquisition->keeping);
        return r;
    }
    kept_set_waker(set, acquisition->keeping, RECORD_WAKE_KEEPER, 0, false);
    record_store(&kept_at(set->w, acquisition->keeping)->data, (uint64_t)(uintptr_t)acquisition);
    return 0;
}

/* Its keeper goes by the word that it has joined the line with. It was decided, or the set is
 * damaged. */
static void check_wait(weir_set *set, uint32_t kept, uint64_t word)
{
    uint64_t now = kept_word(set->w, kept);

    if (now == word)
        return;
    if (record_state(now) == RECORD_WAITING)
        member_break(set->member);
    keeper_wake(set->w, kept, kept_word(set->w, kept));
}

/* Joins the line under the keeper's eyes: 0, 1 or a refusal, which frees the acquisition. */
static int enter_kept(struct asking *asking, weir_acquisition *acquisition)
{
    weir *w = asking->set->w;
    uint64_t word, deadline;
    enum record_state state;
    int result = keep(asking, acquisition);

    if (result < 0) {
        acquisition_free(asking->actor, acquisition);
        return result;
    }
    word = record_next_word(kept_word(w, acquisition->keeping), RECORD_WAITING);
    result = asking_enter(asking, acquisition->record, ENTRY_WAIT);
    if (result < 0) {
        timekeeper_forget(w, acquisition->keeping);
        acquisition_free(asking->actor, acquisition);
        return result;
    }
    deadline = asking_deadline(asking, &state);
    if (result == 1 && deadline != WEIR_FOREVER)
        keeper_watch(w, acquisition->keeping, word, deadline, state);
    if (result == 1 && asking->set->member) {
        asking_stay(asking, acquisition->keeping, word);
        check_wait(asking->set, acquisition->keeping, word);
    }
    return result;
}

int acquire_pending(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                    struct weir_refusal *retref)
{
    struct asking asking;
    weir_acquisition *acquisition = NULL;
    int r = ret ? asking_begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r < 0)
        return r;
    r = asking_start(&asking, ENTRY_PROBE, &acquisition);
    if (r == -EAGAIN)
        r = enter_kept(&asking, acquisition);
    if (r < 0)
        return r;
    acquisition->seen = r == 0;
    *ret = acquisition;
    return r;
}

/* Sleeps until the word has changed, or it is time. */
static void sleep_until(const weir_set *set, uint32_t record, uint64_t word, uint64_t until)
{
    const uint32_t *futex = record_futex(record_at(set->region, record));

    if (set->member)
        sys_futex_wait_shared(futex, (uint32_t)word, until);
    else
        sys_futex_wait(futex, (uint32_t)word, until);
}

/* When a blocked waiter looks for itself, whatever happens. */
static uint64_t next_look(const struct asking *asking, uint64_t until, uint64_t deadline)
{
    uint64_t guard;

    if (asking->set->member) {
        guard = guard_instant(asking->actor, asking->verdict.ticket, sys_now_ns());
        until = guard < until ? guard : until;
    }
    return until < deadline ? until : deadline;
}

/*
 * Who has died is not left to the timekeeper alone: it watches those who were there the last time
 * that somebody looked who is, and cannot watch all if there are no descriptors left.
 */
static void attend_others(struct actor *actor, weir_set *set)
{
    if (set->member)
        burial_attend(actor, set);
}

/* Waits on the record's word, keeping time for itself and, at the head, for the line. */
static void wait_self(struct asking *asking, weir_acquisition *acquisition)
{
    weir_set *set = asking->set;
    enum record_state state;
    uint64_t deadline = asking_deadline(asking, &state);

    for (;;) {
        uint64_t word = set_word(set, acquisition->record), until;

        if (record_state(word) != RECORD_WAITING)
            return;
        if (set->member && instance_closed(set->w)) {
            set_withdraw(asking->actor, set, acquisition->record, 0, RECORD_SHUT_DOWN);
            continue;
        }
        /* Without a deadline, too: what follows goes by it. */
        if ((deadline != WEIR_FOREVER || !MUTANT(419)) && instance_now_fresh(set->w) >= deadline) {
            set_withdraw(asking->actor, set, acquisition->record, 0, state);
            continue;
        }
        attend_others(asking->actor, set);
        until = set_look(asking->actor, set, acquisition->record);
        if (set->member && until == WEIR_FOREVER)
            guard_look(asking->actor, set, acquisition->record, word);
        if (until)
            sleep_until(set, acquisition->record, word, next_look(asking, until, deadline));
    }
}

/*
 * The same when an injected clock keeps the time: the keeper does all of it, but for what becomes of
 * the set itself.
 */
static void wait_kept(struct asking *asking, weir_acquisition *acquisition)
{
    weir_set *set = asking->set;

    for (;;) {
        uint64_t word = set_word(set, acquisition->record);

        if (record_state(word) != RECORD_WAITING)
            return;
        if (set->member && instance_closed(set->w))
            set_withdraw(asking->actor, set, acquisition->record, 0, RECORD_SHUT_DOWN);
        else
            sleep_until(set, acquisition->record, word,
                        set->member ? sys_now_ns() + GUARD_NS : WEIR_FOREVER);
    }
}

/* While a thread is blocked, the timekeeper sees who dies of those that share the set. */
static int prepare_to_block(const struct asking *asking, const weir_acquisition *acquisition)
{
    weir_set *set = asking->set;
    int r;

    if (!set->member)
        return 0;
    r = timekeeper_start(set->w);
    return r < 0 ? r : share(asking, acquisition->record);
}

static int wait_in_line(struct asking *asking, weir_acquisition *acquisition,
                        weir_acquisition **ret)
{
    bool injected = asking->set->w->clock.now_ns != NULL;
    int r;

    acquisition->blocked = injected;
    if (injected)
        r = enter_kept(asking, acquisition);
    else if ((r = prepare_to_block(asking, acquisition)) < 0)
        acquisition_free(asking->actor, acquisition);
    else if ((r = asking_enter(asking, acquisition->record, ENTRY_WAIT)) < 0)
        acquisition_free(asking->actor, acquisition);
    if (r < 0)
        return r;
    if (r == 1 && injected)
        wait_kept(asking, acquisition);
    else if (r == 1)
        wait_self(asking, acquisition);
    r = weir_acquisition_result(acquisition);
    if (r == 0) {
        *ret = acquisition;
        return 0;
    }
    if (asking->retref)
        weir_acquisition_refusal(acquisition, asking->retref);
    weir_release(&acquisition);
    return r;
}

static void enter_blocked(weir *w)
{
    instance_hold(w, 1);
    atomic_fetch_add(&w->blocked, 1);
}

/* Once it is not counted any more weir_close comes back, and then the pool may go: hence the hold.
 * Either this sees that the instance is closed, or weir_close sees the count; so no weaker order.
 */
static void leave_blocked(weir *w)
{
    if (atomic_fetch_sub(&w->blocked, 1) == 1 && atomic_load(&w->closed))
        sys_futex_wake((const uint32_t *)(uintptr_t)&w->blocked, 1);
    instance_drop(w, 1);
}

int acquire_blocking(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    struct asking asking;
    weir_acquisition *acquisition = NULL;
    weir *w;
    int r = ret ? asking_begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r < 0)
        return r;
    w = asking.set->w;
    r = asking_start(&asking, ENTRY_PROBE, &acquisition);
    if (r == 0) {
        acquisition_see(acquisition);
        *ret = acquisition;
    }
    if (r != -EAGAIN)
        return r;
    enter_blocked(w);
    r = wait_in_line(&asking, acquisition, ret);
    leave_blocked(w);
    return r;
}

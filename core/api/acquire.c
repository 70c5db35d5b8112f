/* SPDX-License-Identifier: MIT */
/* The slow paths of weir_take, weir_try_acquire, weir_submit and weir_acquire. */
#include "api/acquire.h"
#include "api/pool.h"
#include "api/request_events.h"
#include "api/token.h"
#include "api/wait_group.h"
#include "wait/wait_timer.h"

#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include "set/lease.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include <errno.h>

static int acquire_take_once(weir_pool *pool, const struct weir_request *request,
                             struct weir_refusal *retref)
{
    struct acquire_op op;
    int r = acquire_op_prepare(&op, pool, request, PURPOSE_TAKE, retref);
    if (r < 0)
        return r;
    if (request_is_empty(op.set, op.amounts)) {
        acquire_op_count_empty(&op, true);
        if (op.is_observed)
            acquire_op_tell_result(&op, NULL, 0);
        return 0;
    }
    r = op.set->limits.has_lease && !op.within
            ? lease_take(op.ctx, op.set, op.amounts[0], &op.decision)
            : op.set->ops->acquire(&op, 0, MODE_TRY, WEIR_FOREVER);
    if (r < 0)
        acquire_op_fill_refusal(retref, op.set, r, &op.decision);
    if (op.is_observed)
        acquire_op_tell_result(&op, NULL, r);
    return r;
}

int acquire_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    struct pool_choice *choice;
    int r;

    do {
        choice = pool_choice(pool);
        if (choice)
            BALANCE(&r, choice, request, retref, true,
                    weir_take(balance.member, request, balance.refusal));
        else
            r = acquire_take_once(pool, request, retref);
    } while (acquire_is_outdated(pool, choice, r));
    return r;
}

static int acquire_try_once(weir_pool *pool, const struct weir_request *request,
                            weir_acquisition **ret, struct weir_refusal *retref)
{
    struct acquire_op op;
    int r = ret ? acquire_op_prepare(&op, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    return r == 0 ? acquire_op_try(&op, MODE_TRY, ret) : r;
}

int acquire_try(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    struct pool_choice *choice;
    int r;

    do {
        choice = pool_choice(pool);
        if (choice)
            BALANCE(&r, choice, request, retref, true,
                    weir_try_acquire(balance.member, request, ret, balance.refusal));
        else
            r = acquire_try_once(pool, request, ret, retref);
    } while (acquire_is_outdated(pool, choice, r));
    return r;
}

static int acquire_reserve_once(weir_pool *pool, const struct weir_request *request,
                                weir_acquisition **ret, uint64_t *ret_at_ns,
                                struct weir_refusal *retref)
{
    struct acquire_op op;
    int r =
        ret && ret_at_ns ? acquire_op_prepare(&op, pool, request, PURPOSE_TAKE, retref) : -EINVAL;
    if (r < 0)
        return r;
    /* The time of a reservation of nothing, which the set does not decide. */
    op.decision.forecast_ns = clock_now_ns(&op.set->w->clock);
    r = acquire_op_try(&op, MODE_RESERVE, ret);
    if (r < 0)
        return r;
    (*ret)->reserved = true;
    if (!(*ret)->record)
        (*ret)->empty_granted_ns = op.decision.forecast_ns;
    *ret_at_ns = op.decision.forecast_ns;
    return 0;
}

int weir_reserve(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 uint64_t *ret_at_ns, struct weir_refusal *retref)
{
    struct pool_choice *choice;
    int r;

    do {
        choice = pool_choice(pool);
        if (choice)
            BALANCE(&r, choice, request, retref, false,
                    weir_reserve(balance.member, request, ret, ret_at_ns, balance.refusal));
        else
            r = acquire_reserve_once(pool, request, ret, ret_at_ns, retref);
    } while (acquire_is_outdated(pool, choice, r));
    return r;
}

/* Publishes the deadline of a wait in a shared set and subscribes the instance to its events.
 * Returns 0 or a negative errno. */
static int acquire_publish_wait(const struct acquire_op *op, uint32_t record)
{
    acquire_op_publish_deadline(op, record, 0);
    return peer_events_subscribe(timer_at(op->set->w, 0), op->set);
}

/* Makes the acquisition known to the instance's wait timer. Returns 0 or a negative errno. */
static int acquire_register_waiter(const struct acquire_op *op, weir_acquisition *acquisition)
{
    weir_set *set = op->set;
    int r;

    WEIR_INVARIANT(acquisition->record && !acquisition->waiter);
    WEIR_INVARIANT(!acquisition->is_timed);
    acquisition->waiter = waiter_new(set, acquisition->record);
    if (!acquisition->waiter)
        return -ENOMEM;
    r = timer_thread_reserve(set->w);
    if (r < 0)
        return r;
    acquisition->is_timed = true;
    r = set_is_shared(set) ? acquire_publish_wait(op, acquisition->record) : 0;
    if (r == 0)
        r = wall_watch_subscribe(set);
    if (r < 0) {
        timer_thread_forget(set->w, acquisition->waiter);
        return r;
    }
    waiter_set_target(set, acquisition->waiter, WAIT_TARGET_TIMER, 0, false);
    record_store(&waiter_at(set->w, acquisition->waiter)->data, (uint64_t)(uintptr_t)acquisition);
    return 0;
}

/* Reports a decision that the wait timer missed because `word` was armed after it. A record that
 * still waits under another word was written to by another process. */
static void acquire_check_wait(weir_set *set, uint32_t waiter, uint64_t word)
{
    uint64_t now = waiter_word(set->w, waiter);

    WEIR_INVARIANT(set_is_shared(set) && waiter);
    if (now == word)
        return;
    if (record_state(now) == RECORD_WAITING)
        participant_mark_broken(set->participant);
    timer_notify(set->w, waiter, waiter_word(set->w, waiter));
}

/* Enqueues the acquisition with the instance's wait timer. */
static int acquire_enqueue_timed(struct acquire_op *op, weir_acquisition *acquisition)
{
    weir *w = op->set->w;
    uint64_t word, deadline;
    enum record_state state;
    int result = acquire_register_waiter(op, acquisition);

    if (result < 0)
        return result;
    word = record_next_word(waiter_word(w, acquisition->waiter), RECORD_WAITING);
    result = acquire_op_execute(op, acquisition->record, MODE_WAIT);
    if (result < 0) {
        timer_thread_forget(w, acquisition->waiter);
        return result;
    }
    WEIR_INVARIANT(result == 0 || result == 1);
    deadline = acquire_op_deadline(op, op->decision.now_ns, &state);
    if (result == 1 && deadline != WEIR_FOREVER)
        timer_set_deadline(w, acquisition->waiter, word, deadline, state);
    if (result == 1 && set_is_shared(op->set)) {
        acquire_op_schedule(op, acquisition->waiter, word);
        timer_arm_stall_check(timer_at(w, 0), op->decision.now_ns + STALL_CHECK_NS);
        acquire_check_wait(op->set, acquisition->waiter, word);
    }
    return result;
}

/* Enqueues the acquisition of a blocked thread. The timer thread watches the other processes of a
 * shared set, and listens for steps of the wall clock. */
static int acquire_enqueue_blocked(struct acquire_op *op, const weir_acquisition *acquisition)
{
    int r = set_is_shared(op->set) ? timer_thread_start(op->set->w) : 0;

    if (r == 0 && set_is_shared(op->set))
        r = acquire_publish_wait(op, acquisition->record);
    if (r == 0)
        r = wall_watch_subscribe(op->set);
    if (r == 0)
        r = acquire_op_execute(op, acquisition->record, MODE_WAIT);
    if (r == 1 && set_is_shared(op->set))
        timer_arm_stall_check(timer_at(op->set->w, 0), op->decision.now_ns + STALL_CHECK_NS);
    return r;
}

int acquire_enqueue(struct acquire_op *op, weir_acquisition *acquisition, bool with_timer)
{
    int r;

    acquisition->awaits_event = op->is_observed;
    r = with_timer ? acquire_enqueue_timed(op, acquisition)
                   : acquire_enqueue_blocked(op, acquisition);
    if (op->is_observed) {
        acquisition->awaits_event = r == 1;
        acquire_op_tell_result(op, acquisition, r);
    }
    if (r < 0) {
        acquisition_free(op->ctx, acquisition);
    } else if (r == 0) {
        acquisition_publish_within(acquisition);
        acquisition_mark_observed(acquisition);
    }
    return r;
}

int acquire_probe(struct acquire_op *op, weir_pool *pool, const struct weir_request *request,
                  bool heeds_token, weir_acquisition **ret, struct weir_refusal *retref)
{
    int r;

    do {
        r = acquire_op_prepare(op, pool, request, PURPOSE_ACQUIRE, retref);
        if (r == 0 && heeds_token && request_token(op->request) &&
            (r = token_check(request_token(op->request), op->set->w)) < 0)
            acquire_op_tell_failure(op, r);
        if (r == 0)
            r = acquire_op_try(op, MODE_PROBE, ret);
    } while (r == -ESTALE && acquire_set_has_changed(pool)); /* -ESTALE remains if it was removed */
    return r;
}

static int acquire_submit_once(weir_pool *pool, const struct weir_request *request,
                               weir_acquisition **ret, struct weir_refusal *retref)
{
    struct acquire_op op;
    weir_acquisition *acquisition = NULL;
    int r = ret ? acquire_probe(&op, pool, request, false, &acquisition, retref) : -EINVAL;

    if (r == -EAGAIN && acquisition)
        r = acquire_enqueue(&op, acquisition, true);
    if (r >= 0)
        *ret = acquisition;
    return r;
}

int acquire_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref)
{
    struct pool_choice *choice;
    int r;

    do {
        choice = pool_choice(pool);
        if (!choice)
            r = acquire_submit_once(pool, request, ret, retref);
        else if (group_serves(choice, request))
            r = group_submit(choice, request, ret, retref);
        else
            BALANCE(&r, choice, request, retref, false,
                    weir_submit(balance.member, request, ret, balance.refusal));
    } while (acquire_is_outdated(pool, choice, r));
    return r;
}

/* Sleeps until the record's word differs from `word`, or until `until`. */
static void acquire_sleep_until(const weir_set *set, uint32_t record, uint64_t word, uint64_t until)
{
    const uint32_t *futex = record_futex(record_at(set->region, record));

    WEIR_INVARIANT(record && record_state(word) == RECORD_WAITING);
    os_futex_wait(futex, set_is_shared(set), (uint32_t)word, until);
}

/* Returns when a blocked waiter wakes up if no notification arrives. */
static uint64_t acquire_next_check_ns(const struct acquire_op *op, uint64_t until,
                                      uint64_t deadline)
{
    uint64_t check_ns;

    if (set_is_shared(op->set)) {
        check_ns = stall_check_deadline(op->ctx, op->set, op->decision.ticket, os_now_ns());
        until = check_ns < until ? check_ns : until;
    }
    return until < deadline ? until : deadline;
}

/*
 * Does what a wait timer would do for a blocked thread: ends the wait at its deadline and, at the
 * head of the wait queue, grants when the time has come. Returns how long to sleep then; 0: not.
 */
static uint64_t acquire_keep_time(struct acquire_op *op, uint32_t record, uint64_t word)
{
    weir_set *set = op->set;
    enum record_state state;
    uint64_t deadline = acquire_op_deadline(op, op->decision.now_ns, &state), until;

    /* A fresh reading even without a deadline: poll_head() uses it. */
    if (clock_now_fresh(&set->w->clock) >= deadline) {
        set->ops->cancel_wait(op->ctx, set, record, 0, state);
        return 0;
    }
    /* The timer thread watches only the peers found at the last cleanup, and fewer if descriptors
     * run out. */
    if (set_is_shared(set))
        peer_reap(op->ctx, set);
    until = set->ops->poll_head(op->ctx, set, record);
    if (set_is_shared(set) && until == WEIR_FOREVER)
        stall_check_run(op->ctx, set, record, word);
    return until ? acquire_next_check_ns(op, until, deadline) : 0;
}

/* Waits on the record's word. With an injected clock the wait timer keeps the time; of a shared set
 * this thread checks that the instance is open, the set not removed and not broken. */
static void acquire_block(struct acquire_op *op, const weir_acquisition *acquisition)
{
    weir_set *set = op->set;
    uint32_t record = acquisition->record;

    for (;;) {
        uint64_t word = set_record_word(set, record), until = WEIR_FOREVER;

        if (record_state(word) != RECORD_WAITING)
            return;
        if (set_is_shared(set) && (instance_is_closed(set->w) || set_is_removed(set))) {
            set->ops->cancel_wait(op->ctx, set, record, 0, RECORD_SHUT_DOWN);
            continue;
        }
        if (!acquisition->is_timed)
            until = acquire_keep_time(op, record, word);
        else if (set_is_shared(set))
            until = os_now_ns() + STALL_CHECK_NS;
        if (until)
            acquire_sleep_until(set, record, word, until);
    }
}

/* Waits as acquire_block() does. Another thread may end the wait by the token of the request. */
static void acquire_block_with_token(struct acquire_op *op, const weir_acquisition *acquisition,
                                     weir_token *token)
{
    struct token_wait wait = {.set = op->set, .record = acquisition->record};
    bool is_entered = token_enter(token, &wait);

    if (!is_entered)
        op->set->ops->cancel_wait(op->ctx, op->set, wait.record, 0, RECORD_CANCELED);
    acquire_block(op, acquisition);
    if (is_entered)
        token_leave(token, &wait);
}

static int acquire_enqueue_and_wait(struct acquire_op *op, weir_acquisition *acquisition,
                                    weir_acquisition **ret)
{
    bool injected = op->set->w->clock.injected.now_ns != NULL;
    weir_token *token = request_token(op->request);
    int r;

    WEIR_INVARIANT(acquisition->record);
    acquisition->has_blocked_thread = injected;
    r = acquire_enqueue(op, acquisition, injected);
    if (r < 0)
        return r;
    if (r == 1 && token)
        acquire_block_with_token(op, acquisition, token);
    else if (r == 1)
        acquire_block(op, acquisition);
    r = weir_acquisition_result(acquisition);
    WEIR_INVARIANT(set_is_shared(op->set) || r != -EINPROGRESS);
    if (r == 0) {
        *ret = acquisition;
        return 0;
    }
    if (op->retref)
        weir_acquisition_refusal(acquisition, op->retref);
    weir_release(&acquisition);
    return r;
}

static weir *acquire_enter_blocked(weir *w)
{
    instance_ref(w, 1);
    atomic_fetch_add_explicit(&instance_wait(w)->blocked_n, 1, memory_order_seq_cst);
    return w;
}

/* weir_close returns once `blocked_n` is 0, and the pool may go then: hence the reference. Either
 * this thread sees INSTANCE_CLOSED or weir_close sees the count, so both accesses are seq_cst. */
static void acquire_leave_blocked(weir *w)
{
    WEIR_INVARIANT(atomic_load_explicit(&instance_wait(w)->blocked_n, memory_order_relaxed) > 0);
    if (atomic_fetch_sub_explicit(&instance_wait(w)->blocked_n, 1, memory_order_seq_cst) == 1 &&
        (atomic_load_explicit(w->state, memory_order_seq_cst) & INSTANCE_CLOSED))
        os_futex_wake((const uint32_t *)(uintptr_t)&instance_wait(w)->blocked_n, false);
    instance_unref(w, 1);
}

WEIR_ALWAYS_INLINE int acquire_and_wait_balanced(struct pool_choice *choice,
                                                 const struct weir_request *request,
                                                 weir_acquisition **ret,
                                                 struct weir_refusal *retref)
{
    int r;

    if (group_serves(choice, request))
        return group_acquire(choice, request, ret, retref);
    BALANCE(&r, choice, request, retref, false,
            weir_acquire(balance.member, request, ret, balance.refusal));
    return r;
}

WEIR_ALWAYS_INLINE int acquire_and_wait_once(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, struct weir_refusal *retref,
                                             weir **blocked)
{
    struct acquire_op op;
    weir_acquisition *acquisition = NULL;
    int r = ret ? acquire_probe(&op, pool, request, true, &acquisition, retref) : -EINVAL;

    if (r == -EAGAIN && acquisition) {
        if (!*blocked)
            *blocked = acquire_enter_blocked(op.set->w);
        r = acquire_enqueue_and_wait(&op, acquisition, &acquisition);
    }
    if (r == 0)
        *ret = acquisition;
    return r;
}

int acquire_and_wait(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    struct pool_choice *choice;
    weir *blocked = NULL; /* the pool is there until it is left */
    int r;

    do {
        choice = pool_choice(pool);
        if (choice && !blocked)
            blocked = acquire_enter_blocked(pool->w);
        r = choice ? acquire_and_wait_balanced(choice, request, ret, retref)
                   : acquire_and_wait_once(pool, request, ret, retref, &blocked);
    } while (acquire_is_outdated(pool, choice, r));
    if (blocked)
        acquire_leave_blocked(blocked);
    return r;
}

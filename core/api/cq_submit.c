/* SPDX-License-Identifier: MIT */
/* Completion queues: submitting. */
#include "set/waiter.h"
#include "wait/cq.h"

#include "api/acquire.h"
#include "api/request_events.h"
#include "api/wait_group.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include <errno.h>

/* Counts one more pending submission. Returns the new count, or 0 if the queue is full. */
static uint32_t cq_take_slot(weir_queue *queue)
{
    uint32_t pending = atomic_load_explicit(&queue->pending, memory_order_seq_cst);

    do {
        if (pending >= queue->capacity)
            return 0;
    } while (!atomic_compare_exchange_weak_explicit(&queue->pending, &pending, pending + 1,
                                                    memory_order_seq_cst, memory_order_seq_cst));
    WEIR_INVARIANT(pending < queue->capacity);
    return pending + 1;
}

/* Reserves heap room for `pending` deadlines, so that adding one cannot fail. */
static int cq_reserve_heap(weir_queue *queue, uint32_t pending)
{
    int r;

    if (pending <= atomic_load_explicit(&queue->heap_room, memory_order_seq_cst))
        return 0;
    lock_take(&queue->timer.lock);
    r = deadline_heap_reserve(&queue->timer.heap, pending);
    if (r == 0)
        atomic_store_explicit(&queue->heap_room, deadline_heap_room(&queue->timer.heap),
                              memory_order_seq_cst);
    lock_release(&queue->timer.lock);
    return r;
}

/* Returns the waiter id of a new record for this request, or 0 if out of memory. No other thread
 * knows the record before the set has it. */
static uint32_t cq_make_record(const struct acquire_op *op, const weir_queue *queue,
                               uint64_t user_data)
{
    uint32_t record = record_pool_get(op->ctx, op->set), waiter;

    WEIR_INVARIANT(op->set->w == queue->timer.w);
    if (!record)
        return 0;
    acquire_op_fill_record(op, record);
    if (set_is_shared(op->set))
        acquire_op_publish_deadline(op, record, queue->timer.number);
    waiter = waiter_new(op->set, record);
    if (!waiter) {
        record_pool_put(op->ctx, op->set, record);
        return 0;
    }
    waiter_set_target(op->set, waiter, WAIT_TARGET_CQ, queue->timer.number,
                      (op->request->flags & WEIR_STRICT) != 0);
    record_store(&waiter_at(op->set->w, waiter)->data, user_data);
    return waiter;
}

/* Frees the record of a request that failed. No completion follows, but a recheck may have been
 * scheduled for it. */
static void cq_free_failed(const struct acquire_op *op, weir_queue *queue, uint32_t waiter)
{
    weir *w = op->set->w;
    weir_acquisition *acquisition = cq_acquisition(waiter_at(w, waiter));
    uint32_t record = waiter_record(w, waiter);

    lock_take(&queue->timer.lock);
    cq_drop(queue, waiter);
    lock_release(&queue->timer.lock);

    if (acquisition) {
        acquisition_free(op->ctx, acquisition);
        return;
    }
    waiter_free(op->set, waiter);
    record_pool_put(op->ctx, op->set, record);
}

/* Makes the acquisition that the submitter asked for. Returns false if out of memory. `*ret` is set
 * before the submission enters the set, since the CQE may be taken before the submit returns. */
static bool cq_make_acquisition(struct acquire_op *op, weir_queue *queue, uint32_t waiter,
                                weir_acquisition **ret)
{
    struct acq_record *r = waiter_at(op->set->w, waiter);
    weir_acquisition *acquisition =
        acquisition_from_record(op->ctx, op->set, waiter_record(op->set->w, waiter), waiter);

    WEIR_INVARIANT(!cq_acquisition(r));
    if (!acquisition)
        return false;
    acquire_op_describe(op, acquisition);
    acquisition->awaits_event = op->is_observed;
    acquisition->user_data = record_load(&r->data);
    atomic_store_explicit(&acquisition->queue, queue, memory_order_seq_cst);
    op->acquisition_set = &acquisition->set;
    record_store(&r->data, (uint64_t)(uintptr_t)acquisition);
    cq_set_flag(r, RECORD_HAS_ACQUISITION);
    *ret = acquisition;
    return true;
}

/* Sets the state of a record that was never in the set. Returns its word. */
static uint64_t cq_set_state(const struct acquire_op *op, uint32_t record, enum record_state state)
{
    struct acq_record *r = set_record(op->set, record);
    uint64_t word = record_next_word(record_load(&r->word), state);

    WEIR_INVARIANT(set_is_shared(op->set) || record_state(record_load(&r->word)) == RECORD_FREE);
    if (state != RECORD_HELD)
        record_store(&r->enqueued_ns, op->decision.now_ns); /* for its event: it has not waited */
    atomic_store_explicit(&r->word, word, memory_order_release);
    SCHED_POINT();
    return word;
}

/* A submission as it was when it entered the set. */
struct cq_submission {
    _Atomic uint32_t *bucket; /* of its user_data */
    uint32_t waiter;
    uint64_t word;       /* that it got */
    uint64_t proxy_link; /* link of its proxy record; 0: it has none */
};

static uint64_t cq_proxy_link(const struct acq_record *r)
{
    return waiter_is_proxy(r) ? record_load(&r->next) : 0;
}

/*
 * Returns whether the record is still this submission, decided by another thread that is about to
 * deliver it. The queue completes it first, as it may be closed before that. If the word has moved
 * further, the record was reaped and reused. A proxy record tells by its link: a shared word may be
 * anything.
 */
static bool cq_submission_is_ours(const weir_queue *queue, const struct cq_submission *submission)
{
    const struct acq_record *r = cq_record(queue, submission->waiter);
    uint64_t now = waiter_word(queue->timer.w, submission->waiter);

    if (submission->proxy_link)
        return cq_proxy_link(r) == submission->proxy_link;
    return record_next_word(submission->word, record_state(now)) == now;
}

/* Marks a proxy record as entered, so that timer_deliver() trusts its word. Call with the lock,
 * before the word is read. */
static void cq_mark_entered(const weir_queue *queue, const struct cq_submission *submission)
{
    struct acq_record *r = cq_record(queue, submission->waiter);

    if (submission->proxy_link && cq_proxy_link(r) == submission->proxy_link)
        record_store(&r->enqueued_ns, 1);
}

/*
 * Puts a submission that waits into the index, where its user_data finds it, and sets its deadline.
 * Completes it if it was decided, at once or meanwhile. Lock held. Returns whether the caller must
 * call timer_signal() after it has released the lock.
 */
static bool cq_index_or_complete(weir_queue *queue, const struct acquire_op *op,
                                 const struct cq_submission *submission)
{
    uint32_t waiter = submission->waiter, before;
    enum record_state end_state;
    uint64_t deadline_ns;
    bool waits;

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    cq_mark_entered(queue, submission);
    waits = waiter_load(queue->timer.w, waiter, submission->word, &before);

    if (before & RECORD_DELIVERED)
        return false;
    if (!waits || record_state(submission->word) != RECORD_WAITING)
        return cq_submission_is_ours(queue, submission) &&
               cq_complete(queue, waiter, waiter_word(queue->timer.w, waiter));
    cq_index_add(queue, submission->bucket, waiter);
    deadline_ns = acquire_op_deadline(op, op->decision.now_ns, &end_state);
    if (deadline_ns != WEIR_FOREVER)
        timer_set_deadline_locked(&queue->timer, waiter, deadline_ns, end_state);
    return false;
}

static void cq_settle_locked(weir_queue *queue, const struct acquire_op *op,
                             const struct cq_submission *submission)
{
    bool must_signal;

    lock_take(&queue->timer.lock);
    must_signal = cq_index_or_complete(queue, op, submission);
    lock_release(&queue->timer.lock);
    if (must_signal)
        timer_signal(&queue->timer);
}

/* Fills in the times of a grant of nothing, which the set does not decide. */
static void cq_fill_empty(const weir_set *set, uint32_t record)
{
    struct acq_record *r = set_record(set, record);
    uint64_t now_ns = clock_instant(&set->w->clock, set->limits.clock_needs).now_ns;

    record_store(&r->enqueued_ns, now_ns);
    record_store(&r->granted_ns, now_ns);
}

/* Submits to the set. Returns 0 if one completion follows, else an error. */
static int cq_enter_set(weir_queue *queue, struct acquire_op *op, uint32_t waiter,
                        _Atomic uint32_t *bucket)
{
    weir_set *set = op->set;
    struct cq_submission submission = {
        .bucket = bucket, .waiter = waiter, .proxy_link = cq_proxy_link(cq_record(queue, waiter))};
    uint32_t record = waiter_record(set->w, waiter);
    uint64_t before = record_load(&set_record(set, record)->word), enqueued_ns = 0;
    int r = 0;

    if (request_is_empty(set, op->amounts)) {
        cq_fill_empty(set, record);
        cq_set_state(op, record, RECORD_HELD);
        acquire_op_count_empty(op, false);
    } else {
        r = acquire_op_ask(op, record, MODE_WAIT);
        enqueued_ns = op->decision.now_ns;
        if (r >= 0)
            acquire_op_use_instance_time(op);
    }
    if (r == 0 || r == 1)
        submission.word = record_next_word(before, r == 0 ? RECORD_HELD : RECORD_WAITING);
    else if (r == -EAGAIN || r == -ENOBUFS)
        submission.word =
            cq_set_state(op, record, r == -EAGAIN ? RECORD_REFUSED : RECORD_QUEUE_FULL);
    else
        return r;
    if (r != 1 && !submission.proxy_link)
        timer_deliver(&queue->timer, waiter, submission.word);
    else
        cq_settle_locked(queue, op, &submission);
    if (r == 1 && set_is_shared(op->set)) {
        acquire_op_schedule(op, waiter, submission.word);
        timer_arm_stall_check(&queue->timer, op->decision.now_ns + STALL_CHECK_NS);
    }
    if (r == 1 && op->is_observed)
        acquire_op_tell_wait(op, record, enqueued_ns);
    return 0;
}

static int cq_submit(weir_queue *queue, struct acquire_op *op, uint64_t user_data,
                     weir_acquisition **ret)
{
    weir_acquisition *before = ret ? *ret : NULL;
    _Atomic uint32_t *bucket = cq_bucket(queue, user_data);
    uint32_t waiter;
    int r = -ENOMEM;

    /* The new record will be linked before this one. Without the lock it is a hint only. */
    prefetch_write(&cq_record(queue, cq_bucket_first(bucket))->bucket_prev_flags);
    waiter = cq_make_record(op, queue, user_data);
    if (!waiter)
        return acquire_op_tell_failure(op, -ENOMEM);
    if (!ret || cq_make_acquisition(op, queue, waiter, ret))
        r = cq_enter_set(queue, op, waiter, bucket);
    if (r == 0)
        return 0;
    acquire_op_fill_refusal(op->retref, op->set, r, &op->decision);
    acquire_op_tell_failure(op, r);
    if (ret)
        *ret = before;
    cq_free_failed(op, queue, waiter);
    return r;
}

/* Submits to a pool with an only set. */
static int cq_submit_once(weir_queue *queue, weir_pool *pool, const struct weir_request *request,
                          uint64_t user_data, weir_acquisition **ret, struct weir_refusal *retref)
{
    struct acquire_op op;
    uint32_t pending;
    int r = acquire_op_prepare(&op, pool, request, PURPOSE_ACQUIRE, retref);

    if (r < 0)
        return r;
    if (op.within && !ret) /* the acquisition says what it is nested in */
        return acquire_op_tell_failure(&op, -EINVAL);
    pending = cq_take_slot(queue);
    if (!pending)
        return acquire_op_tell_failure(&op, -ENOSPC);
    r = cq_reserve_heap(queue, pending);
    WEIR_INVARIANT(r < 0 ||
                   atomic_load_explicit(&queue->heap_room, memory_order_relaxed) >= pending);
    if (r == 0 && set_is_shared(op.set))
        r = peer_events_subscribe(&queue->timer, op.set);
    if (r == 0)
        r = wall_watch_subscribe(op.set);
    r = r == 0 ? cq_submit(queue, &op, user_data, ret) : acquire_op_tell_failure(&op, r);
    if (r < 0)
        atomic_fetch_sub_explicit(&queue->pending, 1, memory_order_seq_cst);
    return r;
}

int weir_queue_submit(weir_queue *queue, weir_pool *pool, const struct weir_request *request,
                      uint64_t user_data, weir_acquisition **ret, struct weir_refusal *retref)
{
    struct pool_choice *choice;
    int r;

    if (!queue || !pool || pool->w != queue->timer.w)
        return -EINVAL;
    do {
        choice = pool_choice(pool);
        if (!choice)
            r = cq_submit_once(queue, pool, request, user_data, ret, retref);
        else if (group_serves(choice, request))
            r = group_queue_submit(queue, choice, request, user_data, ret, retref);
        else
            BALANCE(
                &r, choice, request, retref, false,
                weir_queue_submit(queue, balance.member, request, user_data, ret, balance.refusal));
    } while (acquire_is_outdated(pool, choice, r));
    return r;
}

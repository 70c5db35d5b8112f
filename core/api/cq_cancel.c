/* SPDX-License-Identifier: MIT */
/* Completion queues: canceling by user_data and by acquisition. */
#include "set/waiter.h"
#include "wait/cq.h"

#include "base/compiler.h"
#include "base/invariant.h"
#include "set/set_ops.h"
#include <errno.h>

/*
 * Returns whether a submission can be canceled. A FREE one was canceled through its acquisition. A
 * delivered one is in the index only as a grant, and its state changes no more, unless it is
 * revoked or the set is broken.
 */
static bool cq_is_cancelable(const struct acq_record *r, uint64_t word)
{
    return record_state(word) == RECORD_HELD ||
           (record_state(word) != RECORD_FREE && !(record_prev_flags(r) & RECORD_DELIVERED));
}

/* Returns the first submission with this user_data that can be canceled, from `record` on in its
 * bucket, and its word; or 0. */
static uint32_t cq_find(const weir_queue *queue, uint32_t record, uint64_t user_data,
                        uint64_t *ret_word)
{
    const struct acq_record *r;

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    for (; record; record = r->bucket_next) {
        r = cq_record(queue, record);
        if (cq_user_data(r) != user_data)
            continue;
        *ret_word = waiter_word(queue->timer.w, record);
        if (cq_is_cancelable(r, *ret_word))
            break;
    }
    return record;
}

/* Prefetches what the end of a wait writes besides the record: its neighbors in the wait queue and
 * in the bucket, and the heap. Of many waiters, each of these is a cache miss; now they overlap. */
static void cq_prefetch_end(const weir_queue *queue, const struct acq_record *r)
{
    if (!waiter_is_proxy(r)) {
        prefetch_write(cq_record(queue, record_link_target(record_load(&r->next))));
        prefetch_write(cq_record(queue, record_link_target(record_load(&r->prev))));
    }
    cq_prefetch_delivery(queue, r);
}

static void cq_deliver_exclusive(weir_queue *queue, uint32_t record)
{
    bool must_signal;

    WEIR_INVARIANT(record);
    lock_take(&queue->timer.lock);
    must_signal = cq_complete(queue, record, waiter_word(queue->timer.w, record));
    lock_release(&queue->timer.lock);
    if (must_signal)
        timer_signal(&queue->timer);
}

/* Finds a submission to cancel. `ret_is_only`: there is no other one. */
static bool cq_find_one(weir_queue *queue, uint64_t user_data, struct cq_snapshot *ret,
                        bool *ret_is_only)
{
    const weir *w = queue->timer.w;
    const _Atomic uint32_t *bucket = cq_bucket(queue, user_data);

    prefetch_write((const void *)(uintptr_t)bucket);
    lock_take(&queue->timer.lock);
    ret->record = cq_find(queue, cq_bucket_first(bucket), user_data, &ret->word);
    if (ret->record) {
        const struct acq_record *r = cq_record(queue, ret->record);
        uint64_t unused;

        cq_prefetch_end(queue, r);
        *ret_is_only = !cq_find(queue, r->bucket_next, user_data, &unused);
        ret->set = set_of_record(waiter_set(w, ret->record));
        ret->is_exclusive = record_state(ret->word) == RECORD_HELD && !cq_acquisition(r);
        if (ret->is_exclusive)
            cq_drop(queue, ret->record);
    }
    lock_release(&queue->timer.lock);
    return ret->record != 0;
}

/* Returns whether this call canceled the submission. */
static bool cq_cancel_one(weir_queue *queue, const struct cq_snapshot *snapshot)
{
    struct thread_ctx *ctx = thread_ctx_borrow(snapshot->set);
    weir *w = queue->timer.w;
    bool canceled = true;

    WEIR_INVARIANT(snapshot->record && snapshot->set->w == w);
    if (snapshot->is_exclusive) {
        canceled = acquisition_undo(ctx, snapshot->set, waiter_record(w, snapshot->record),
                                    snapshot->word); /* false: it was revoked */
        cq_deliver_exclusive(queue, snapshot->record);
    } else if (record_state(snapshot->word) == RECORD_WAITING) {
        canceled =
            snapshot->set->ops->cancel_wait(ctx, snapshot->set, waiter_record(w, snapshot->record),
                                            snapshot->word, RECORD_CANCELED);
        if (canceled)
            timer_notify(w, snapshot->record, record_next_word(snapshot->word, RECORD_CANCELED));
    } else {
        canceled = false; /* decided just now: notify for the deciding thread */
        timer_notify(w, snapshot->record, snapshot->word);
    }
    thread_ctx_return(ctx);
    return canceled;
}

int weir_queue_cancel(weir_queue *queue, uint64_t user_data)
{
    struct cq_snapshot snapshot;
    bool is_only = false, canceled = false;
    int n = 0;

    if (!queue)
        return -EINVAL;
    if (instance_is_forked(queue->timer.w))
        return -ECHILD;
    /* One that was decided between the two steps is found again. */
    while (!(is_only && canceled) && cq_find_one(queue, user_data, &snapshot, &is_only)) {
        canceled = cq_cancel_one(queue, &snapshot);
        n += canceled;
    }
    wait_group_withdraw(queue->timer.w);
    return n;
}

/* Finds what there is to cancel of an acquisition with a completion in the queue. Returns false if
 * it was decided. */
static bool cq_find_acquisition(weir_acquisition *acquisition, struct cq_snapshot *ret)
{
    weir_queue *queue = cq_lock_of(acquisition);
    if (!queue)
        return false;
    *ret =
        (struct cq_snapshot){acquisition->waiter, waiter_word(queue->timer.w, acquisition->waiter),
                             acquisition->set, false};
    ret->is_exclusive = record_state(ret->word) == RECORD_HELD &&
                        !atomic_load_explicit(&acquisition->observed, memory_order_seq_cst);
    if (ret->is_exclusive)
        cq_drop(queue, ret->record);
    lock_release(&queue->timer.lock);
    return ret->is_exclusive || record_state(ret->word) == RECORD_WAITING;
}

int cq_cancel_acquisition(weir_queue *queue, weir_acquisition *acquisition)
{
    struct cq_snapshot snapshot;

    /* Repeats if the submission was decided between the two steps. */
    while (cq_find_acquisition(acquisition, &snapshot))
        if (cq_cancel_one(queue, &snapshot))
            return 0;
    return -EALREADY;
}

/* SPDX-License-Identifier: MIT */
/* Completion queues: reaping. Runs the timer and hands completions out. */
#include "set/waiter.h"
#include "wait/cq.h"
#include "wait/hold_watch.h"

#include "api/acquire.h"
#include "api/request_events.h"
#include "base/invariant.h"
#include <errno.h>

/* Completions that are popped under the lock at a time. */
#define CQ_REAP_BATCH 64u

/* Pops the next completion, which can no longer be canceled. */
static uint32_t cq_pop(weir_queue *queue)
{
    uint32_t record = queue->to_reap.first;

    WEIR_INVARIANT(record_prev_flags(cq_record(queue, record)) & RECORD_DELIVERED);
    WEIR_INVARIANT(!cq_record(queue, record)->heap_index);
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    WEIR_INVARIANT(record);
    cq_list_remove(queue, &queue->to_reap, record);
    cq_index_remove(queue, record);
    return record;
}

static void cq_fill_refusal(struct acquire_op *op, uint32_t record, struct weir_completion *ret)
{
    if (ret->acquisition) {
        op->within = ret->acquisition->within;
        op->wait_class = ret->acquisition->wait_class;
    }
    acquire_op_forecast(op, record, FORECAST_SHORT_QUEUE);
    acquire_op_fill_refusal(&ret->refusal, op->set, ret->result, &op->decision);
}

void cq_hand_out(weir_acquisition *acquisition, int result)
{
    WEIR_INVARIANT(result != -EINPROGRESS);
    if (result == 0)
        acquisition_publish_within(acquisition);
    atomic_store_explicit(&acquisition->observed, result == 0, memory_order_seq_cst);
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_seq_cst);
}

/* Tells the decision of a submission; of a group that of the winner. */
static void cq_tell_completion(const weir_set *set, uint32_t record, weir_acquisition *acquisition,
                               const struct weir_completion *completion)
{
    if (set->ops->winner) {
        acquisition = completion->result == 0 ? acquisition_granted(completion->acquisition) : NULL;
        if (acquisition && acquisition->awaits_event)
            acquisition_tell_decision(acquisition, 0, NULL);
    } else if (!acquisition) {
        event_tell_decision(set, record, completion->result, completion->refusal.key, NULL, NULL);
    } else if (acquisition->awaits_event) {
        acquisition_tell_decision(acquisition, completion->result, completion->refusal.key);
    }
}

/* Fills `ret`, which takes the record over. Returns false if out of memory. The queue's lock is not
 * held: the completion was popped under it, and a reap excludes other users of an acquisition that
 * the program has (weir/queue.h). */
static bool cq_fill_completion(struct thread_ctx *ctx, weir_set *set, uint32_t waiter,
                               struct weir_completion *ret)
{
    const struct acq_record *r = waiter_at(set->w, waiter);
    uint32_t record = waiter_record(set->w, waiter);
    int result = cq_result(set->w, waiter);
    weir_acquisition *acquisition = cq_acquisition(r);

    WEIR_INVARIANT(ctx->w == set->w);
    *ret = (struct weir_completion){.user_data = cq_user_data(r),
                                    .acquisition = acquisition,
                                    .result = result,
                                    .refusal.size = sizeof(ret->refusal)};
    if (result == 0 && !acquisition) {
        ret->acquisition = acquisition_from_record(ctx, set, record, waiter);
        if (!ret->acquisition)
            return false;
        ret->acquisition->strict = (record_wait_target(r) & WAIT_TARGET_STRICT) != 0;
    }
    if (result == -EAGAIN || result == -ENOBUFS || result == -ETIMEDOUT)
        cq_fill_refusal(&(struct acquire_op){.ctx = ctx, .set = set}, record, ret);
    if (events_are_on(set->w))
        cq_tell_completion(set, record, acquisition, ret);
    if (ret->acquisition) {
        cq_hand_out(ret->acquisition, result);
    } else {
        set_free_ended_record(set, record);
        waiter_free(set, waiter);
        record_pool_put(ctx, set, record);
    }
    return true;
}

/* Fills `ret` with the context of the calling thread. Returns false if out of memory. */
static bool cq_reap_one(weir *w, uint32_t record, struct weir_completion *ret)
{
    weir_set *set = set_of_record(waiter_set(w, record));
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    bool completed = cq_fill_completion(ctx, set, record, ret);

    thread_ctx_return(ctx);
    return completed;
}

/* Pops at most `n` completions, after a run of the timer if `is_first`. */
static unsigned cq_pop_batch(weir_queue *queue, uint32_t *ret, unsigned n, bool is_first)
{
    weir *w = queue->timer.w;
    uint64_t injected_ns = is_first && w->clock.injected.now_ns ? clock_now_ns(&w->clock) : 0;
    unsigned popped = 0;

    if (injected_ns) {
        wall_watch_tick(w);
        hold_watch_run(w);
        wait_group_withdraw(w);
    }
    lock_take(&queue->timer.lock);
    if (is_first) {
        queue->timer.wake_fd.reader_active = true; /* completions of this run cost no signal */
        timer_run_locked(&queue->timer, injected_ns);
    }
    while (popped < n && popped < CQ_REAP_BATCH && queue->to_reap.first)
        ret[popped++] = cq_pop(queue);
    queue->timer.wake_fd.reader_active = false;
    cq_update_wake_fd(queue);
    lock_release(&queue->timer.lock);
    return popped;
}

/* Puts completions back in front that could not be handed out, and signals again: the caller
 * returns fewer than it has room for, which tells an edge-triggered loop that the queue is empty.
 */
static void cq_push_back(weir_queue *queue, const uint32_t *records, unsigned n)
{
    lock_take(&queue->timer.lock);
    while (n > 0) {
        uint32_t record = records[--n];
        struct acq_record *r = cq_record(queue, record);
        struct cq_list *list = cq_completions(queue, r);

        cq_list_link(queue, list, record, list->first);
        cq_list_link(queue, list, 0, record);
        if (record_state(waiter_word(queue->timer.w, record)) == RECORD_HELD && !cq_acquisition(r))
            cq_index_add(queue, cq_bucket(queue, cq_user_data(r)), record);
    }
    if (queue->to_post.first)
        cq_ring_continue(queue);
    wake_fd_signal_again(&queue->timer.wake_fd);
    lock_release(&queue->timer.lock);
}

/* Fills completions of the records that were popped. If that are fewer, `*ret_code` says why. */
static unsigned cq_reap_batch(weir_queue *queue, const uint32_t *records, unsigned popped,
                              struct weir_completion *out, int *ret_code)
{
    unsigned done = 0;

    WEIR_INVARIANT(popped <= CQ_REAP_BATCH);
    while (done < popped && cq_reap_one(queue->timer.w, records[done], &out[done]))
        done++;
    if (done < popped) {
        cq_push_back(queue, records + done, popped - done);
        *ret_code = -ENOMEM;
    }
    WEIR_INVARIANT(done <= atomic_load_explicit(&queue->pending, memory_order_relaxed));
    atomic_fetch_sub_explicit(&queue->pending, done, memory_order_seq_cst);
    return done;
}

/* Handles what other processes did. Completions that come of it cost no signal, as after it
 * cq_pop_batch() takes them. */
static void cq_handle_peer_events(weir_queue *queue)
{
    if (!atomic_load_explicit(&queue->timer.peer_events, memory_order_acquire))
        return;
    lock_take(&queue->timer.lock);
    queue->timer.wake_fd.reader_active = true;
    lock_release(&queue->timer.lock);
    peer_events_handle_all(&queue->timer);
}

int weir_queue_reap(weir_queue *queue, struct weir_completion *out, unsigned n)
{
    uint32_t records[CQ_REAP_BATCH];
    unsigned done = 0, popped;
    int r = 0;

    if (!queue || (!out && n))
        return -EINVAL;
    if (instance_is_forked(queue->timer.w))
        return -ECHILD;
    if (n > INT32_MAX)
        n = INT32_MAX;
    cq_handle_peer_events(queue);
    do {
        popped = cq_pop_batch(queue, records, n - done, done == 0);
        cq_ring_report_loss(queue);
        if (popped > 0)
            done += cq_reap_batch(queue, records, popped, out + done, &r);
        WEIR_INVARIANT(done <= n);
    } while (r == 0 && popped == CQ_REAP_BATCH && done < n);
    return done ? (int)done : r;
}

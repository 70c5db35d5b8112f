/* SPDX-License-Identifier: MIT */
/* Posting completions to rings: attach, post, detach. */
#include "wait/cq.h"

#include "base/invariant.h"
#include "base/thread_exit.h"
#include "os/os.h"
#include "os/os_uring.h"
#include <errno.h>
#include <string.h>

/* ---- with the queue's lock ---- */

static void cq_ring_move(weir_queue *queue, struct cq_list *from, struct cq_list *to,
                         uint32_t record)
{
    WEIR_INVARIANT(from != to);
    cq_list_remove(queue, from, record);
    cq_list_append(queue, to, record);
}

static void cq_ring_unpost_all(weir_queue *queue)
{
    while (queue->to_post.first)
        cq_ring_move(queue, &queue->to_post, &queue->to_reap, queue->to_post.first);
}

/* Ends posting: completions to post become completions to reap. */
static void cq_ring_fail(weir_queue *queue, int failure)
{
    WEIR_INVARIANT(failure < 0);
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    queue->ring.is_lost = true;
    atomic_store_explicit(&queue->ring_loss, failure, memory_order_seq_cst);
    cq_ring_unpost_all(queue);
    timer_thread_signal(queue->timer.w); /* without the thread, the next reap reports the loss */
}

/* Sends the first completions of the list, and hands them out: the program has them from then on.
 * Returns 0, or why one of them was not sent. */
static int cq_ring_send_some(weir_queue *queue)
{
    struct os_uring_message messages[OS_URING_MESSAGES_MAX];
    uint32_t records[OS_URING_MESSAGES_MAX], record = queue->to_post.first;
    unsigned n = 0;
    int failure = 0;

    WEIR_INVARIANT(record && queue->ring.uring);
    for (; record && n < OS_URING_MESSAGES_MAX;
         record = cq_link(cq_record(queue, record), CQ_NEXT)) {
        records[n] = record;
        messages[n++] =
            (struct os_uring_message){.user_data = cq_user_data(cq_record(queue, record)),
                                      .result = cq_result(queue->timer.w, record)};
    }
    os_uring_send(queue->ring.uring, messages, n);
    for (unsigned i = 0; i < n; i++) {
        if (messages[i].code) {
            failure = failure ? failure : messages[i].code;
            continue;
        }
        WEIR_INVARIANT(cq_acquisition(cq_record(queue, records[i])));
        WEIR_INVARIANT(atomic_load_explicit(&queue->pending, memory_order_relaxed) > 0);
        cq_list_remove(queue, &queue->to_post, records[i]);
        cq_hand_out(cq_acquisition(cq_record(queue, records[i])), messages[i].result);
        atomic_fetch_sub_explicit(&queue->pending, 1, memory_order_seq_cst);
    }
    return failure;
}

void cq_ring_flush(weir_queue *queue)
{
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    while (queue->to_post.first && cq_ring_is_on(&queue->ring)) {
        int r = thread_exit_has_ended(queue->ring.owner) ? -EOWNERDEAD : cq_ring_send_some(queue);

        if (r < 0)
            cq_ring_fail(queue, r);
    }
}

void cq_ring_continue(weir_queue *queue)
{
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    WEIR_INVARIANT(cq_ring_is_on(&queue->ring));
    if (os_uring_any_thread(queue->ring.uring))
        cq_ring_flush(queue);
    else if (!timer_thread_signal(queue->timer.w))
        cq_ring_fail(queue, -EIO);
}

/* ---- without the lock ---- */

/* Closes the parts of a ring that no queue uses any more. */
static void cq_ring_close_parts(const struct cq_ring *ring)
{
    os_uring_close(ring->uring);
    thread_exit_unref(ring->owner);
}

static void cq_ring_log(weir *w, const char *what, int why)
{
    log_write(&w->log, WEIR_LOG_WARNING, "%s; reap the completions instead: %s", what,
              strerrordesc_np(-why));
}

void cq_ring_report_loss(weir_queue *queue)
{
    struct os_uring *uring = NULL;
    int loss;

    /* Relaxed: a hint; the exchange makes it certain. */
    if (!atomic_load_explicit(&queue->ring_loss, memory_order_relaxed))
        return;
    lock_take(&queue->timer.lock);
    loss = atomic_exchange_explicit(&queue->ring_loss, 0, memory_order_seq_cst);
    WEIR_INVARIANT(loss <= 0);
    if (queue->ring.is_lost) { /* not if another ring was attached since */
        uring = queue->ring.uring;
        queue->ring.uring = NULL;
    }
    lock_release(&queue->timer.lock);
    os_uring_close(uring);
    if (loss)
        cq_ring_log(queue->timer.w, "a completion queue can no longer post to its ring", loss);
}

void cq_ring_end(weir_queue *queue)
{
    struct cq_ring old_ring;

    lock_take(&queue->timer.lock);
    old_ring = queue->ring;
    queue->ring = (struct cq_ring){0};
    cq_ring_unpost_all(queue);
    queue->timer.advance_ns = 0;
    if (old_ring.has_timer)
        os_epoll_remove(wake_fd_pollable(&instance_wait(queue->timer.w)->timer.wake_fd),
                        queue->timer.wake_fd.timer_fd);
    peer_events_end_relay(&queue->timer);
    cq_update_wake_fd(queue);
    lock_release(&queue->timer.lock);
    if (old_ring.uring)
        os_uring_flush(old_ring.uring);
    cq_ring_close_parts(&old_ring);
    cq_ring_report_loss(queue);
}

void cq_ring_end_in_child(weir_queue *queue)
{
    cq_ring_close_parts(&queue->ring);
    queue->ring = (struct cq_ring){0};
}

int weir_queue_detach(weir_queue *queue)
{
    if (!queue)
        return -EINVAL;
    if (instance_is_forked(queue->timer.w))
        return -ECHILD;
    cq_ring_end(queue);
    return 0;
}

/* ---- attaching ---- */

/* Moves completions that were decided before the queue was attached, so that they are posted
 * first. */
static void cq_ring_collect(weir_queue *queue)
{
    uint32_t record = queue->to_reap.first, next;

    for (; record; record = next) {
        next = cq_link(cq_record(queue, record), CQ_NEXT);
        if (cq_acquisition(cq_record(queue, record)))
            cq_ring_move(queue, &queue->to_reap, &queue->to_post, record);
    }
}

/* Adds the queue's timer and peer events to the timer thread's epoll set, unless a lost ring left
 * them there. */
static int cq_ring_register_timer(weir_queue *queue)
{
    const struct wake_fd *wake_fd = &queue->timer.wake_fd;
    int epoll_fd = wake_fd_pollable(&instance_wait(queue->timer.w)->timer.wake_fd), r = 0;

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    if (queue->ring.has_timer)
        return 0;
    r = os_epoll_add_edge(epoll_fd, wake_fd->timer_fd, queue->timer.number);
    if (r < 0)
        return r;
    r = peer_events_relay(&queue->timer);
    if (r < 0)
        os_epoll_remove(epoll_fd, wake_fd->timer_fd);
    return r;
}

/* Exchanges `*ring` with the queue's ring, which was lost or never attached. Lock held. */
static int cq_ring_switch(weir_queue *queue, struct cq_ring *ring)
{
    weir *w = queue->timer.w;
    struct cq_ring old = queue->ring;
    int r;

    WEIR_INVARIANT(queue->buckets);
    WEIR_INVARIANT(ring->uring && !ring->is_lost);
    /* weir_close() sets this before it visits the attached queues under their locks. */
    if (instance_is_closed(w))
        return -ESHUTDOWN;
    if (cq_ring_is_on(&old))
        return -EBUSY;
    ring->has_timer = !w->clock.injected.now_ns;
    r = ring->has_timer ? cq_ring_register_timer(queue) : 0;
    if (r < 0)
        return r;
    queue->ring = *ring;
    queue->timer.advance_ns = ring->has_timer ? instance_wait(w)->timer_advance_ns : 0;
    *ring = old;
    cq_ring_collect(queue);
    if (queue->to_post.first)
        cq_ring_continue(queue);
    cq_watch(queue); /* by the timer thread */
    return 0;
}

static int cq_ring_attach(weir_queue *queue, struct cq_ring *ring)
{
    weir *w = queue->timer.w;
    int r = 0;

    ring->owner = thread_exit_ref();
    if (!ring->owner)
        return -ENOMEM;
    /* With an injected clock no thread is needed, if every thread may send. */
    if (!w->clock.injected.now_ns || !os_uring_any_thread(ring->uring))
        r = timer_thread_start(w);
    if (r < 0)
        return r;
    cq_ring_report_loss(queue); /* of an earlier ring */
    lock_take(&queue->timer.lock);
    r = cq_ring_switch(queue, ring);
    lock_release(&queue->timer.lock);
    return r;
}

int weir_queue_attach(weir_queue *queue, int ring_fd)
{
    struct cq_ring ring = {0};
    weir *w = queue ? queue->timer.w : NULL;
    int r;

    if (!queue)
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    r = os_uring_open(&ring.uring, ring_fd);
    if (r == -EPERM || r == -EACCES || r == -ENOSYS) {
        if (!atomic_exchange_explicit(&instance_wait(w)->ring_refusal_reported, true,
                                      memory_order_seq_cst))
            cq_ring_log(w, "completion queues cannot post to rings here", r);
        return 1;
    }
    if (r == 0)
        r = cq_ring_attach(queue, &ring);
    cq_ring_close_parts(&ring);
    return r;
}

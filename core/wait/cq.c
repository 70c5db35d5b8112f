/* SPDX-License-Identifier: MIT */
/* Completion queues: the index by user_data, the completions in order, opening and closing. */
#include "wait/cq.h"
#include "set/waiter.h"

#include "base/compiler.h"
#include "base/invariant.h"
#include "os/os.h"
#include "set/events.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include <errno.h>

/* ---- with the lock: the index and the lists ---- */

/* Returns whether the neighbors of a record and the ends of the list agree with its links. */
static inline bool cq_list_has(const weir_queue *queue, const struct cq_list *list, uint32_t record)
{
    const struct acq_record *r = cq_record(queue, record);
    uint32_t next = cq_link(r, CQ_NEXT), previous = cq_link(r, CQ_PREVIOUS);

    if ((next ? cq_link(cq_record(queue, next), CQ_PREVIOUS) : list->last) != record)
        return false;
    return (previous ? cq_link(cq_record(queue, previous), CQ_NEXT) : list->first) == record;
}

void cq_list_remove(const weir_queue *queue, struct cq_list *list, uint32_t record)
{
    const struct acq_record *r = cq_record(queue, record);

    WEIR_INVARIANT(record && cq_list_has(queue, list, record));
    cq_list_link(queue, list, cq_link(r, CQ_PREVIOUS), cq_link(r, CQ_NEXT));
}

static void cq_set_bucket_prev(struct acq_record *r, uint32_t record)
{
    WEIR_INVARIANT(record <= RECORD_LINK_MASK);
    record_set_prev_flags(r, (record_prev_flags(r) & ~(uint32_t)RECORD_LINK_MASK) | record);
}

void cq_index_add(const weir_queue *queue, _Atomic uint32_t *bucket, uint32_t record)
{
    struct acq_record *r = cq_record(queue, record);
    uint32_t flags = record_prev_flags(r), next = cq_bucket_first(bucket);

    WEIR_INVARIANT(record && timer_is_locked(&queue->timer));
    WEIR_INVARIANT(bucket == cq_bucket(queue, cq_user_data(r)));
    if (flags & RECORD_INDEXED)
        return;
    WEIR_INVARIANT(next != record);
    r->bucket_next = next;
    record_set_prev_flags(r, (flags & ~(uint32_t)RECORD_LINK_MASK) | RECORD_INDEXED);
    if (next)
        cq_set_bucket_prev(cq_record(queue, next), record);
    atomic_store_explicit(bucket, record, memory_order_relaxed);
}

/* Returns whether the neighbors of an indexed record, or its bucket, agree with its links. */
static inline bool cq_is_linked(const weir_queue *queue, uint32_t record)
{
    const struct acq_record *r = cq_record(queue, record);
    uint32_t before = record_prev_flags(r) & RECORD_LINK_MASK, next = r->bucket_next;

    if (next && (record_prev_flags(cq_record(queue, next)) & RECORD_LINK_MASK) != record)
        return false;
    return record == (before ? cq_record(queue, before)->bucket_next
                             : cq_bucket_first(cq_bucket(queue, cq_user_data(r))));
}

void cq_index_remove(weir_queue *queue, uint32_t record)
{
    struct acq_record *r = cq_record(queue, record);
    uint32_t before = record_prev_flags(r) & RECORD_LINK_MASK;

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    if (!(record_prev_flags(r) & RECORD_INDEXED))
        return;
    WEIR_INVARIANT(cq_is_linked(queue, record));
    record_set_prev_flags(r, record_prev_flags(r) & ~RECORD_INDEXED);
    if (r->bucket_next)
        cq_set_bucket_prev(cq_record(queue, r->bucket_next), before);
    if (before)
        cq_record(queue, before)->bucket_next = r->bucket_next;
    else
        atomic_store_explicit(cq_bucket(queue, cq_user_data(r)), r->bucket_next,
                              memory_order_relaxed);
}

void cq_prefetch_delivery(const weir_queue *queue, const struct acq_record *r)
{
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    prefetch_write(&cq_record(queue, record_prev_flags(r) & RECORD_LINK_MASK)->bucket_next);
    prefetch_write(&cq_record(queue, r->bucket_next)->bucket_prev_flags);
    if (r->heap_index && !(record_prev_flags(r) & RECORD_DELIVERED))
        deadline_heap_prefetch(&queue->timer.heap, r);
}

struct cq_list *cq_completions(weir_queue *queue, const struct acq_record *r)
{
    return cq_acquisition(r) && cq_ring_is_on(&queue->ring) ? &queue->to_post : &queue->to_reap;
}

void cq_update_wake_fd(weir_queue *queue)
{
    struct wake_fd *wake_fd = &queue->timer.wake_fd;

    if (wake_fd->reader_active)
        return;
    if (queue->to_reap.first || wake_fd->failing)
        wake_fd_signal(wake_fd);
    else
        wake_fd_clear(wake_fd);
}

void cq_watch(weir_queue *queue)
{
    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    wake_fd_watch(&queue->timer.wake_fd);
    cq_update_wake_fd(queue);
}

bool cq_complete(weir_queue *queue, uint32_t record, uint64_t word)
{
    struct acq_record *r = cq_record(queue, record);
    bool is_indexed = record_prev_flags(r) & RECORD_INDEXED;
    bool is_cancelable = record_state(word) == RECORD_HELD && !cq_acquisition(r);

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    WEIR_INVARIANT(atomic_load_explicit(&queue->pending, memory_order_relaxed) > 0);
    WEIR_INVARIANT(record_state(word) != RECORD_WAITING || waiter_is_proxy(r));
    if (r->heap_index)
        deadline_heap_prefetch(&queue->timer.heap, r);
    if (is_cancelable && !is_indexed)
        cq_index_add(queue, cq_bucket(queue, cq_user_data(r)), record);
    else if (is_indexed && !is_cancelable)
        cq_index_remove(queue, record);
    if (r->heap_index)
        deadline_heap_remove_known(&queue->timer.heap, record);
    cq_set_flag(r, RECORD_DELIVERED);
    cq_list_append(queue, cq_completions(queue, r), record);
    if (queue->to_post.first)
        cq_ring_continue(queue);
    return queue->to_reap.first && wake_fd_claim(&queue->timer.wake_fd);
}

int cq_result(const weir *w, uint32_t record)
{
    const weir_set *set = waiter_set(w, record);
    enum record_state state = set_used_record_state(set, waiter_record(w, record));

    if (state != RECORD_WAITING || !set_is_shared(set))
        return acquisition_result_of(state);
    participant_mark_broken(set->participant);
    return acquisition_result_of(RECORD_BROKEN);
}

/* ---- without locks ---- */

weir_queue *cq_at(const weir *w, uint32_t number)
{
    WEIR_INVARIANT(number > 0 && number <= cq_count(w));
    return *stable_array_at(&instance_wait(w)->queues, number);
}

void cq_drop(weir_queue *queue, uint32_t record)
{
    struct acq_record *r = cq_record(queue, record);

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    cq_index_remove(queue, record);
    deadline_heap_remove(&queue->timer.heap, record);
    if (record_prev_flags(r) & RECORD_DELIVERED)
        cq_list_remove(queue, cq_completions(queue, r), record);
    cq_set_flag(r, RECORD_DELIVERED);
}

weir_queue *cq_lock_of(weir_acquisition *acquisition)
{
    weir_queue *queue = atomic_load_explicit(&acquisition->queue, memory_order_seq_cst);

    if (!queue)
        return NULL;
    lock_take(&queue->timer.lock);
    if (atomic_load_explicit(&acquisition->queue, memory_order_seq_cst))
        return queue;
    lock_release(&queue->timer.lock);
    return NULL;
}

bool cq_has_acquisition(weir_acquisition *acquisition)
{
    weir_queue *queue = cq_lock_of(acquisition);

    if (queue)
        lock_release(&queue->timer.lock);
    return queue != NULL;
}

void cq_forget_acquisition(weir_acquisition *acquisition)
{
    weir_queue *queue = cq_lock_of(acquisition);

    if (!queue)
        return;
    WEIR_INVARIANT(acquisition->waiter);
    WEIR_INVARIANT(atomic_load_explicit(&queue->pending, memory_order_relaxed) > 0);
    cq_drop(queue, acquisition->waiter);
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_seq_cst);
    cq_update_wake_fd(queue);
    /* Before the unlock: afterwards another thread may close the queue and reuse it. */
    atomic_fetch_sub_explicit(&queue->pending, 1, memory_order_seq_cst);
    lock_release(&queue->timer.lock);
}

/* ---- opening and closing ---- */

/* Returns a queue in new memory, or NULL. The instance's lock is held. */
static weir_queue *cq_alloc(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    uint32_t number = cq_count(w) + 1;
    weir_queue *queue;

    if (number > WAIT_TARGET_CQ_MAX || stable_array_reserve(&iw->queues, number + 1) < 0)
        return NULL;
    queue = os_alloc_aligned(_Alignof(weir_queue), sizeof(*queue));
    if (!queue)
        return NULL;
    timer_init(&queue->timer, w, number);
    *stable_array_at(&iw->queues, number) = queue;
    atomic_store_explicit(&iw->queues_n, number, memory_order_seq_cst);
    return queue;
}

/* Gets a queue in new memory, or in that of a closed one. */
static int cq_get(weir *w, weir_queue **ret)
{
    struct instance_wait *iw = instance_wait(w);
    int r = -ESHUTDOWN;

    pthread_mutex_lock(&w->lock);
    if (!instance_is_closed(w)) {
        *ret = iw->closed_queues ? iw->closed_queues : cq_alloc(w);
        if (*ret)
            iw->closed_queues = (*ret)->next_closed;
        r = *ret ? 0 : -ENOMEM;
    }
    pthread_mutex_unlock(&w->lock);
    return r;
}

/* Frees what an open queue has, and keeps its memory for another one. */
static void cq_put(weir_queue *queue)
{
    weir *w = queue->timer.w;

    lock_take(&queue->timer.lock);
    WEIR_INVARIANT(!queue->to_reap.first && !queue->to_post.first);
    WEIR_INVARIANT(!atomic_load_explicit(&queue->pending, memory_order_relaxed));
    os_free((void *)(uintptr_t)queue->buckets);
    queue->buckets = NULL;
    deadline_heap_free(&queue->timer.heap);
    atomic_store_explicit(&queue->heap_room, 0, memory_order_seq_cst);
    peer_events_close(&queue->timer);
    wake_fd_close(&queue->timer.wake_fd);
    lock_release(&queue->timer.lock);

    pthread_mutex_lock(&w->lock);
    queue->next_closed = instance_wait(w)->closed_queues;
    instance_wait(w)->closed_queues = queue;
    pthread_mutex_unlock(&w->lock);
}

/* Allocates half a bucket to one bucket per submission: more would cost memory, fewer longer
 * searches. */
static int cq_make_buckets(weir_queue *queue, uint32_t capacity)
{
    uint32_t bits = 6;

    WEIR_INVARIANT(!queue->buckets);
    WEIR_INVARIANT(capacity > 0 && capacity <= WEIR_QUEUE_CAPACITY_MAX);
    while (UINT32_C(2) << bits <= capacity)
        bits++;
    queue->bucket_shift = (uint8_t)(64 - bits);
    queue->buckets = os_alloc((size_t)1 << bits, sizeof(*queue->buckets));
    return queue->buckets ? 0 : -ENOMEM;
}

int weir_queue_open(weir_queue **ret, weir *w, unsigned capacity)
{
    weir_queue *queue;
    bool gathers;
    int r;

    if (!ret || !w || !capacity || capacity > WEIR_QUEUE_CAPACITY_MAX)
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    r = cq_get(w, &queue);
    if (r < 0)
        return r;
    /* The queue's own descriptor gathers doorbells if shared sets are likely. Otherwise the timer
     * thread relays them (peer_events.c). */
    gathers =
        atomic_load_explicit(&w->has_shared_sets, memory_order_seq_cst) || w->clock.injected.now_ns;
    lock_take(&queue->timer.lock);
    WEIR_INVARIANT(!queue->to_reap.first && !queue->to_post.first);
    WEIR_INVARIANT(!queue->timer.heap.n);
    queue->capacity = capacity;
    r = cq_make_buckets(queue, capacity);
    if (r == 0)
        r = wake_fd_open(&queue->timer.wake_fd, gathers);
    lock_release(&queue->timer.lock);
    if (r < 0) {
        cq_put(queue);
        return r;
    }
    instance_ref(w, 1);
    *ret = queue;
    return 0;
}

int weir_queue_fd(weir_queue *queue)
{
    if (!queue)
        return -EINVAL;
    if (instance_is_forked(queue->timer.w))
        return -ECHILD;
    if (!wake_fd_is_watched(&queue->timer.wake_fd)) {
        lock_take(&queue->timer.lock);
        cq_watch(queue);
        lock_release(&queue->timer.lock);
    }
    return wake_fd_pollable(&queue->timer.wake_fd);
}

/* Returns a submission that waits, or 0. Completes those that were decided, without a signal. */
static uint32_t cq_find_waiting(weir_queue *queue, uint32_t *bucket)
{
    uint32_t buckets = UINT32_C(1) << (64 - queue->bucket_shift);

    WEIR_INVARIANT(timer_is_locked(&queue->timer));
    WEIR_INVARIANT(*bucket <= buckets);
    while (*bucket < buckets) {
        uint32_t record = cq_bucket_first(&queue->buckets[*bucket]);

        if (!record) {
            ++*bucket;
            continue;
        }
        if (record_state(waiter_word(queue->timer.w, record)) == RECORD_WAITING)
            return record;
        if (!(record_prev_flags(cq_record(queue, record)) & RECORD_DELIVERED))
            cq_complete(queue, record, waiter_word(queue->timer.w, record));
        cq_index_remove(queue, record);
    }
    return 0;
}

/* Takes any one submission out of the queue, first those that wait: they must not be granted what
 * others return. Returns false if there is none. */
static bool cq_drop_any(weir_queue *queue, uint32_t *bucket, struct cq_snapshot *ret)
{
    uint32_t record;

    lock_take(&queue->timer.lock);
    queue->timer.wake_fd.reader_active = true;
    record = cq_find_waiting(queue, bucket);
    if (!record)
        record = queue->to_reap.first;
    if (record) {
        weir_acquisition *acquisition = cq_acquisition(cq_record(queue, record));

        *ret =
            (struct cq_snapshot){record, waiter_word(queue->timer.w, record),
                                 set_of_record(waiter_set(queue->timer.w, record)), !acquisition};
        cq_drop(queue, record);
        if (acquisition)
            atomic_store_explicit(&acquisition->queue, NULL, memory_order_seq_cst);
    }
    lock_release(&queue->timer.lock);
    return record != 0;
}

/* Ends a submission. An acquisition that the program has remains, and may be released at any time:
 * only the word that was found may be used on its record. */
static void cq_end_submission(const struct cq_snapshot *snapshot)
{
    weir_set *set = snapshot->set;
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    uint32_t record = waiter_record(set->w, snapshot->record);

    WEIR_INVARIANT(snapshot->record);
    if (record_state(snapshot->word) == RECORD_WAITING)
        set->ops->cancel_wait(ctx, set, record, snapshot->word, RECORD_CANCELED);
    if (snapshot->is_exclusive) {
        uint64_t word = waiter_word(set->w, snapshot->record);

        if (record_state(word) == RECORD_HELD && !acquisition_undo(ctx, set, record, word))
            word = waiter_word(set->w, snapshot->record); /* it was revoked */
        if (record_state(word) != RECORD_FREE && record_state(word) != RECORD_HELD)
            set_free_ended_record(set, record);
        waiter_free(set, snapshot->record);
        record_pool_put(ctx, set, record);
    }
    thread_ctx_return(ctx);
}

/* Returns what a submission is told to have ended with as its queue is closed. */
static int cq_end_result(const struct cq_snapshot *snapshot)
{
    enum record_state state = record_state(waiter_word(snapshot->set->w, snapshot->record));

    return state == RECORD_WAITING || state == RECORD_HELD ? -ECANCELED
                                                           : acquisition_result_of(state);
}

weir_queue *weir_queue_close(weir_queue *queue)
{
    uint32_t bucket = 0;
    weir *w = queue ? queue->timer.w : NULL;
    struct cq_snapshot snapshot;

    if (!queue)
        return NULL;
    if (instance_is_forked(w)) {
        peer_events_close_in_child(&queue->timer);
        wake_fd_close(&queue->timer.wake_fd);
        cq_ring_end_in_child(queue);
        return NULL;
    }
    cq_ring_end(queue);
    while (cq_drop_any(queue, &bucket, &snapshot)) {
        if (snapshot.is_exclusive && events_are_on(w) && !snapshot.set->ops->winner)
            event_tell_decision(snapshot.set, waiter_record(w, snapshot.record),
                                cq_end_result(&snapshot), NULL, NULL, NULL);
        cq_end_submission(&snapshot);
    }
    atomic_store_explicit(&queue->pending, 0, memory_order_seq_cst);
    wake_fd_await_users(&queue->timer.wake_fd);
    cq_put(queue);
    wait_group_withdraw(w);
    instance_unref(w, 1);
    return NULL;
}

void cq_free_all(weir *w)
{
    uint32_t n = cq_count(w);

    for (uint32_t i = 1; i <= n; i++) {
        deadline_heap_free(&cq_at(w, i)->timer.heap);
        os_free(cq_at(w, i));
    }
    stable_array_free(&instance_wait(w)->queues);
}

void cq_prefetch_target(const weir *w, const struct acq_record *r)
{
    uint32_t target = record_wait_target(r);

    if (wait_target_kind(target) == WAIT_TARGET_CQ) {
        const weir_queue *queue = cq_at(w, wait_target_cq(target));

        prefetch_write(&queue->timer.lock);
        prefetch_read(&queue->timer.heap);
        prefetch_write(&queue->to_reap);
    } else if (wait_target_kind(target) == WAIT_TARGET_TIMER) {
        /* The record may wait no more, and have no acquisition: a number, not a pointer. */
        prefetch_write(
            (const void *)(uintptr_t)(record_load(&r->data) + offsetof(weir_acquisition, fd)));
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * Completion queues. A queue is a wait timer that notifies by completions and is run by its reaper.
 * A submission is a record and nothing else. The queue finds it by user_data while it can be
 * canceled, and hands out its completion once it is decided, in the order of decisions.
 */
#ifndef WEIR_CORE_WAIT_CQ_H
#define WEIR_CORE_WAIT_CQ_H

#include "base/compiler.h"
#include "wait/acquisition_handle.h"
#include "wait/wait_timer.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/queue.h>

#define CACHE_LINE 64

/* A list of completions: decided records, the earliest decision first. */
struct cq_list {
    uint32_t first, last;
};

/* Links of a record's cq_links. */
enum cq_link { CQ_NEXT, CQ_PREVIOUS };

/* Relaxed: the queue's lock orders them. */
static inline uint32_t cq_link(const struct acq_record *r, enum cq_link link)
{
    return atomic_load_explicit(&r->cq_links[link], memory_order_relaxed);
}

static inline void cq_set_link(struct acq_record *r, enum cq_link link, uint32_t record)
{
    atomic_store_explicit(&r->cq_links[link], record, memory_order_relaxed);
}

struct os_uring;
struct thread_exit_state;

/* The ring of a completion queue; all 0: not attached. */
struct cq_ring {
    struct os_uring *uring;          /* NULL also once its loss was reported */
    struct thread_exit_state *owner; /* exit state of the thread that takes the CQEs */
    bool is_lost;                    /* it can no longer be posted to */
    bool has_timer;                  /* the timer thread's epoll set has the queue's timer */
};

struct weir_queue {
    struct wait_timer timer; /* its lock protects all; its wake fd signals completions */
    struct weir_queue *next_closed;
    uint8_t bucket_shift;

    /* One cache line, with everything else that a hand-over writes. */
    _Alignas(CACHE_LINE) struct cq_list to_reap; /* completions to reap */
    struct cq_list to_post;                      /* completions to post to the program's ring */
    struct cq_ring ring;
    _Atomic int ring_loss; /* why a ring was lost, to be reported, negative errno; or 0 */
    uint32_t capacity;
    _Atomic uint32_t *buckets;  /* first record of each, by user_data */
    _Atomic uint32_t pending;   /* submitted and not reaped */
    _Atomic uint32_t heap_room; /* entries that fit into the heap; grows under the lock */
};

static inline weir_queue *cq_of_timer(struct wait_timer *timer)
{
    WEIR_INVARIANT(timer->number);
    return (weir_queue *)(uintptr_t)timer; /* its first member */
}

/* ---- with the lock ---- */

static inline struct acq_record *cq_record(const weir_queue *queue, uint32_t record)
{
    return record_known(queue->timer.heap.region, record);
}

/* Makes `next` follow `previous`. 0 stands for either end of the list. */
WEIR_ALWAYS_INLINE void cq_list_link(const weir_queue *queue, struct cq_list *list,
                                     uint32_t previous, uint32_t next)
{
    if (previous)
        cq_set_link(cq_record(queue, previous), CQ_NEXT, next);
    else
        list->first = next;
    if (next)
        cq_set_link(cq_record(queue, next), CQ_PREVIOUS, previous);
    else
        list->last = previous;
}

static inline void cq_list_append(const weir_queue *queue, struct cq_list *list, uint32_t record)
{
    WEIR_INVARIANT(record && record != list->last);
    WEIR_INVARIANT(!list->first == !list->last);
    cq_list_link(queue, list, list->last, record);
    cq_list_link(queue, list, record, 0);
}

void cq_list_remove(const weir_queue *queue, struct cq_list *list, uint32_t record);

/* Returns the result of a submission with a due completion. If a shared record still waits, marks
 * its set broken. */
int cq_result(const weir *w, uint32_t record);

static inline void cq_set_flag(struct acq_record *r, uint32_t flag)
{
    record_set_prev_flags(r, record_prev_flags(r) | flag);
}

static inline weir_acquisition *cq_acquisition(const struct acq_record *r)
{
    return record_prev_flags(r) & RECORD_HAS_ACQUISITION
               ? (weir_acquisition *)(uintptr_t)record_load(&r->data)
               : NULL;
}

static inline uint64_t cq_user_data(const struct acq_record *r)
{
    const weir_acquisition *acquisition = cq_acquisition(r);

    return acquisition ? acquisition->user_data : record_load(&r->data);
}

/* Returns the bucket of `user_data`. Neighboring numbers or addresses have neighboring buckets: a
 * cache line each would be most of the cost of a submission. */
static inline _Atomic uint32_t *cq_bucket(const weir_queue *queue, uint64_t user_data)
{
    uint64_t block = (user_data >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> queue->bucket_shift;

    WEIR_INVARIANT(queue->buckets && queue->bucket_shift <= 58);
    return &queue->buckets[(block & ~UINT64_C(63)) | ((block + user_data) & 63)];
}

static inline uint32_t cq_bucket_first(const _Atomic uint32_t *bucket)
{
    return atomic_load_explicit(bucket, memory_order_relaxed);
}

/*
 * The index by user_data has the submissions that can be canceled; two lists have the completions.
 * The first record of a bucket is loaded relaxed: the lock orders it, and cq_submit.c reads it
 * without the lock only to prefetch. cq_complete() takes a decided record from the index and the
 * heap and lists its completion; a grant that can be canceled stays in the index. It returns
 * whether the caller must call timer_signal() after it has released the lock. cq_drop() takes the
 * record out of everything. cq_completions() returns the list that a record's completion belongs
 * to.
 */
void cq_index_add(const weir_queue *queue, _Atomic uint32_t *bucket, uint32_t record);
/* Prefetches what cq_complete() and cq_drop() write besides the record. */
void cq_prefetch_delivery(const weir_queue *queue, const struct acq_record *r);
void cq_index_remove(weir_queue *queue, uint32_t record);
bool cq_complete(weir_queue *queue, uint32_t record, uint64_t word);
void cq_drop(weir_queue *queue, uint32_t record);
struct cq_list *cq_completions(weir_queue *queue, const struct acq_record *r);

/* Hands a completion out: the owner of the acquisition knows its result from here on. */
void cq_hand_out(weir_acquisition *acquisition, int result);
/* Signals the wake fd if there are completions to reap, and clears it if there are none. */
void cq_update_wake_fd(weir_queue *queue);
/* Signals the wake fd from now on: a thread may wait for it. */
void cq_watch(weir_queue *queue);

/* A submission as it was found under the lock. */
struct cq_snapshot {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool is_exclusive; /* undone or closed: no other thread knows the record */
};

/* ---- without locks, any thread ---- */

/* Returns how many numbers of queues were given out, the first of which is 1. */
static inline uint32_t cq_count(const weir *w)
{
    return atomic_load_explicit(&instance_wait(w)->queues_n, memory_order_seq_cst);
}

/* Returns the queue with a number that was given out. */
weir_queue *cq_at(const weir *w, uint32_t number);

/* Locks and returns the queue that has yet to hand out the acquisition's completion, or returns
 * NULL. Another thread may hand it out at any time, so only the lock makes the answer certain. */
weir_queue *cq_lock_of(weir_acquisition *acquisition);

/*
 * For an acquisition that the program received with its submission. cq_has_acquisition() returns
 * whether a queue has yet to hand out its completion. cq_forget_acquisition(), for a release, makes
 * sure that none follows. cq_cancel_acquisition() returns 0 or -EALREADY.
 */
bool cq_has_acquisition(weir_acquisition *acquisition);
void cq_forget_acquisition(weir_acquisition *acquisition);
int cq_cancel_acquisition(weir_queue *queue, weir_acquisition *acquisition);

/* Frees the memory of all queues with that of the instance. */
void cq_free_all(weir *w);

/* ---- cq_post.c: posting (README.md) ---- */

/* With the lock: whether the queue posts. */
static inline bool cq_ring_is_on(const struct cq_ring *ring)
{
    return ring->uring && !ring->is_lost;
}

/* With the lock: posts the completions to post, or makes the timer thread post them if only that
 * may. */
void cq_ring_continue(weir_queue *queue);
/* With the lock: posts the completions to post. The calling thread must be one that may send. */
void cq_ring_flush(weir_queue *queue);
/* Reports to the program, once, that the ring was lost. */
void cq_ring_report_loss(weir_queue *queue);
/* Detaches the queue; completions to post become completions to reap. */
void cq_ring_end(weir_queue *queue);
void cq_ring_end_in_child(weir_queue *queue);

#endif

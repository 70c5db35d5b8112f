/* SPDX-License-Identifier: MIT */
/*
 * Completion queues. A queue is a wait timer that notifies by completions and is run by its reaper.
 * A submission is a record and nothing else. The queue finds it by user_data while it can be
 * canceled, and hands out its completion once it is decided, in the order of decisions.
 *
 * The memory of a queue is reused but not freed before the instance. A thread that notifies a
 * waiter late finds the lock, and under it whether the record is still the one it was.
 */
#ifndef WEIR_CORE_WAIT_CQ_H
#define WEIR_CORE_WAIT_CQ_H

#include "base/compiler.h"
#include "wait/acquisition_handle.h"
#include "wait/cq_list.h"
#include "wait/cq_ring.h"
#include "wait/wait_timer.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/queue.h>

#define CACHE_LINE 64

struct weir_queue {
    struct wait_timer timer; /* its lock protects all; its wake fd signals completions */
    uint32_t number;         /* index in the instance's table */
    struct weir_queue *next_closed;

    /* One cache line, with everything else that a hand-over writes. */
    _Alignas(CACHE_LINE) struct cq_list to_reap; /* completions to reap */
    struct cq_list to_post;                      /* completions to post to the program's ring */
    struct cq_ring ring;
    _Atomic bool ring_loss_unreported; /* ring lost; a hint without the lock */
    uint8_t bucket_shift;
    uint32_t capacity;
    _Atomic uint32_t *buckets;  /* first record of each, by user_data */
    _Atomic uint32_t pending;   /* submitted and not reaped */
    _Atomic uint32_t heap_room; /* entries that fit into the heap; grows under the lock */
};

/* Prefetches the queue for a delivery. Call without the lock. */
static inline void cq_prefetch(const weir_queue *queue)
{
    prefetch_write(&queue->timer.lock);
    prefetch_read(&queue->timer.heap);
    prefetch_write(&queue->to_reap);
}

/* ---- with the lock ---- */

static inline const struct region *cq_region(const weir_queue *queue)
{
    return queue->timer.heap.region;
}

static inline struct acq_record *cq_record(const weir_queue *queue, uint32_t record)
{
    return record_at(cq_region(queue), record);
}

uint64_t cq_word(const weir_queue *queue, uint32_t record);

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

/*
 * The index by user_data has the submissions that can be canceled; two lists have the completions.
 * The first record of a bucket is loaded relaxed: the lock orders it, and cq_submit.c reads it
 * without the lock only to prefetch. cq_complete() takes a decided record from the index and the
 * heap and lists its completion; a grant that can be canceled stays in the index. It returns
 * whether the caller must call timer_signal() after it has released the lock. cq_drop() takes the
 * record out of everything. cq_completions() returns the list that a record's completion belongs
 * to.
 */
_Atomic uint32_t *cq_bucket(const weir_queue *queue, uint64_t user_data);
uint32_t cq_bucket_first(const _Atomic uint32_t *bucket);
void cq_index_add(weir_queue *queue, uint32_t record);
void cq_index_remove(weir_queue *queue, uint32_t record);
bool cq_complete(weir_queue *queue, uint32_t record, uint64_t word);
void cq_drop(weir_queue *queue, uint32_t record);
struct cq_list *cq_completions(weir_queue *queue, const struct acq_record *r);

/* Hands a completion out: the owner of the acquisition knows its result from here on. */
void cq_hand_out(weir_acquisition *acquisition, int result);
/* Signals the wake fd if there are completions to reap, and clears it if there are none. */
void cq_update_wake_fd(weir_queue *queue);

/* A submission as it was found under the lock. */
struct cq_snapshot {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool is_exclusive; /* undone or closed: no other thread knows the record */
};

/* ---- without locks, any thread ---- */

/* Returns the queue with a number that was given out. */
weir_queue *cq_at(const weir *w, uint32_t number);

/* Locks and returns the queue that has yet to hand out the acquisition's completion, or returns
 * NULL. Another thread may hand it out at any time, so only the lock makes the answer certain. */
weir_queue *cq_lock_of(weir_acquisition *acquisition);

/* Delivers the completion of a record that has become `word`, which says that it was decided. Has
 * no effect if that was done before. */
void cq_deliver(weir_queue *queue, uint32_t record, uint64_t word);

/*
 * For an acquisition that the program received with its submission. cq_has_acquisition() returns
 * whether a queue has yet to hand out its completion. cq_forget_acquisition(), for a release, makes
 * sure that none follows. cq_cancel_acquisition() returns 0 or -EALREADY.
 */
bool cq_has_acquisition(weir_acquisition *acquisition);
void cq_forget_acquisition(weir_acquisition *acquisition);
int cq_cancel_acquisition(weir_queue *queue, weir_acquisition *acquisition);

/* Runs the timers of all open queues. Returns how many waiters were decided. */
int cq_run_all(weir *w);
/* Run the timer of one attached queue, or of all, and post their completions, in the timer thread.
 * Return false if that has to be done again. */
bool cq_service(weir_queue *queue);
bool cq_service_all(weir *w);
/* Detaches all queues from their rings when the timer thread has ended. */
void cq_detach_all(weir *w);
/* Frees the memory of all queues with that of the instance. */
void cq_free_all(weir *w);

#endif

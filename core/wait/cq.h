/* SPDX-License-Identifier: MIT */
/*
 * A queue: a keeper whose waiters are told of by completions, and which its reaper moves. What was
 * submitted is a record and nothing else; the queue finds it by user_data while it can be canceled,
 * and hands it out, once it is decided, in the order of decisions.
 *
 * Queues are never freed before their instance, only used again: whoever wakes a waiter finds the
 * lock, and under it whether the record is still what it was.
 */
#ifndef WEIR_CORE_WAIT_CQ_H
#define WEIR_CORE_WAIT_CQ_H

#include "base/prefetch.h"
#include "set/waiter.h"
#include "wait/acquisition_handle.h"
#include "wait/cq_list.h"
#include "wait/cq_ring.h"
#include "wait/wait_timer.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/queue.h>

#define CACHE_LINE 64

struct weir_queue {
    struct wait_timer timer; /* its lock is over everything here; its alarm rings for completions */
    uint32_t number;         /* in the instance's table */
    struct weir_queue *next_closed;

    /* One cache line, in which is what else a hand-over writes. */
    _Alignas(CACHE_LINE) struct cq_list to_reap; /* to be reaped */
    struct cq_list to_post;                      /* to be posted to the program's ring */
    struct cq_ring ring;
    _Atomic bool
        ring_loss_unreported; /* posting has ended by itself and the program was not told */
    uint8_t bucket_shift;
    uint32_t capacity;
    _Atomic uint32_t *buckets;  /* first record of each, by user_data: those that can be canceled */
    _Atomic uint32_t pending;   /* submitted and not reaped */
    _Atomic uint32_t heap_room; /* at least so many fit into the heap; grows under the lock */
};

/* Without the lock: something is about to be delivered to it. */
static inline void cq_prefetch(const weir_queue *queue)
{
    prefetch_write(&queue->timer.lock);
    prefetch_read(&queue->timer.heap);
    prefetch_write(&queue->to_reap);
}

/* Under the lock. */

static inline const struct region *cq_region(const weir_queue *queue)
{
    return queue->timer.heap.region;
}

static inline struct acq_record *cq_record(const weir_queue *queue, uint32_t record)
{
    return record_at(cq_region(queue), record);
}

static inline uint64_t cq_word(const weir_queue *queue, uint32_t record)
{
    return waiter_word(queue->timer.w, record);
}

/* What became of a submission whose completion is due. That it still waits cannot be. */
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
 * Records by user_data, as long as they can be canceled; completions, which are to be reaped or
 * posted. cq_complete: a record was decided, as its word says (some before they were listed), and
 * its completion is due; whether to call, once the lock is given back. cq_drop: the queue has nothing to do with
 * the record any more.
 */
_Atomic uint32_t *cq_bucket(const weir_queue *queue, uint64_t user_data);
uint32_t cq_bucket_first(const _Atomic uint32_t *bucket);
void cq_index_add(weir_queue *queue, uint32_t record);
void cq_index_remove(weir_queue *queue, uint32_t record);
bool cq_complete(weir_queue *queue, uint32_t record, uint64_t word);
void cq_drop(weir_queue *queue, uint32_t record);
struct cq_list *cq_completions(weir_queue *queue, const struct acq_record *r);

/* A completion is handed out: who has the acquisition knows of the result from here on. */
void cq_hand_out(weir_acquisition *acquisition, int result);
/* The alarm says whether there is something to be reaped. */
void cq_update_wake_fd(weir_queue *queue);

/* A submission as it was found under the lock. */
struct cq_snapshot {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool is_exclusive; /* nobody else knows of it: a grant, while it is taken back; or at the end */
};

/* For anybody. */

/* The queue of a number that was given out. */
weir_queue *cq_at(const weir *w, uint32_t number);

/* Locks the queue that has yet to hand out the acquisition's completion, and returns it; or NULL.
 * Whoever hands it out may be doing so this moment, so only under the lock is this certain. */
weir_queue *cq_lock_of(weir_acquisition *acquisition);

/* A record has become `word`, which says that it was decided: its completion is due, once. */
void cq_deliver(weir_queue *queue, uint32_t record, uint64_t word);

/*
 * Of an acquisition that the program got with its submission, and that a queue may have yet to hand
 * out: whether one has; release: no completion follows if one has; cancel: 0, or -EALREADY.
 */
bool cq_has_acquisition(weir_acquisition *acquisition);
void cq_forget_acquisition(weir_acquisition *acquisition);
int cq_cancel_acquisition(weir_queue *queue, weir_acquisition *acquisition);

/* Moves all open queues on; returns how many waiters were decided. */
int cq_run_all(weir *w);
/* What the timekeeper does for attached queues. False: it has to be done again. */
bool cq_service(weir_queue *queue);
bool cq_service_all(weir *w);
/* Nothing is posted any more, with the end of the timekeeper. */
void cq_detach_all(weir *w);
/* Frees the memory of all queues, with the instance. */
void cq_free_all(weir *w);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A queue: a keeper whose waiters are told of by completions, and which its reaper moves. What was
 * submitted is a record and nothing else; the queue finds it by user_data while it can be canceled,
 * and hands it out, once it is decided, in the order of decisions.
 *
 * Queues are never freed before their instance, only used again: whoever wakes a waiter finds the
 * lock, and under it whether the record is still what it was.
 */
#ifndef WEIR_CORE_QUEUE_H
#define WEIR_CORE_QUEUE_H

#include "keeper.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/queue.h>

struct weir_queue {
    struct keeper keeper; /* its lock is over everything here; its eventfd: completions */
    uint32_t number;      /* in the instance's table */
    struct weir_queue *next_closed;

    uint32_t capacity;
    _Atomic uint32_t pending; /* submitted and not reaped */

    uint32_t *buckets; /* first record of each, by user_data: those that can be canceled */
    uint32_t bucket_shift;

    uint32_t ready_first, ready_last; /* completions, linked through the records */
    bool reaping;                     /* a reap is about to look: nobody needs to tell it */
};

/* The queue of a number that was given out. */
weir_queue *queue_at(const weir *w, uint32_t number);

/* A record has become `word`, which says that it was decided: its completion is due, once. */
void queue_deliver(weir_queue *queue, uint32_t record, uint64_t word);

/* The program releases an acquisition before it was reaped: no completion follows. */
void queue_forget(weir_acquisition *acquisition);

/* Moves all open queues on; returns how many waiters were decided. */
int queues_run(weir *w);
/* Frees the memory of all queues, with the instance. */
void queues_free(weir *w);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Posting: completions of a queue as CQEs on the program's own ring, for submissions that gave the
 * program an acquisition. Posting a completion and taking it out of the queue is one step under the
 * queue's lock. So a call that cancels, releases or detaches finds a completion either in the queue
 * or posted.
 *
 * If a message cannot be sent, the ring is lost: until it is attached anew the queue uses its
 * descriptor again, also for what was not sent. The next call that holds no lock reports that to
 * the program.
 *
 * The timer thread runs the timer of an attached queue, for the program sleeps on its ring. It also
 * sends, if the kernel does not let every thread send (os_uring.h).
 */
#ifndef WEIR_CORE_WAIT_CQ_RING_H
#define WEIR_CORE_WAIT_CQ_RING_H

#include "base/thread_exit.h"
#include "os/os_uring.h"
#include <stdbool.h>
#include <weir/queue.h>

/* The ring of a completion queue; all 0: not attached. The queue's lock protects it. */
struct cq_ring {
    struct os_uring *uring;          /* NULL also once a loss was reported */
    struct thread_exit_state *owner; /* exit state of the thread that takes the CQEs */
    int failure;                     /* why the ring was lost, negative errno; 0: it was not */
    bool has_timer;                  /* the timer thread's epoll set has the queue's timer */
};

/* ---- with the queue's lock ---- */

static inline bool cq_ring_is_on(const struct cq_ring *ring)
{
    return ring->uring && !ring->failure;
}

/* Posts the completions to post, or makes the timer thread post them if only that may. */
void cq_ring_continue(weir_queue *queue);
/* Posts the completions to post. The calling thread must be one that may send. */
void cq_ring_flush(weir_queue *queue);

/* ---- without locks ---- */

bool cq_ring_has_timer(weir_queue *queue);
/* Reports to the program, once, that the ring was lost. */
void cq_ring_report_loss(weir_queue *queue);
/* Detaches the queue; completions to post become completions to reap. */
void cq_ring_end(weir_queue *queue);
void cq_ring_end_in_child(weir_queue *queue);

#endif

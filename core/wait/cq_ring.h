/* SPDX-License-Identifier: MIT */
/*
 * Posting: a queue's completions as CQEs on the program's own ring, of those submissions whose
 * acquisition the program has. Posting and taking out of the queue are one step under its lock, so
 * that whoever cancels, releases or detaches finds a completion either in the queue or posted.
 *
 * If a message cannot be sent, the queue goes back to its descriptor for good (until it is attached
 * anew) with what was not sent, and whoever comes along without a lock tells the program.
 *
 * The timekeeper moves an attached queue's time, for the program sleeps on its ring. It also sends
 * where the kernel has no way to send from any thread (see os_uring.h).
 */
#ifndef WEIR_CORE_WAIT_CQ_RING_H
#define WEIR_CORE_WAIT_CQ_RING_H

#include "base/thread_exit.h"
#include "os/os_uring.h"
#include <stdbool.h>
#include <weir/queue.h>

/* A queue's part; all 0: not attached. Under the queue's lock. */
struct cq_ring {
    struct os_uring *uring;          /* NULL, too, once failure was told */
    struct thread_exit_state *owner; /* of the thread that takes the CQEs */
    int failure;                     /* why posting has ended by itself; 0: it has not */
    bool has_timer;                  /* the timekeeper has the queue's timer among its events */
};

/* Under the queue's lock. */

static inline bool cq_ring_is_on(const struct cq_ring *ring)
{
    return ring->uring && !ring->failure;
}

/* There is something to be posted: posts it, or has it posted. */
void cq_ring_continue(weir_queue *queue);
/* Posts what is to be posted, in a thread that may. */
void cq_ring_flush(weir_queue *queue);

/* Without. */

bool cq_ring_has_timer(weir_queue *queue);
/* Tells the program, once, that posting has ended by itself. */
void cq_ring_report_loss(weir_queue *queue);
/* Ends it; what was not posted is to be reaped. */
void cq_ring_end(weir_queue *queue);
void cq_ring_end_in_child(weir_queue *queue);

#endif

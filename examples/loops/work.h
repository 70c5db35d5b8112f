/* SPDX-License-Identifier: MIT */
/*
 * What every loop of this directory does, so that each of them shows the loop and nothing else:
 *   - requests of a queue: some for a call, of which there is one per millisecond, others for one
 *     of two slots, to be held for a while, and a few for a door that stays shut until they have
 *     timed out; every fifth is canceled
 *   - one request apart from the queue, for the door, with a descriptor of its own
 * The queue is smaller than what is submitted to it: the rest follows as there is room.
 *
 * A loop waits for weir_queue_fd(work.queue), for weir_acquisition_fd(work.alone), and for timers
 * of its own, one for each slot that is held; it calls the functions below, and ends once
 * work_is_over. A failure ends the program.
 */
#ifndef WORK_H
#define WORK_H

#include <stdbool.h>
#include <weir/weir.h>

enum { WORK_SLOTS = 2, WORK_KINDS = 3 };
#define WORK_HOLD_NS UINT64_C(2000000) /* how long a slot is held */

struct work {
    weir *w;
    weir_pool *pools[WORK_KINDS];
    weir_queue *queue;
    weir_acquisition *alone; /* NULL once work_alone_decided has settled it */
    weir_acquisition *door;  /* shut while this is held */
    uint64_t begun_ns;
    unsigned submitted, completed;
    unsigned granted, canceled, timed_out;
    unsigned paced, held, held_most; /* of granted: calls; slots now, and at most */
    uint64_t last[WORK_KINDS];       /* the last that was granted of each kind */
    bool in_order, in_time, alone_granted;
};

/* Opens an instance and a queue and asks for the first things. */
void work_begin(struct work *work);

/* Submits as much as there is room for in the queue. Call it after reaping. */
void work_submit(struct work *work);

/*
 * Takes note of a completion. Returns an acquisition that is to be held, if it is one: set a timer
 * for WORK_HOLD_NS, then call work_hold_over. Otherwise NULL.
 */
weir_acquisition *work_completed(struct work *work, const struct weir_completion *completion);
void work_hold_over(struct work *work, weir_acquisition *acquisition);

/* The descriptor of work.alone has become readable. Closes it: take it out of the loop before. */
void work_alone_decided(struct work *work);

bool work_is_over(const struct work *work);

/* Closes everything and says how it went. Returns the status to exit with. */
int work_finish(struct work *work);

/* Says what failed, with which negative errno, and exits. */
_Noreturn void work_fail(const char *what, int code);

#endif

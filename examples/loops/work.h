/* SPDX-License-Identifier: MIT */
/*
 * The work of every loop of this directory, so that each of them shows the loop and nothing else:
 *   - requests of a completion queue: some for a call, of which there is one per millisecond,
 * others for one of two slots, which is held for a while, and a few for a door that stays closed
 * until they have timed out; every fifth is canceled
 *   - one request outside of the completion queue, for the door, with a descriptor of its own
 * There are more requests than the completion queue takes: the rest follows as there is room.
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
#define WORK_HOLD_NS UINT64_C(2000000) /* time for which a slot is held */

struct work {
    weir *w;
    weir_pool *pools[WORK_KINDS];
    weir_queue *queue;
    weir_acquisition *alone; /* NULL after work_alone_decided */
    weir_acquisition *door;  /* held: the door is closed */
    uint64_t begun_ns;
    unsigned submitted, completed;
    unsigned granted, canceled, timed_out;
    unsigned paced, held, held_most; /* grants: calls; slots held now, and at most */
    uint64_t last[WORK_KINDS];       /* number of the last grant of each kind */
    bool in_order, in_time, alone_granted;
};

/* Opens an instance and a completion queue and submits the first requests. */
void work_begin(struct work *work);

/* Submits as many requests as the completion queue has room for. Call it after reaping. */
void work_submit(struct work *work);

/*
 * Counts a completion. If it grants a slot, returns the acquisition: set a timer for WORK_HOLD_NS,
 * then call work_hold_over. Otherwise returns NULL.
 */
weir_acquisition *work_completed(struct work *work, const struct weir_completion *completion);
void work_hold_over(struct work *work, weir_acquisition *acquisition);

/* Handles work.alone, after its descriptor became readable. Closes the descriptor: take it out of
 * the loop before. */
void work_alone_decided(struct work *work);

bool work_is_over(const struct work *work);

/* Closes everything and prints the result. Returns the exit status. */
int work_finish(struct work *work);

/* Prints what failed and the negative errno, and exits. */
_Noreturn void work_fail(const char *what, int code);

#endif

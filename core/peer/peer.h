/* SPDX-License-Identifier: MIT */
/* Cleanup after dead peers, and progress while another process is stopped. */
#ifndef WEIR_CORE_PEER_PEER_H
#define WEIR_CORE_PEER_PEER_H

#include "set/hooks.h"
#include "set/set.h"

/*
 * Clean up after dead peers of the set: peer_reap() after those of which a death was reported, or
 * is found now that it is time to probe the others, as participant_next_dead() has it;
 * peer_make_room() after all. From time to time they look whether the segment still has its name,
 * too. Return 0, or how much of that they found: then the set has changed. Any thread, no locks
 * held. Do not wait for another thread that is at it. `ctx`: the calling thread's context if it is
 * in use, else NULL; its copy of the set is outdated after.
 */
int peer_reap(struct thread_ctx *ctx, weir_set *set);

/* Cleans up in all sets from number `first` on with so many slots in use that dead peers may be
 * among them. For a thread that has just added these sets. */
void peer_reap_crowded(weir *w, uint32_t first);

/* ---- dead threads ---- */

/*
 * Recovers generation `generation` of the dead thread with head `dead`; no thread runs on its
 * behalf or ever will.
 * 1. Completes the version that it was publishing.
 * 2. Cancels its waits and releases what it held, as if all of it had been used.
 * 3. Grants waiters of its active set, and repeats the notifications that it may have owed.
 * 4. Ends the generation; from then on the thread context may be claimed again.
 *
 * Its records become FREE but enter no free list; that is up to their owner. `ctx` is the caller's,
 * and is prepared for a set on demand. Takes the instance's lock, briefly. Returns 0; -EALREADY
 * (that generation was recovered before); -ENOMEM; -EUCLEAN (the set is broken).
 */
int thread_recovery_run(struct thread_ctx *ctx, const struct region *region, uint32_t dead,
                        uint64_t generation);

/* ---- stopped processes ---- */

/* Each process that waits in a shared set checks the set periodically. Normally a check finds
 * nothing. It covers a process that is stopped between grant and notification, and one that sleeps
 * through the time at which its head becomes ready or overdue. */

/* Settles the heads of one wait queue, whichever process they belong to, ends waits that are
 * overdue, and repeats notifications that are missing. Returns the time of the next check, ns;
 * WEIR_FOREVER: there are no waiters. */
uint64_t stall_check_queue(struct thread_ctx *ctx, weir_set *set);
/* Makes a stall check of all wait queues of the set, with the spare context or that of the calling
 * thread, and stores the time of the next one in `*ret_next_ns`: WEIR_FOREVER if there are no
 * waiters. Returns how many waiters were decided. */
int stall_check_set(weir_set *set, uint64_t *ret_next_ns);

/* Settles the heads of the wait queue of one waiter, and checks the waiter itself. `record` waits
 * in this process while its word is `word`; if it is not in the wait queue then, the set is marked
 * broken. */
void stall_check_run(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);

/* Returns the time of the next check for the waiter with this ticket. */
uint64_t stall_check_deadline(struct thread_ctx *ctx, weir_set *set, uint32_t ticket,
                              uint64_t now_ns);

/* Schedules the next check of a waiter that has the word `word`, if it still waits. The proxy's
 * `granted_ns` keeps the ticket. */
void stall_check_arm(struct thread_ctx *ctx, weir_set *set, uint32_t waiter, uint64_t word);

#endif

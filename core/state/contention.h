/* SPDX-License-Identifier: MIT */
/*
 * Contention management for private sets: bounded back-off, then a yield hint (Scherer and Scott,
 * PODC 2005).
 *
 * Under contention the thread with the set in its core's cache tends to win every CAS, and each
 * failed attempt of another thread slows it down. A thread that loses leaves the set alone: for 4
 * pauses the first time, for 256 from the second. After CONTENTION_TURNS losses it also sets
 * `yield_hint` in the set head and retries. A thread that starts a new operation reads the hint, in
 * a cache line that it needs anyway, and pauses until the hint is cleared. After 64 pauses it
 * clears the hint itself: the thread that set it may be stopped, or on the slow path.
 *
 * The hint affects speed and fairness only. No correctness argument depends on it, and it may be
 * lost; hence all its accesses are relaxed.
 */
#ifndef WEIR_CORE_STATE_CONTENTION_H
#define WEIR_CORE_STATE_CONTENTION_H

#include "state/version.h"

/* Losses after which a thread sets the yield hint. */
#define CONTENTION_TURNS 2u

/* Backs off after a lost CAS. `*turn` counts the losses of this operation, from 0. With `spin` the
 * pauses double each time, and no hint is set. */
void contention_backoff(bool spin, struct set_head *set, unsigned *turn);
/* Waits until the yield hint is cleared, at most 64 pauses; then clears it. */
void contention_wait(struct set_head *set);

/* Clears the yield hint after a successful operation that lost `turn` times, if it may have set the
 * hint. */
static inline void contention_clear(struct set_head *set, unsigned turn)
{
    if (turn >= CONTENTION_TURNS)
        atomic_store_explicit(&set->yield_hint, 0, memory_order_relaxed);
}

/* Yields to a thread that set the hint. Call it before an operation starts, and before its clock
 * read. */
static inline void contention_yield(struct set_head *set)
{
    if (atomic_load_explicit(&set->yield_hint, memory_order_relaxed))
        contention_wait(set);
}

#endif

/* SPDX-License-Identifier: MIT */
/* Contention management: README.md. The yield hint affects speed and fairness only. No correctness
 * argument depends on it, and it may be lost; hence all its accesses are relaxed. */
#ifndef WEIR_CORE_STATE_CONTENTION_H
#define WEIR_CORE_STATE_CONTENTION_H

#include "state/version.h"

/* Losses after which a thread sets the yield hint. */
#define CONTENTION_TURNS 2u

/* Backs off after a lost CAS. `*turn` counts the losses of this operation, from 0. With `spin` the
 * pauses double each time, and no hint is set. */
void contention_backoff(bool spin, struct set_head *set, unsigned *turn);
/* Backs off after a lost CAS of an inline state. `since_ns`: the clock, read before; 0: not read.
 */
void contention_lost_word(uint64_t since_ns);
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

/* SPDX-License-Identifier: MIT */
/*
 * Who has lost for long goes first. Of two threads that change the same set as fast as they can, one
 * has all of it in its processor's cache, and is done before the other has read it: he would go on for
 * as long as he likes, and each attempt of the other would only make him slower.
 *
 * So whoever loses leaves the set's lines alone for a while, and longer each time. Then he says beside
 * the word that he presses, and tries again; and whoever is about to begin something new sees that in
 * the line that he needs anyway, and waits until it is taken back, but no longer than a moment: who
 * pressed may be stopped, or have gone the long way. Then the two have changed places.
 *
 * It is a hint, of private sets only: nobody relies on it, and nothing is lost if it is.
 */
#ifndef WEIR_CORE_STATE_CONTENTION_H
#define WEIR_CORE_STATE_CONTENTION_H

#include "state/version.h"

/* So many times he has lost then. */
#define CONTENTION_TURNS 2u

/* Somebody was faster, for the `*turn`-th time; it begins at 0. */
void contention_backoff(struct set_head *set, unsigned *turn);
/* Waits for who presses: 64 pauses at most. */
void contention_wait(struct set_head *set);

/* After as many turns nobody was faster. */
static inline void contention_clear(struct set_head *set, unsigned turn)
{
    if (turn >= CONTENTION_TURNS)
        atomic_store_explicit(&set->yield_hint, 0, memory_order_relaxed);
}

/* Before something new is begun, and before its instant is read. */
static inline void contention_yield(struct set_head *set)
{
    if (atomic_load_explicit(&set->yield_hint, memory_order_relaxed))
        contention_wait(set);
}

#endif

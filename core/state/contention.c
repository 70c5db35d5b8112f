/* SPDX-License-Identifier: MIT */
/* Pressing: see contention.h. */
#include "state/contention.h"

/* Powers of two of pauses: of the first turn, and by how much the next one is longer. The last one is
 * as long as a hundred operations: how long it takes that the two change places is to be little. */
#define PAUSES_FIRST  2u
#define PAUSES_GROWTH 6u
#define YIELD_CHECKS  4u /* at whether it was taken back */
#define YIELD_PAUSES  4u /* power of two of pauses between them */

void contention_backoff(struct set_head *set, unsigned *turn)
{
    unsigned pauses;

    if (*turn < CONTENTION_TURNS)
        ++*turn;
    pauses = PAUSES_FIRST + PAUSES_GROWTH * (*turn - 1);
    spin_backoff(&pauses);
    if (*turn == CONTENTION_TURNS)
        atomic_store_explicit(&set->yield_hint, 1, memory_order_relaxed);
}

void contention_wait(struct set_head *set)
{
    for (unsigned i = 0; i < YIELD_CHECKS; i++) {
        unsigned pauses = YIELD_PAUSES;

        spin_backoff(&pauses);
        if (!atomic_load_explicit(&set->yield_hint, memory_order_relaxed))
            return;
    }
    atomic_store_explicit(&set->yield_hint, 0, memory_order_relaxed);
}

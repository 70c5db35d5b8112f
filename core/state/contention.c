/* SPDX-License-Identifier: MIT */
/* Pressing: see pressing.h. */
#include "state/contention.h"

#include "base/mutant.h"

/* Powers of two of pauses: of the first turn, and by how much the next one is longer. The last one is
 * as long as a hundred operations: how long it takes that the two change places is to be little. */
#define FIRST   2u
#define GROWTH  6u
#define LOOKS   4u /* at whether it was taken back */
#define BETWEEN 4u /* power of two of pauses between them */

void pressing_lost(struct set_head *set, unsigned *turn)
{
    unsigned pauses;

    if (*turn < PRESSING_TURNS)
        ++*turn;
    pauses = FIRST + GROWTH * (*turn - 1);
    publication_back_off(&pauses);
    if (*turn == PRESSING_TURNS)
        atomic_store_explicit(&set->pressed, 1, memory_order_relaxed);
}

void pressing_wait(struct set_head *set)
{
    for (unsigned i = 0; i < LOOKS; i++) {
        unsigned pauses = BETWEEN;

        publication_back_off(&pauses);
        if (!atomic_load_explicit(&set->pressed, memory_order_relaxed))
            return;
    }
    if (!MUTANT(649))
        atomic_store_explicit(&set->pressed, 0, memory_order_relaxed);
}

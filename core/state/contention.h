/* SPDX-License-Identifier: MIT */
/* Contention management: threads that work on one set take turns, README.md. It affects speed and
 * fairness only. No correctness argument depends on it, and a turn may be lost; hence all its
 * accesses are relaxed. */
#ifndef WEIR_CORE_STATE_CONTENTION_H
#define WEIR_CORE_STATE_CONTENTION_H

#include "state/version.h"

/* Operations that a thread goes on with while another one waits for its turn. */
#define CONTENTION_OPERATIONS 160u

/* Backs off after a lost CAS, or a read of an incomplete version. `*losses` counts those of this
 * operation, from 0. `thread`: unit of the caller's struct thread_head. */
void contention_backoff(const struct region *region, uint32_t set, uint32_t thread,
                        unsigned *losses);
/* Backs off after a lost CAS of an inline state. `since_ns`: the clock, read before; 0: not read.
 */
void contention_lost_word(uint64_t since_ns);
/* Gives the turn to the thread that waits if the caller has had its own, and waits for the next. */
void contention_give_turn(const struct region *region, uint32_t set, uint32_t thread);

/* Returns true if a thread waits for its turn. */
static inline bool contention_is_contended(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return __builtin_expect(atomic_load_explicit(&head->next_turn, memory_order_relaxed) != 0, 0);
}

#endif

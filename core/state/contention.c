/* SPDX-License-Identifier: MIT */
/* Back-off after a lost CAS of the state word, and the pauses of a thread that yields. */
#include "state/contention.h"
#include "base/backoff.h"
#include "base/invariant.h"
#include "os/os.h"

/* Exponents of two of pauses: of the first loss, and the increment for the next one. The second
 * back-off lasts about a hundred operations, so that changing turns costs little of the total
 * time. */
#define PAUSES_FIRST  2u
#define PAUSES_GROWTH 6u
#define WORD_PAUSES   5u /* as above, after a loss of a word on a slow line */
#define WORD_SLOW_NS  150u
#define YIELD_CHECKS  4u /* looks at whether the hint was cleared */
#define YIELD_PAUSES  4u /* exponent of two of pauses between them */

void contention_backoff(bool spin, struct set_head *set, unsigned *turn)
{
    unsigned pauses;

    if (spin) {
        spin_backoff(turn);
        return;
    }
    WEIR_INVARIANT(*turn <= CONTENTION_TURNS);
    if (*turn < CONTENTION_TURNS)
        ++*turn;
    pauses = PAUSES_FIRST + PAUSES_GROWTH * (*turn - 1);
    spin_backoff(&pauses);
    if (*turn == CONTENTION_TURNS)
        atomic_store_explicit(&set->yield_hint, 1, memory_order_relaxed);
}

/* Where the line comes slowly, it pays that one thread does some twenty operations in a row. Where
 * it comes fast, an attempt takes 60 to 130 ns, and two threads are faster side by side. */
void contention_lost_word(uint64_t since_ns)
{
    unsigned pauses = WORD_PAUSES;

    if (!since_ns || os_now_ns() - since_ns > WORD_SLOW_NS)
        spin_backoff(&pauses);
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

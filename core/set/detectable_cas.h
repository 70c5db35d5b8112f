/* SPDX-License-Identifier: MIT */
/*
 * Detectable compare-and-swap on the state word of a shared resource (INLINE_DCAS). See Attiya,
 * Ben-Baruch and Hendler, PODC 2018.
 *
 * A grant or release takes two writes: the CAS of the state word, then the store of the record's
 * word. If the process dies between the two, a survivor must be able to tell whether the CAS took
 * effect. Each thread therefore owns one toggle bit of the word and one announcement slot. It
 *
 *   1. loads the word and decides;
 *   2. announces in its slot the record, the sequence number of the record's next word, whether
 *      that is HELD or FREE, and the bit's new value;
 *   3. swaps the word for the new count with its bit toggled: the commit point;
 *   4. stores the record's word.
 *
 * The next announcement comes after step 4. Until then the CAS has taken effect if and only if the
 * bit equals the announced value. No other thread changes the bit: inflation copies the bits into
 * the block, and deflation copies them back. So a recurring word does no harm. Later operations do
 * not read the slots, so a slot's cache line stays with its thread.
 *
 * README.md has the steps of a thread that completes the announcements of others.
 *
 * A slot belongs to its process until the process leaves or is cleaned up after. The last
 * announcement stays in it, complete or without effect: the next owner announces before it toggles
 * the bit. A thread that finds no free slot inflates the set for each operation.
 */
#ifndef WEIR_CORE_SET_DETECTABLE_CAS_H
#define WEIR_CORE_SET_DETECTABLE_CAS_H

#include "base/compiler.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/thread_ctx.h"
#include "shm/acq_record.h"
#include "state/version.h"
#include <weir/set.h>

/* An announcement: record:24 | held:1 | toggle bit:1 | sequence:38 of the record's word. */
#define DCAS_SEQUENCE_BITS 38u
#define DCAS_SEQUENCE_MASK ((UINT64_C(1) << DCAS_SEQUENCE_BITS) - 1)
#define DCAS_BIT_SHIFT     38u
#define DCAS_HELD_SHIFT    39u
#define DCAS_RECORD_SHIFT  40u

/* Returns the thread's announcement slot, from 1; claims one if it has none. 0: none is free. Only
 * the context's own thread may call it. */
uint32_t dcas_slot(struct thread_ctx *ctx, const weir_set *set);

/* Checks a slot number. It also shows the compiler that the number is within the array. */
static inline bool dcas_is_slot(uint32_t slot)
{
    return slot - 1 < DCAS_SLOTS;
}

/* Announces that `record` becomes `record_word`, and returns the new state word: `state` units
 * held, and the slot's bit toggled. `word` is the word that the caller loaded, and swaps next. */
WEIR_ALWAYS_INLINE uint64_t dcas_announce(struct announce_slots *slots, uint32_t slot,
                                          uint64_t word, uint64_t state, uint32_t record,
                                          uint64_t record_word)
{
    uint64_t bits = (word & DCAS_BITS) ^ UINT64_C(1) << (slot - 1);
    uint64_t held = record_state(record_word) == RECORD_HELD;

    WEIR_INVARIANT(dcas_is_slot(slot) && record && state <= DCAS_USED_MAX);
    WEIR_INVARIANT(record <= UINT64_MAX >> DCAS_RECORD_SHIFT);
    WEIR_INVARIANT(held || record_state(record_word) == RECORD_FREE);
    shm_store_release(&slots->slots[slot - 1].announcement,
                      (uint64_t)record << DCAS_RECORD_SHIFT | held << DCAS_HELD_SHIFT |
                          (bits >> (slot - 1) & 1) << DCAS_BIT_SHIFT |
                          (record_word >> 8 & DCAS_SEQUENCE_MASK));
    return state << DCAS_USED_SHIFT | bits;
}

/*
 * A shared set may get a definition without this format, and later one with it. No word is swapped
 * meanwhile, so the toggle bits stay as they were in the last version of the last definition with
 * the format. Each definition has them in the segment.
 */

/* Returns whether records of the set may be announced: by this definition, or by one before it. */
bool dcas_may_be_announced(const weir_set *set);

/* Returns the toggle bits as of `version`, which is inflated. */
uint64_t dcas_bits(const weir_set *set, const struct version *version);

/* Completes the announcements of `record` that took effect before `version`, which is inflated.
 * What the caller reads of the record afterwards counts only if `version` is current then. */
void dcas_complete(const weir_set *set, const struct version *version, uint32_t record);

/* Completes all announcements that took effect before the call. Inflates an inline set. Returns 0,
 * also if the set is broken or nothing is announced; or an error of set_catch_up(). */
int dcas_complete_all(struct thread_ctx *ctx, weir_set *set);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The ledger of a resource that processes share, whose word is its state (INLINE_DCAS): a death
 * between any two steps must lose nothing of it. The word changes alone, and then the record whose
 * grant or release that was; so somebody has to be able to tell, for as long as the second is
 * missing, that the first has happened. And nobody who comes after should have to look: what he
 * looked at would be in the other processor's cache, and go there and back at every change.
 *
 * So an actor has a seat here, and in the word a bit of its own, which nobody else turns. It
 *
 *   1. loads the word, and decides;
 *   2. announces in its seat what it is about to do: which record is granted or released, its
 *      sequence number then, and what the bit will be;
 *   3. compares-and-swaps the word to the new count, with its bit turned: the only commit point;
 *   4. stores the record's word.
 *
 * Until it announces something else, which it does only after 4, its bit says whether what it has
 * announced has happened: equal to the bit announced, yes; otherwise no. Whatever others do to the
 * word leaves that alone, also while the set is boxed, when the bits are in the box, and in the word
 * that the state is put back into. Words come back, and that is no matter: they are all that there
 * is to know.
 *
 * Who has to know what records hold, because he gives back for others what they may have given back
 * themselves, boxes the set and completes what was announced. While a version is current no bit
 * turns, so an announcement that was read, and after which the version was still current, has
 * happened before it or not at all. Record by record a compare-and-swap from the word before, whose
 * sequence number is not used twice: any number may do that, however late, and the actor itself with
 * them. The next version, which says that a record is given back, can only come about if that one
 * was current all the time.
 *
 * A seat is its process's until that leaves or is buried; what was last announced there stays, and
 * has happened and is complete, or has not and will not: whoever sits there next announces anew
 * before he turns the bit. Who finds no seat does without: he boxes the set each time.
 */
#ifndef WEIR_CORE_SET_DETECTABLE_CAS_H
#define WEIR_CORE_SET_DETECTABLE_CAS_H

#include "base/compiler.h"
#include "base/sched_point.h"
#include "set/thread_ctx.h"
#include "shm/acq_record.h"
#include "state/version.h"
#include <weir/set.h>

/* record:24 | held:1 | the bit:1 | sequence:38 of the record's word. */
#define DCAS_SEQUENCE_BITS 38u
#define DCAS_SEQUENCE_MASK ((UINT64_C(1) << DCAS_SEQUENCE_BITS) - 1)
#define DCAS_BIT_SHIFT     38u
#define DCAS_HELD_SHIFT    39u
#define DCAS_RECORD_SHIFT  40u

/* The actor's seat, counted from 1; 0: there is none for it. Only by the actor's thread. */
uint32_t dcas_slot(struct thread_ctx *ctx, const weir_set *set);

/* Also for compilers, which would otherwise have to believe in others. */
static inline bool dcas_is_slot(uint32_t slot)
{
    return slot - 1 < DCAS_SLOTS;
}

/*
 * Announces that `record` is to have `record_word`, by the change of the set's word from `word` to
 * the one that is returned, which says that `state` is held.
 */
WEIR_ALWAYS_INLINE uint64_t dcas_announce(struct announce_slots *slots, uint32_t slot,
                                          uint64_t word, uint64_t state, uint32_t record,
                                          uint64_t record_word)
{
    uint64_t bits = (word & DCAS_BITS) ^ UINT64_C(1) << (slot - 1);
    uint64_t held = record_state(record_word) == RECORD_HELD;

    atomic_store_explicit(&slots->slots[slot - 1].announcement,
                          (uint64_t)record << DCAS_RECORD_SHIFT | held << DCAS_HELD_SHIFT |
                              (bits >> (slot - 1) & 1) << DCAS_BIT_SHIFT |
                              (record_word >> 8 & DCAS_SEQUENCE_MASK),
                          memory_order_release);
    SCHED_POINT();
    return state << DCAS_USED_SHIFT | bits;
}

/* Completes what has been announced of `record` and has happened by this version, which is boxed.
 * What was read of the record afterwards counts if the version is still current then. */
void dcas_complete(const weir_set *set, const struct version *version, uint32_t record);

/* The same of all records, of what has happened before the call. Boxes the set if it is not. */
void dcas_complete_all(struct thread_ctx *ctx, weir_set *set);

#endif

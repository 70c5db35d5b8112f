/* SPDX-License-Identifier: MIT */
/*
 * What the parts of live sets have in common:
 *
 *   live.c        they are hidden sets, made when they are needed, and met by their numbers
 *   live_loan.c   what a version says: whose, in which loan, and whether that is over
 *   live_idle.c   the stack of those that are idle
 *   live_lend.c   a key gets one
 *   live_plain.c  what a key asks of it most often
 *   live_leave.c  a key has it no longer
 *   live_sweep.c  all are in use: one that can go is looked for
 */
#ifndef WEIR_CORE_KEYED_KEY_SET_INTERNAL_H
#define WEIR_CORE_KEYED_KEY_SET_INTERNAL_H

#include "base/mutant.h"
#include "keyed/key_set.h"

enum live_phase { LIVE_IDLE, LIVE_LENDING, LIVE_LENT };

#define PHASE_BITS 2u
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)

/* ---- what a version says ---- */

static inline uint64_t *words_of(const struct operation *op)
{
    return operation_states(op) + op->set->limits.state_words - LIVE_WORDS;
}

static inline enum live_phase phase_of(const struct operation *op)
{
    return (enum live_phase)(words_of(op)[LIVE_LOAN] & PHASE_MASK);
}

static inline uint64_t loan_of(const struct operation *op)
{
    return words_of(op)[LIVE_LOAN] >> PHASE_BITS & LIVE_LOAN_MASK;
}

/* The word that names a loan of it. */
static inline uint64_t name_of(const struct operation *op, uint64_t loan)
{
    return WORD_LIVE | (uint64_t)live_of(op->set)->number << LIVE_LOAN_BITS |
           (loan & LIVE_LOAN_MASK);
}

/* Whether the key of the version names it by its word; then its entry. */
bool live_is_named(const struct keyed *keyed, const struct operation *op, struct key_entry *ret);

/* Who lends it anew may be stopped before the key's word says so, or dead. That is done for him. */
void live_help(const struct keyed *keyed, const struct operation *op);

/* Reads the live set that a word names; false: it is not what the word says any more. */
bool live_read_named(struct operation *op, struct actor *actor, struct keyed *keyed, uint64_t word,
                     struct live *storage);

/* The next loan is written into the version; returns the word that names it. */
uint64_t live_begin_loan(const struct operation *op);
/* The end of the loan is published; false: the live set has changed. Nobody enters it any more. */
bool live_end_loan(struct operation *op);

/* Whether who lends is dead, and what he held given back. Threads are not. */
bool live_is_abandoned(const struct operation *op);

/* ---- those that are idle ---- */

/* Unless it is there already. */
void live_push_idle(struct keyed *keyed, uint32_t number);
bool live_pop_idle(struct keyed *keyed, uint32_t *ret);

/* ---- a key gets one ---- */

/* How many are looked at for one that can be lent: what a newcomer waits for has a bound. */
#define SWEEP_MAX 64u

/* What somebody wants one for. */
struct wish {
    struct keyed *keyed;
    struct actor *actor;
    const struct key *key;
    const uint64_t *states;
    struct live *live; /* what it comes to */
    uint64_t word;
};

/* Lends it: 1; 0: it is not to be had; or a negative errno. */
int live_lend(struct wish *wish, struct live *live);

/* One more, under the instance's lock: 0; -ENOBUFS: there are enough; -ENOMEM or -ESHUTDOWN; of a
 * segment what the system says. */
int live_make(struct keyed *keyed, uint32_t number);

/* One that can go is lent: 0; -EINPROGRESS: somebody was faster, look again; -ENOBUFS: none can; or a
 * negative errno. */
int live_sweep(struct wish *wish);

/* ---- a key has it no longer ---- */

/* Whether nobody is in line, or has reserved. */
static inline bool is_quiet(const struct operation *op)
{
    return (!line_length(&op->version) || MUTANT(602)) &&
           !(version_flags(&op->version) & CONTENT_SHUT) && op->at.now_ns == op->now_ns &&
           !set_is_broken(op->set);
}

/* Whether its state can be a word of the table. */
static inline bool is_word(const struct keyed *keyed, const struct operation *op)
{
    return keyed->fits && !(*operation_states(op) & WORD_LIVE);
}

/* As live_use(), of the version that was read. */
enum key_use live_use_of(const struct operation *op, uint64_t *ret_instant);

/* After the end of a loan that the entry names: the key gets its state back, or goes; by us, or
 * somebody else has seen to it. False: no word can be that. */
bool live_end_name(struct keyed *keyed, const struct operation *op, struct key_entry *entry);

/* Takes the key's entry away, if it is still what was looked at, and counts that. */
bool live_forget(const struct key_entry *entry, _Atomic uint64_t *counter);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What the parts of live sets have in common:
 *
 *   key_set.c        they are hidden sets, made when they are needed, and met by their numbers
 *   key_set_binding.c   what a version says: whose, in which loan, and whether that is over
 *   key_set_free.c   the stack of those that are idle
 *   key_set_try_bind.c   a key gets one
 *   key_set_try_now.c  what a key asks of it most often
 *   key_set_unbind_if_idle.c  a key has it no longer
 *   key_set_reclaim.c  all are in use: one that can go is looked for
 */
#ifndef WEIR_CORE_KEYED_KEY_SET_INTERNAL_H
#define WEIR_CORE_KEYED_KEY_SET_INTERNAL_H

#include "keyed/key_set.h"

enum key_set_phase { PHASE_UNBOUND, PHASE_BINDING, PHASE_BOUND };

#define PHASE_BITS 2u
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)

/* ---- what a version says ---- */

static inline uint64_t *key_set_words(const struct txn *txn)
{
    return txn_states(txn) + txn->set->limits.state_words - KEY_SET_WORDS;
}

static inline enum key_set_phase key_set_phase_of(const struct txn *txn)
{
    return (enum key_set_phase)(key_set_words(txn)[KEY_SET_WORD_BINDING] & PHASE_MASK);
}

static inline uint64_t key_set_binding(const struct txn *txn)
{
    return key_set_words(txn)[KEY_SET_WORD_BINDING] >> PHASE_BITS & BINDING_MASK;
}

/* The word that names a loan of it. */
static inline uint64_t key_set_word(const struct txn *txn, uint64_t binding)
{
    return KEY_SET_BIT | (uint64_t)key_set_of(txn->set)->number << BINDING_BITS |
           (binding & BINDING_MASK);
}

/* Whether the key of the version names it by its word; then its entry. */
bool key_set_is_named(const struct keyed *keyed, const struct txn *txn, struct key_entry *ret);

/* Who lends it anew may be stopped before the key's word says so, or dead. That is done for him. */
void key_set_help(const struct keyed *keyed, const struct txn *txn);

/* Reads the live set that a word names; false: it is not what the word says any more. */
bool key_set_read(struct txn *txn, struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                  struct key_set *storage);

/* The next loan is written into the version; returns the word that names it. */
uint64_t key_set_begin_binding(const struct txn *txn);
/* The end of the loan is published; false: the live set has changed. Nobody enters it any more. */
bool key_set_end_binding(struct txn *txn);

/* Whether who lends is dead, and what he held given back. Threads are not. */
bool key_set_is_abandoned(const struct txn *txn);

/* ---- those that are idle ---- */

/* Unless it is there already. */
void key_set_push_unbound(struct keyed *keyed, uint32_t number);
bool key_set_pop_unbound(struct keyed *keyed, uint32_t *ret);

/* ---- a key gets one ---- */

/* How many are looked at for one that can be lent: what a newcomer waits for has a bound. */
#define RECLAIM_MAX 64u

/* What somebody wants one for. */
struct bind_request {
    struct keyed *keyed;
    struct thread_ctx *ctx;
    const struct key_digest *key;
    const uint64_t *states;
    struct key_set *key_set; /* what it comes to */
    uint64_t word;
};

/* Lends it: 1; 0: it is not to be had; or a negative errno. */
int key_set_try_bind(struct bind_request *request, struct key_set *key_set);

/* One more, under the instance's lock: 0; -ENOBUFS: there are enough; -ENOMEM or -ESHUTDOWN; of a
 * segment what the system says. */
int key_set_make(struct keyed *keyed, uint32_t number);

/* One that can go is lent: 0; -EINPROGRESS: somebody was faster, look again; -ENOBUFS: none can; or a
 * negative errno. */
int key_set_reclaim(struct bind_request *request);

/* ---- a key has it no longer ---- */

/* Whether nobody is in line, or has reserved. */
static inline bool key_set_is_quiet(const struct txn *txn)
{
    return !waitq_length(&txn->version) && !(version_flags(&txn->version) & CONTENT_SHUT_DOWN) &&
           txn->at.now_ns == txn->now_ns && !set_is_broken(txn->set);
}

/* Whether its state can be a word of the table. */
static inline bool key_set_fits_word(const struct keyed *keyed, const struct txn *txn)
{
    return keyed->fits_inline && !(*txn_states(txn) & KEY_SET_BIT);
}

/* As key_set_use(), of the version that was read. */
enum key_use key_set_use_of(const struct txn *txn, uint64_t *ret_instant);

/* After the end of a loan that the entry names: the key gets its state back, or goes; by us, or
 * somebody else has seen to it. False: no word can be that. */
bool key_set_restore_entry(struct keyed *keyed, const struct txn *txn, struct key_entry *entry);

/* Takes the key's entry away, if it is still what was looked at, and counts that. */
bool key_set_remove_entry(const struct key_entry *entry, _Atomic uint64_t *counter);

#endif

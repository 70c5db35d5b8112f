/* SPDX-License-Identifier: MIT */
/* Shared parts of the key_set*.c modules, which README.md lists. */
#ifndef WEIR_CORE_KEYED_KEY_SET_INTERNAL_H
#define WEIR_CORE_KEYED_KEY_SET_INTERNAL_H

#include "base/invariant.h"
#include "keyed/key_set.h"

enum key_set_phase { PHASE_UNBOUND, PHASE_BINDING, PHASE_BOUND };

#define PHASE_BITS 2u
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)

/* ---- the content of a version ---- */

static inline uint64_t *key_set_words(const struct txn *txn)
{
    WEIR_INVARIANT(txn->set->limits.state_words >= KEY_SET_WORDS);
    return txn_states(txn) + txn->set->limits.state_words - KEY_SET_WORDS;
}

static inline enum key_set_phase key_set_phase_of(const struct txn *txn)
{
    return (enum key_set_phase)(key_set_words(txn)[KEY_SET_WORD_BINDING] & PHASE_MASK);
}

/* Returns the binding that this content of the key set's version names. */
static inline uint64_t key_set_binding_in(const weir_set *set, const uint64_t *content)
{
    return content[CONTENT_STATES + set->limits.state_words - KEY_SET_WORDS +
                   KEY_SET_WORD_BINDING] >>
               PHASE_BITS &
           BINDING_MASK;
}

static inline uint64_t key_set_binding(const struct txn *txn)
{
    return key_set_binding_in(txn->set, txn->version.content);
}

/* Returns the word that names a binding of the key set. */
static inline uint64_t key_set_word_of(const struct key_set *key_set, uint64_t binding)
{
    WEIR_INVARIANT(key_set->number < KEY_SETS_MAX);
    return KEY_SET_BIT | (uint64_t)key_set->number << BINDING_BITS | (binding & BINDING_MASK);
}

static inline uint64_t key_set_word(const struct txn *txn, uint64_t binding)
{
    return key_set_word_of(key_set_of(txn->set), binding);
}

/*
 * Returns whether the word of the version's key names this binding; then `*ret` is the key's entry.
 */
bool key_set_is_named(const struct keyed *keyed, const struct txn *txn, struct key_entry *ret);

/* Completes a rebind of a thread that may have been stopped or have died before the key's word
 * changed. */
void key_set_help(const struct keyed *keyed, const struct txn *txn);

/* Reads the key set that a word names. Returns false if it no longer has that binding. */
bool key_set_read(struct txn *txn, struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                  struct key_set *storage);

/* Writes the next binding into the private version. Returns the word that names it. */
uint64_t key_set_begin_binding(const struct txn *txn);
/* Commits the end of the binding, after which no operation is admitted. Returns false if the key
 * set has changed. */
bool key_set_end_binding(struct txn *txn);

/* Returns whether the binder has died and was recovered. Always false in a private set: its threads
 * do not die one by one. */
bool key_set_is_abandoned(const struct txn *txn);

/* ---- the stack of unbound key sets ---- */

/* Pushes a key set unless it is listed already. */
void key_set_push_unbound(struct keyed *keyed, uint32_t number);
/* Pops a number into `*ret`. Returns false if the stack is empty. */
bool key_set_pop_unbound(struct keyed *keyed, uint32_t *ret);

/* ---- binding ---- */

/* Bound on the key sets that one operation examines for one to reclaim. */
#define RECLAIM_MAX 64u

/* Request for a key set. */
struct bind_request {
    struct keyed *keyed;
    struct thread_ctx *ctx;
    const struct key_digest *key;
    const uint64_t *states;
    struct key_set *key_set; /* result */
    uint64_t word;
};

/* Binds the key set: 1; 0 if it is not available; or a negative errno. */
int key_set_try_bind(struct bind_request *request, struct key_set *key_set);

/* Makes one more key set, under the instance's lock. Returns 0; -ENOBUFS (at the maximum); -ENOMEM
 * or -ESHUTDOWN; in a segment, the error of the system. */
int key_set_make(struct keyed *keyed, uint32_t number);

/* Reclaims and binds a key set. Returns 0; -EINPROGRESS (lost a race, look the key up again);
 * -ENOBUFS (none can be reclaimed); or a negative errno. */
int key_set_reclaim(struct bind_request *request);

/* ---- unbinding ---- */

/* Returns whether the wait queue is empty, no reservation is ahead of the clock, and the set is
 * open and not broken. */
static inline bool key_set_is_quiet(const struct txn *txn)
{
    return !waitq_length(&txn->version) && !(version_flags(&txn->version) & CONTENT_SHUT_DOWN) &&
           txn->at.now_ns == txn->now_ns && !set_is_broken(txn->set);
}

/* Returns whether the state can be the word of a key. */
static inline bool key_set_fits_word(const struct keyed *keyed, const struct txn *txn)
{
    return keyed->fits_inline && !(*txn_states(txn) & KEY_SET_BIT);
}

/* Classifies the key of the version that was read. */
enum key_use key_set_use_of(const struct txn *txn, uint64_t *ret_instant);

/* Restores a key after its binding has ended: its word becomes the state, or the key is removed. If
 * the entry changed, another thread did so. Returns false if the state fits no word. */
bool key_set_restore_entry(struct keyed *keyed, const struct txn *txn, struct key_entry *entry);

/* Removes the entry if it is unchanged, and counts that in `counter`. Returns whether it did. */
bool key_set_remove_entry(const struct key_entry *entry, _Atomic uint64_t *counter);

#endif

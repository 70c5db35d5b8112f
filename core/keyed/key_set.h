/* SPDX-License-Identifier: MIT */
/*
 * Live sets: what keys have that need more than a word. Hidden sets, which are made once and then
 * lent to one key after another, so that whoever comes late finds a set, if a strange one.
 *
 * The word of a key that has one names it, and the loan: 1 | number:24 | loan:39. Behind the states
 * of a live set's versions stands whose they are: the key, the number of the loan, which grows by one
 * each time and never comes back (within 2^39 loans of one live set), its phase, and who lends. So
 * whatever is done with a live set is done with the key's, or, when the versions change, not at all.
 *
 *   PHASE_UNBOUND     no longer the key's, or never anybody's. What it says is still the state of a key
 *                 whose word names this loan: whoever comes by that word first gives the key its
 *                 state back, or forgets the key, or else lends the live set to it anew.
 *   PHASE_BINDING  filled for a key whose word does not name it yet, or does by now.
 *   PHASE_BOUND     somebody has entered it, by the key's word.
 *
 *   lending    of an idle one whose key's word does not name it: a version with the next loan,
 *              LENDING, then a compare-and-swap of the key's word to name that; if it fails, a
 *              version that says IDLE again.
 *   entering   reads the key's word, then the version: if that says the same loan and not IDLE, it
 *              is what counts, until the entry is published, which leaves it LENT.
 *   leaving    of one in whose line nobody is: a version that says IDLE, after which nobody enters;
 *              then the key's word becomes the state, or goes; by whoever comes first.
 *   lending anew, if an idle one is still named but says what no word can be: a version with the next
 *              loan, LENDING, and a compare-and-swap of the word from one loan to the next, which
 *              whoever finds it so does for him who may have been stopped.
 *   forgetting the key, or evicting it, when room is short: as leaving, before the key's entry is
 *              replaced. So no entry goes of which somebody may yet enter the live set.
 *
 * Who holds something of a key is not in its live set's way: what he gives back goes to wherever the
 * key's word says by then. Who waits is: one with a line is not idle.
 *
 * Nobody waits for anybody, and whoever dies leaves nothing undone that others could not do: see
 * above; but of one that was LENDING by then and is not named the loan is ended by whoever looks for
 * one that can go. Idle ones are in a stack, which is but a hint where to look first.
 */
#ifndef WEIR_CORE_KEYED_KEY_SET_H
#define WEIR_CORE_KEYED_KEY_SET_H

#include "keyed/keyed.h"
#include "set/instance_base.h"
#include "set/txn.h"

#define KEY_SET_BIT         (UINT64_C(1) << 63)
#define BINDING_BITS        39
#define BINDING_MASK        ((UINT64_C(1) << BINDING_BITS) - 1)
#define KEY_SET_NUMBER_BITS 24
#define KEY_SETS_MAX        (UINT32_C(1) << KEY_SET_NUMBER_BITS)

struct key_set {
    weir_set set; /* the first: see key_set_of(); what is fixed of it is the template's */
    struct keyed *keyed;
    uint32_t number;
    _Atomic uint32_t unbound_next, unbound_listed; /* of a private one: as struct segment_key_set */
};

/* That of a hidden set. */
static inline struct key_set *key_set_of(weir_set *set)
{
    return (struct key_set *)set;
}

/* The keyed set that a hidden one belongs to; any other set itself. */
static inline weir_set *key_set_template(weir_set *set)
{
    return set_is_key_set(set) ? key_set_of(set)->keyed->set : set;
}

/* Bytes that one takes, or hardly more. */
size_t key_set_size(const weir_set *set);

/* The record, and who keeps it, are of this set from now on: a live one, or its template. */
void key_set_mark_record(const weir_set *set, uint32_t record, uint32_t thread);
/* The set that a record of the template's, or of one of its live sets, says it is of; `storage` as
 * above. */
weir_set *key_set_of_record(weir_set *template, const struct acq_record *r,
                            struct key_set *storage);

/* Whether the word of a key names a live set, and which loan of it. */
static inline bool key_word_is_key_set(uint64_t word)
{
    return (word & KEY_SET_BIT) != 0;
}

static inline uint64_t key_word_binding(uint64_t word)
{
    return word & BINDING_MASK;
}

/*
 * The live set of a key's word. `storage`, if not NULL, is used where this process has not met it and
 * there is no memory: good for one operation. NULL: there is no such live set, which only what others
 * wrote can say, or (without storage) no memory.
 */
struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage);

/*
 * A live set for this key, with these states (NULL: those of a new key), and the word that names it,
 * by which it becomes known. Returns 0; -EINPROGRESS: somebody was faster, look again; -ENOBUFS:
 * there is no room for one more, and none can go; -ENOMEM; -ESHUTDOWN; -EUCLEAN; of a segment what the
 * system says.
 */
int key_set_bind(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                 const uint64_t *states, struct key_set **ret, uint64_t *ret_word);

/* The key did not get that word: the live set goes back. */
void key_set_unbind(struct key_set *key_set, struct thread_ctx *ctx, uint64_t word);

/*
 * As set_acquire(), if nobody is in line and it can be granted now, and as set_release_key_set() of what is
 * just not held any more, and whose record is free: of private live sets, that are of the loan which
 * actor->loan says. -EINPROGRESS: it takes more than that, and nothing has happened.
 */
int key_set_try_take(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts,
                     uint32_t record, struct decision *ret);
int key_set_release_now(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts);

/*
 * What the entry's word says of its live set did not hold: -EINPROGRESS: look again, whatever was
 * left undone was done; -EUCLEAN: it cannot be, and the set is broken; -ENOMEM.
 */
int key_set_repair(struct thread_ctx *ctx, struct keyed *keyed, const struct key_digest *key,
                   struct key_entry *entry);

/* As set_forecast(), of the live set that this word names; false: it is not what the word says. */
bool key_set_forecast(struct thread_ctx *ctx, struct key_set *key_set, uint64_t word,
                      const uint64_t *amounts, enum forecast_walk forecast_walk,
                      struct decision *ret);

/* If nobody is in line, and it can be done without, the key has it no longer. */
void key_set_unbind_if_idle(struct thread_ctx *ctx, struct key_set *key_set);

/* Whether limits with these states decide as new ones do. */
bool key_states_are_new(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at);

/*
 * For a judge of keys: what a key is good for whose limits have these states, which nobody holds;
 * or one with this word. The instant is the one at which it will have recovered.
 */
enum key_use key_states_use(const struct limits *limits, const uint64_t *states,
                            const struct weir_instant *at, uint64_t *ret_instant);
enum key_use key_set_use(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                         uint64_t *ret_instant);
/* And whether, as it may be used so, nobody can enter its live set any more. */
bool key_set_may_remove(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                        enum key_use use);

/* The words behind the states of a live set's version. */
enum { KEY_SET_WORD_PLACE, KEY_SET_WORD_ID, KEY_SET_WORD_BINDING, KEY_SET_WORD_BINDER };

/* How many there are: those with a greater number were never used. */
uint32_t key_sets_n(const struct keyed *keyed);
/* By number, as key_set_at(). */
struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage);

void key_sets_free(struct keyed *keyed);

#endif

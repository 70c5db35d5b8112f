/* SPDX-License-Identifier: MIT */
/*
 * Key sets: full sets that hold the state of keys for which one word is not enough. A key set is
 * made once and then bound to one key after another. README.md has the protocol.
 */
#ifndef WEIR_CORE_KEYED_KEY_SET_H
#define WEIR_CORE_KEYED_KEY_SET_H

#include "base/invariant.h"
#include "keyed/keyed.h"
#include "set/txn.h"

#define BINDING_BITS        39
#define BINDING_MASK        ((UINT64_C(1) << BINDING_BITS) - 1)
#define KEY_SET_NUMBER_BITS 24
#define KEY_SETS_MAX        (UINT32_C(1) << KEY_SET_NUMBER_BITS)

struct key_set {
    weir_set set; /* first: see key_set_of(); settings are the template set's */
    struct keyed *keyed;
    uint32_t number;
    _Atomic uint32_t unbound_next,
        unbound_listed; /* of a private key set: as in struct segment_key_set */
};

/* Returns the key set of a set for which set_is_key_set() is true. */
static inline struct key_set *key_set_of(weir_set *set)
{
    WEIR_INVARIANT(set_is_key_set(set));
    return (struct key_set *)set;
}

/* Returns the template set of a key set; any other set itself. */
static inline weir_set *key_set_template(weir_set *set)
{
    return set_is_key_set(set) ? key_set_of(set)->keyed->set : set;
}

/* Returns the set that a record of `template` names: the template set or one of its key sets.
 * `storage`: see key_set_at(). */
weir_set *key_set_of_record(weir_set *template, const struct acq_record *r,
                            struct key_set *storage);

/* Returns the binding that the word names. */
static inline uint64_t key_word_binding(uint64_t word)
{
    return word & BINDING_MASK;
}

/*
 * Returns the key set that a key's word names. If this process has not met it yet and `storage` is
 * not NULL, `*storage` is initialized and returned; it is valid for one operation. Returns NULL if
 * the word names no key set (in a segment, damage) or, without `storage`, if memory is short.
 */
struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage);

/* Words of a key set's version, behind the states. */
enum { KEY_SET_WORD_PLACE, KEY_SET_WORD_ID, KEY_SET_WORD_BINDING, KEY_SET_WORD_BINDER };

/* Returns the number of key sets made so far. */
uint32_t key_sets_n(const struct keyed *keyed);
/* Returns the key set of this number. `storage`: see key_set_at(); without it the instance's lock
 * is taken if this process has not met the key set. */
struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage);

#endif

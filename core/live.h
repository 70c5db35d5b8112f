/* SPDX-License-Identifier: MIT */
/*
 * Live sets: what keys have that need more than a word. Hidden sets, which are made once and then
 * lent to one key after another, so that whoever comes late finds a set, if a strange one, whose
 * records' words tell him that he has nothing to do with it.
 *
 * The word of a key that has one: 1 | number:24 | pins:39. `pins` counts those who have ever taken
 * hold of the live set, over all its keys, and live->left those who have let go of it. They are the
 * same when nobody has; then nothing can change in the set. A pair of number and pins never comes
 * back (within 2^39 pins), so whoever looks at a set that nobody holds, and then changes the key's
 * word from the one that he read before, knows that all he saw still held.
 */
#ifndef WEIR_CORE_LIVE_H
#define WEIR_CORE_LIVE_H

#include "instance.h"
#include "keyed.h"

#define WORD_LIVE         (UINT64_C(1) << 63)
#define LIVE_PINS_BITS    39
#define LIVE_PINS_MASK    ((UINT64_C(1) << LIVE_PINS_BITS) - 1)
#define LIVE_NUMBERS_BITS 24
#define LIVES_MAX         (UINT32_C(1) << LIVE_NUMBERS_BITS)

enum loan {
    LOAN_NONE,    /* it is idle */
    LOAN_UNKNOWN, /* nobody knows of it yet but who borrowed it */
    LOAN_KNOWN
};

struct live {
    weir_set set; /* the first: see live_of(); what is fixed of it is the template's */
    struct keyed *keyed;
    uint32_t number;
    _Atomic uint64_t place, id; /* of the key that it is lent to */
    _Atomic uint64_t left;      /* how many have ever let go */
    _Atomic uint64_t loans;     /* to how many keys it was lent; as the next two */
    enum loan loan;             /* under the lock of the keyed set */
    struct live *next;          /* idle */
};

/* That of a hidden set. */
static inline struct live *live_of(weir_set *set)
{
    return (struct live *)set;
}

/* Bytes that one takes, or hardly more. */
size_t live_size(const weir_set *set);

/*
 * A live set for this key, which nobody knows yet, with these states (NULL: those of a new key).
 * Returns 0; -ENOBUFS: there is no room for one more, and none can go; -ENOMEM; -ESHUTDOWN.
 */
int live_borrow(struct keyed *keyed, struct actor *actor, const struct key *key,
                const uint64_t *states, struct live **ret);

/* The word by which it becomes known, pinned once. */
uint64_t live_word(const struct live *live);

/* The key has that word: to be said before it is unpinned. Or it has not: the live set goes back. */
void live_known(struct live *live);
void live_return(struct live *live);

/* The live set of a key's word, or NULL: there is none, as words that are out of date may say. */
struct live *live_at(const struct keyed *keyed, uint64_t word);

/* The word with one more pin. */
uint64_t live_pinned(uint64_t word);

/* Whether limits with these states decide as new ones do. */
bool states_are_new(const struct limits *limits, const uint64_t *states,
                    const struct weir_instant *at);

/*
 * For a judge of keys: what a key is good for whose limits have these states, which nobody holds;
 * or one with this word. The instant is the one at which it will have recovered.
 */
enum key_use states_use(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at, uint64_t *ret_instant);
enum key_use live_use(struct actor *actor, const struct keyed *keyed, uint64_t word,
                      uint64_t *ret_instant);

void lives_free(struct keyed *keyed);

/* Lets go of it; who does so last looks whether it can go. */
void live_unpin(struct actor *actor, struct live *live);

#endif

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
 *   LIVE_IDLE     no longer the key's, or never anybody's. What it says is still the state of a key
 *                 whose word names this loan: whoever comes by that word first gives the key its
 *                 state back, or forgets the key, or else lends the live set to it anew.
 *   LIVE_LENDING  filled for a key whose word does not name it yet, or does by now.
 *   LIVE_LENT     somebody has entered it, by the key's word.
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

#include "api/instance.h"
#include "keyed/keyed.h"
#include "set/txn.h"

#define WORD_LIVE         (UINT64_C(1) << 63)
#define LIVE_LOAN_BITS    39
#define LIVE_LOAN_MASK    ((UINT64_C(1) << LIVE_LOAN_BITS) - 1)
#define LIVE_NUMBERS_BITS 24
#define LIVES_MAX         (UINT32_C(1) << LIVE_NUMBERS_BITS)

struct live {
    weir_set set; /* the first: see live_of(); what is fixed of it is the template's */
    struct keyed *keyed;
    uint32_t number;
    _Atomic uint32_t next, listed; /* of a private one: as struct segment_live */
};

/* That of a hidden set. */
static inline struct live *live_of(weir_set *set)
{
    return (struct live *)set;
}

/* The keyed set that a hidden one belongs to; any other set itself. */
static inline weir_set *set_template(weir_set *set)
{
    return set_is_hidden(set) ? live_of(set)->keyed->set : set;
}

/* Bytes that one takes, or hardly more. */
size_t live_size(const weir_set *set);

/* The record, and who keeps it, are of this set from now on: a live one, or its template. */
void live_mark(const weir_set *set, uint32_t record, uint32_t thread);
/* The set that a record of the template's, or of one of its live sets, says it is of; `storage` as
 * above. */
weir_set *live_marked(weir_set *template, const struct record *r, struct live *storage);

/* Whether the word of a key names a live set, and which loan of it. */
static inline bool word_is_live(uint64_t word)
{
    return (word & WORD_LIVE) != 0;
}

static inline uint64_t word_loan(uint64_t word)
{
    return word & LIVE_LOAN_MASK;
}

/*
 * The live set of a key's word. `storage`, if not NULL, is used where this process has not met it and
 * there is no memory: good for one operation. NULL: there is no such live set, which only what others
 * wrote can say, or (without storage) no memory.
 */
struct live *live_at(struct keyed *keyed, uint64_t word, struct live *storage);

/*
 * A live set for this key, with these states (NULL: those of a new key), and the word that names it,
 * by which it becomes known. Returns 0; -EINPROGRESS: somebody was faster, look again; -ENOBUFS:
 * there is no room for one more, and none can go; -ENOMEM; -ESHUTDOWN; -EUCLEAN; of a segment what the
 * system says.
 */
int live_borrow(struct keyed *keyed, struct actor *actor, const struct key *key,
                const uint64_t *states, struct live **ret, uint64_t *ret_word);

/* The key did not get that word: the live set goes back. */
void live_return(struct live *live, struct actor *actor, uint64_t word);

/* Whether the version that was read is of the loan that actor->loan says, so that one may enter, or
 * give something back; it says from now on that somebody has. */
bool live_admits(struct operation *op);

/*
 * As set_enter(), if nobody is in line and it can be granted now, and as set_settle_live() of what is
 * just not held any more, and whose record is free: of private live sets, that are of the loan which
 * actor->loan says. -EINPROGRESS: it takes more than that, and nothing has happened.
 */
int live_take(struct actor *actor, struct live *live, const uint64_t *amounts, uint32_t record,
              struct verdict *ret);
int live_give_back(struct actor *actor, struct live *live, const uint64_t *amounts);

/*
 * What the entry's word says of its live set did not hold: -EINPROGRESS: look again, whatever was
 * left undone was done; -EUCLEAN: it cannot be, and the set is broken; -ENOMEM.
 */
int live_mend(struct actor *actor, struct keyed *keyed, const struct key *key,
              struct key_entry *entry);

/* As set_estimate(), of the live set that this word names; false: it is not what the word says. */
bool live_estimate(struct actor *actor, struct live *live, uint64_t word, const uint64_t *amounts,
                   enum walk walk, struct verdict *ret);

/* If nobody is in line, and it can be done without, the key has it no longer. */
void live_leave(struct actor *actor, struct live *live);

/* Whether limits with these states decide as new ones do. */
bool states_are_new(const struct limits *limits, const uint64_t *states,
                    const struct weir_instant *at);

/*
 * For a judge of keys: what a key is good for whose limits have these states, which nobody holds;
 * or one with this word. The instant is the one at which it will have recovered.
 */
enum key_use states_use(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at, uint64_t *ret_instant);
enum key_use live_use(struct actor *actor, struct keyed *keyed, uint64_t word,
                      uint64_t *ret_instant);
/* And whether, as it may be used so, nobody can enter its live set any more. */
bool live_let_go(struct actor *actor, struct keyed *keyed, uint64_t word, enum key_use use);

/* The words behind the states of a live set's version. */
enum { LIVE_PLACE, LIVE_ID, LIVE_LOAN, LIVE_LENDER };

/* How many there are: those with a greater number were never used. */
uint32_t lives_n(const struct keyed *keyed);
/* By number, as live_at(). */
struct live *live_numbered(struct keyed *keyed, uint32_t number, struct live *storage);

void lives_free(struct keyed *keyed);

#endif

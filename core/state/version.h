/* SPDX-License-Identifier: MIT */
/*
 * Publication: how a set's state changes, atomically, for threads and processes that may be stopped
 * or killed between any two instructions. Nothing here knows what a limit or a line is.
 *
 * A set has one word. The word names a box and the version in it: 1 | version:41 | slot:22. A box
 * holds the whole state of the set as of one version (the content), and the effects: up to four
 * words elsewhere (in records) that change together with the state, each as {place, old, new}. To
 * change a set, an actor (a thread)
 *
 *   1. copies the content of the current box, and reads the word again: if it moved, starts anew;
 *   2. if the effects of that version are not known to be complete, completes them (help);
 *   3. computes the next content and its effects in private;
 *   4. writes them into a box of its own, with that box's next version;
 *   5. compares-and-swaps the word from the version it read to its own: the only commit point;
 *   6. completes the effects, and receives the replaced box as its own for the next time.
 *
 * Invariants, each of which the tests check:
 *   - A version whose effects are incomplete is never superseded (2 comes before 5).
 *   - A pair of slot and version never comes back, so the compare-and-swap has no ABA.
 *   - Every `old` of an effect is unique in the life of its place (it carries a sequence number, or
 *     is a marker with one), so helping is idempotent and indifferent to delay: of all helpers,
 *     however late, exactly one compare-and-swap succeeds.
 *   - There are exactly as many boxes of a class as sets and actors use; each is the current box of
 *     one set or the own box of one actor. A box is written only by the actor that owns it.
 *
 * `done` may be set back by a helper that comes late, to an older version of the same box: then
 * others help again and find nothing to do.
 *
 * Checked by tests/crash: death, stop and hand-over at every step, and a model of all this
 * (publication.pml) that was searched exhaustively: two workers, a death and a rescuer, 7.3 million
 * states; three workers, 19.8 million. docs/publication.md has the decision and the weak points.
 *
 * All this is for sets of several limits, and for sets with a line. A set whose state is one word
 * keeps it in its own word while nobody is in line, bit 63 being 0 then: word.h has what is done
 * there, by one compare-and-swap each. Both are one word, so nobody has to be told of a change:
 *
 *   boxing    is an ordinary version, whose `replaced` is such a word. There is no replaced box to
 *             receive; its publisher receives the set's spare one instead, which whoever completes
 *             the version reads after the commit and before he looks whether it is still current:
 *             until it is complete nobody changes `spare`.
 *   unboxing  of a complete version without a line: the box becomes the spare one, by a
 *             compare-and-swap from a value that was read before another look at the word; then the
 *             word is changed. Who comes late with the first finds `spare` changed; and if it was
 *             done in vain, the set still has its box and the next who unboxes does it again.
 */
#ifndef WEIR_CORE_STATE_VERSION_H
#define WEIR_CORE_STATE_VERSION_H

#include "base/mutant.h"
#include "base/prefetch.h"
#include "base/sched_point.h"
#include "shm/region.h"
#include <stdatomic.h>
#include <stdbool.h>

#define EFFECTS_MAX 4u

#define WORD_BOXED     (UINT64_C(1) << 63)
#define WORD_SLOT_BITS 22
#define WORD_SLOT_MASK ((UINT64_C(1) << WORD_SLOT_BITS) - 1)

/* Boxes come in classes: powers of two in bytes. The slot number counts boxes of the set's class.
 */
#define BOX_CLASS_MIN 8u
#define BOX_CLASS_MAX 28u
#define BOX_CLASSES   (BOX_CLASS_MAX - BOX_CLASS_MIN + 1)

struct box {
    _Atomic uint64_t version;  /* of this box; one more at each publication */
    _Atomic uint64_t done;     /* the version whose effects are known to be complete */
    _Atomic uint64_t replaced; /* the word that this version replaced */
    _Atomic uint64_t meta;     /* actor:32 | content words:24 | effects:8 */
    _Atomic uint64_t told;     /* the version, once everybody was woken whom it concerns */
    _Atomic uint64_t places[EFFECTS_MAX / 2]; /* two 32-bit places each */
    _Atomic uint64_t effects[EFFECTS_MAX][2]; /* old, new */
    _Atomic uint64_t content[];
};

/* The shared part of a set. */
struct set_head {
    _Atomic uint64_t word;
    _Atomic uint64_t
        spare;          /* version:41 | slot:22 of the box it has while it needs none; 0: none */
    uint32_t box_class; /* log2 of the size of its boxes */
    uint32_t number;
    _Atomic uint32_t pressed; /* of a private set: 1: somebody has lost for long (pressing.h) */
    _Atomic uint32_t first;   /* of a private set: a record that headed its line lately */
};

/* The shared part of an actor. */
struct actor_head {
    _Atomic uint64_t own[BOX_CLASSES]; /* version:41 | slot:22 of its own box; 0: none yet */
    _Atomic uint64_t intent;           /* unit of the set head it is working on */
    _Atomic uint64_t generation;       /* counts the lives of this actor */
};

/* The parts of a set's word that names a box. */
static inline uint64_t word_slot(uint64_t word)
{
    return word & WORD_SLOT_MASK;
}

static inline uint64_t word_version(uint64_t word)
{
    return (word & ~WORD_BOXED) >> WORD_SLOT_BITS;
}

/* Versions wrap after 2^41 publications of one box, days of nothing else: hence the mask. */
static inline uint64_t word_make(uint64_t slot, uint64_t version)
{
    uint64_t shifted = version << WORD_SLOT_BITS;

    return (MUTANT(24) ? shifted : shifted & ~WORD_BOXED) | slot;
}

/* The word that names the next version of a box, from an own word. */
static inline uint64_t word_after(uint64_t own)
{
    return WORD_BOXED | (own + (UINT64_C(1) << WORD_SLOT_BITS));
}

/* In the form of an own word. */
static inline uint64_t word_own(uint64_t word)
{
    return word & ~WORD_BOXED;
}

static inline uint64_t box_meta(uint32_t actor, uint32_t content_n, uint32_t effects_n)
{
    return (uint64_t)actor << 32 | (uint64_t)content_n << 8 | effects_n;
}

static inline uint32_t box_content_n(uint64_t meta)
{
    return (uint32_t)(meta >> 8) & 0xffffff;
}

/* How often a reader waits for the publisher to complete its effects before it helps. */
#define HELP_AFTER 3u

/* A word that changes with a version: word `place & 7` of record `place >> 3`. */
struct effect {
    uint32_t place;
    bool own; /* of the publisher's own record, which is nobody else's business meanwhile */
    uint64_t before, after;
};

/* What a set's word is while it is not boxed. */
enum word_form {
    WORD_NONE,  /* the set is always boxed */
    WORD_STATE, /* the one word of its state */
    /* A count of what is held, and a bit for each seat of the set's ledger: used:16 | bits:47. */
    WORD_LEDGER
};

#define LEDGER_SEATS      47u
#define LEDGER_BITS       ((UINT64_C(1) << LEDGER_SEATS) - 1)
#define LEDGER_USED_SHIFT LEDGER_SEATS
#define LEDGER_USED_MAX   UINT64_C(0xffff)

/* What goes with such a word: see ledger.h. */
struct seats {
    _Atomic uint64_t owners[LEDGER_SEATS]; /* keys of the processes whose they are; 0: free */
    struct {
        _Alignas(64) _Atomic uint64_t announced;
    } at[LEDGER_SEATS];
};

/* The state in a word that is not boxed. */
static inline uint64_t word_state(enum word_form form, uint64_t word)
{
    return form == WORD_LEDGER ? word >> LEDGER_USED_SHIFT : word;
}

/* Where the state is in the content of a version that was read from such a word; 0 is before it. */
#define WORD_STATE_AT 3u
/* And the bits of a ledger's word: behind it. */
#define LEDGER_BITS_AT (WORD_STATE_AT + 1)

/* A private copy of one version, and what the next one is to be. */
struct version {
    uint64_t word;     /* the set's word when it was read */
    uint64_t *content; /* memory of the actor's, content_capacity words */
    uint32_t content_n, content_capacity;
    enum word_form form; /* the set's; set by the caller */
    bool strange;        /* read: the box is of another version, which nobody publishes */
    bool untold;         /* read: whoever published it may not have woken yet whom it concerns */
    bool tells; /* to be published: somebody is to be woken; publication_told() says when */
    uint32_t effects_n;
    struct effect effects[EFFECTS_MAX];
};

/* The class of a box that holds so many words of content; 0 if it would be too large. */
uint32_t box_class_for(size_t content_words);
/* Words of content that a box of this class holds. */
size_t box_capacity(uint32_t box_class);

/* Writes a set's first version, with this content, into the box of this slot, and names it. */
void publication_begin(struct set_head *set, uint32_t box_class, uint32_t number, struct box *box,
                       uint64_t slot, const uint64_t *content, size_t content_n);

/* Makes a set with this first content. Returns the unit of its head, or 0 when out of memory. The
 * caller holds the instance's lock. */
uint32_t publication_new_set(struct region *region, uint32_t box_class, uint32_t number,
                             const uint64_t *content, size_t content_n);
/* The same with this state in its word, and no box. */
uint32_t publication_new_word(struct region *region, uint32_t box_class, uint32_t number,
                              uint64_t word);
/* The set gets a spare box unless it has one: 0 or -ENOMEM. As above. Only with one may a version be
 * published over a word that is not boxed. */
int publication_reserve(struct region *region, uint32_t set);
/* Makes an actor, without boxes. Returns the unit of its head, or 0. As above. */
uint32_t publication_new_actor(struct region *region);
/* Gives the actor a box of this class, once. Returns 0 or -ENOMEM. As above. */
int publication_prepare(struct region *region, uint32_t actor, uint32_t box_class);

/* Says which set the actor works on, before it reads: whoever recovers a dead actor starts there.
 */
static inline void publication_intend(const struct region *region, uint32_t actor, uint32_t set)
{
    struct actor_head *head = region_box(region, actor);

    if (atomic_load_explicit(&head->intent, memory_order_relaxed) != set)
        atomic_store_explicit(&head->intent, set, memory_order_release);
    STEP();
}

/*
 * Copies the current version; its effects are complete on return. version->content must have room
 * for a full box. Lock-free: it starts anew only if somebody else committed.
 */
void publication_read(const struct region *region, uint32_t set, struct version *version);

/* The same for a word that is not boxed, which owes nothing. */
void publication_read_word(struct version *version, uint64_t word);

/* The set's word as it is. */
static inline uint64_t publication_peek(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_box(region, set);

    return atomic_load_explicit(&head->word, memory_order_acquire);
}

/* A word of what the set's box holds, which may be another's by then; 0 if it is not boxed. */
uint64_t publication_guess(const struct region *region, uint32_t set, uint32_t i);

/* Says that the set's word is about to be changed. */
static inline void publication_prefetch(const struct region *region, uint32_t set)
{
    fetch_to_write(region_box(region, set));
}

/* Who heads its line: no more than a guess, for whoever asks for the record early. */
static inline void publication_say_first(const struct region *region, uint32_t set, uint32_t record)
{
    struct set_head *head = region_box(region, set);

    atomic_store_explicit(&head->first, record, memory_order_relaxed);
}

/* The box that it has while it needs none; 0: none yet. */
static inline uint64_t publication_spare(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_box(region, set);

    return atomic_load_explicit(&head->spare, memory_order_acquire);
}

static inline bool version_is_boxed(const struct version *version)
{
    return (version->word & WORD_BOXED) != 0;
}

/* Changes the word of a set from that of a complete version without a line to `word`, which is not
 * boxed. False: the set has changed. */
bool publication_unbox(const struct region *region, uint32_t set, const struct version *version,
                       uint64_t word);

/* Whether the set's word is still the one that was read: whatever was read in between is of it. */
bool publication_current(const struct region *region, uint32_t set, const struct version *version);

/*
 * Publishes version->content and version->effects as the successor of version->word. On success
 * the effects are complete, version->word is the new word, and true comes back. False: somebody
 * else committed first and nothing happened; read again.
 */
bool publication_commit(const struct region *region, uint32_t actor, uint32_t set,
                        struct version *version);

/*
 * Somebody who is stopped, or dies, between publishing and waking leaves a version untold. Whoever
 * reads it then can do the waking from its effects: at most EFFECTS_MAX of them into `ret`, 0 if it
 * is not current any more. After the waking: publication_told(). Several may do both.
 */
uint32_t publication_effects(const struct region *region, uint32_t set,
                             const struct version *version, struct effect *ret);
void publication_told(const struct region *region, uint32_t set, const struct version *version);

/* Completes the effects of the set's current version, whoever published it. */
void publication_help(const struct region *region, uint32_t set);

/* Changes the set's word if it is still `before`: for what is not boxed, that is all. */
static inline bool publication_swap(const struct region *region, uint32_t set, uint64_t before,
                                    uint64_t after)
{
    struct set_head *head = region_box(region, set);

    /* In one order with what says that the instance is closed: see set_enter(). */
    return atomic_compare_exchange_strong(&head->word, &before, after);
}

/* Waits 2^turn pauses; `*turn` grows by one, to 6 at most. */
void publication_back_off(unsigned *turn);

#endif

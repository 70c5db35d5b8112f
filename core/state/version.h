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
 * keeps it in its own word while nobody is in line, bit 63 being 0 then: inline_state.h has what is done
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

#include "base/prefetch.h"
#include "base/sched_point.h"
#include "shm/region.h"
#include <stdatomic.h>
#include <stdbool.h>

#define DEFERRED_WRITES_MAX 4u

#define INFLATED_BIT    (UINT64_C(1) << 63)
#define BLOCK_SLOT_BITS 22
#define BLOCK_SLOT_MASK ((UINT64_C(1) << BLOCK_SLOT_BITS) - 1)

/* Boxes come in classes: powers of two in bytes. The slot number counts boxes of the set's class.
 */
#define BLOCK_CLASS_MIN 8u
#define BLOCK_CLASS_MAX 28u
#define BLOCK_CLASSES   (BLOCK_CLASS_MAX - BLOCK_CLASS_MIN + 1)

struct version_block {
    _Atomic uint64_t version;     /* of this box; one more at each publication */
    _Atomic uint64_t completed;   /* the version whose effects are known to be complete */
    _Atomic uint64_t predecessor; /* the word that this version replaced */
    _Atomic uint64_t meta;        /* actor:32 | content words:24 | effects:8 */
    _Atomic uint64_t notified;    /* the version, once everybody was woken whom it concerns */
    _Atomic uint64_t targets[DEFERRED_WRITES_MAX / 2]; /* two 32-bit places each */
    _Atomic uint64_t writes[DEFERRED_WRITES_MAX][2];   /* old, new */
    _Atomic uint64_t content[];
};

/* The shared part of a set. */
struct set_head {
    _Atomic uint64_t state_word;
    _Atomic uint64_t
        reserve_block;    /* version:41 | slot:22 of the box it has while it needs none; 0: none */
    uint32_t block_class; /* log2 of the size of its boxes */
    uint32_t number;
    _Atomic uint32_t
        yield_hint; /* of a private set: 1: somebody has lost for long (contention.h) */
    _Atomic uint32_t recent_head; /* of a private set: a record that headed its line lately */
};

/* The shared part of an actor. */
struct thread_head {
    _Atomic uint64_t
        own_blocks[BLOCK_CLASSES]; /* version:41 | slot:22 of its own box; 0: none yet */
    _Atomic uint64_t active_set;   /* unit of the set head it is working on */
    _Atomic uint64_t generation;   /* counts the lives of this actor */
};

/* The parts of a set's word that names a box. */
static inline uint64_t state_word_slot(uint64_t word)
{
    return word & BLOCK_SLOT_MASK;
}

static inline uint64_t state_word_version(uint64_t word)
{
    return (word & ~INFLATED_BIT) >> BLOCK_SLOT_BITS;
}

/* Versions wrap after 2^41 publications of one box, days of nothing else: hence the mask. */
static inline uint64_t block_ref_make(uint64_t slot, uint64_t version)
{
    uint64_t shifted = version << BLOCK_SLOT_BITS;

    return (shifted & ~INFLATED_BIT) | slot;
}

/* The word that names the next version of a box, from an own word. */
static inline uint64_t state_word_next(uint64_t own)
{
    return INFLATED_BIT | (own + (UINT64_C(1) << BLOCK_SLOT_BITS));
}

/* In the form of an own word. */
static inline uint64_t block_ref_of_word(uint64_t word)
{
    return word & ~INFLATED_BIT;
}

static inline uint64_t block_meta(uint32_t thread, uint32_t content_n, uint32_t writes_n)
{
    return (uint64_t)thread << 32 | (uint64_t)content_n << 8 | writes_n;
}

static inline uint32_t block_content_n(uint64_t meta)
{
    return (uint32_t)(meta >> 8) & 0xffffff;
}

/* How often a reader waits for the publisher to complete its effects before it helps. */
#define HELP_AFTER 3u

/* A word that changes with a version: word `place & 7` of record `place >> 3`. */
struct deferred_write {
    uint32_t target;
    bool
        is_exclusive; /* of the publisher's own record, which is nobody else's business meanwhile */
    uint64_t expected, desired;
};

/* What a set's word is while it is not boxed. */
enum inline_format {
    INLINE_NONE,  /* the set is always boxed */
    INLINE_STATE, /* the one word of its state */
    /* A count of what is held, and a bit for each seat of the set's ledger: used:16 | bits:47. */
    INLINE_DCAS
};

#define DCAS_SLOTS      47u
#define DCAS_BITS       ((UINT64_C(1) << DCAS_SLOTS) - 1)
#define DCAS_USED_SHIFT DCAS_SLOTS
#define DCAS_USED_MAX   UINT64_C(0xffff)

/* What goes with such a word: see detectable_cas.h. */
struct announce_slots {
    _Atomic uint64_t owners[DCAS_SLOTS]; /* keys of the processes whose they are; 0: free */
    struct {
        _Alignas(64) _Atomic uint64_t announcement;
    } slots[DCAS_SLOTS];
};

/* The state in a word that is not boxed. */
static inline uint64_t inline_state_decode(enum inline_format inline_format, uint64_t word)
{
    return inline_format == INLINE_DCAS ? word >> DCAS_USED_SHIFT : word;
}

/* Where the state is in the content of a version that was read from such a word; 0 is before it. */
#define INLINE_STATE_AT 3u
/* And the bits of a ledger's word: behind it. */
#define DCAS_BITS_AT (INLINE_STATE_AT + 1)

/* A private copy of one version, and what the next one is to be. */
struct version {
    uint64_t state_word; /* the set's word when it was read */
    uint64_t *content;   /* memory of the actor's, content_capacity words */
    uint32_t content_n, content_capacity;
    enum inline_format inline_format; /* the set's; set by the caller */
    bool is_mismatch;  /* read: the box is of another version, which nobody publishes */
    bool needs_notify; /* read: whoever published it may not have woken yet whom it concerns */
    bool
        will_notify; /* to be published: somebody is to be woken; version_set_notified() says when */
    uint32_t writes_n;
    struct deferred_write writes[DEFERRED_WRITES_MAX];
};

/* The class of a box that holds so many words of content; 0 if it would be too large. */
uint32_t block_class_for(size_t content_words);
/* Words of content that a box of this class holds. */
size_t block_capacity(uint32_t block_class);

/* Writes a set's first version, with this content, into the box of this slot, and names it. */
void version_init(struct set_head *set, uint32_t block_class, uint32_t number,
                  struct version_block *block, uint64_t slot, const uint64_t *content,
                  size_t content_n);

/* Makes a set with this first content. Returns the unit of its head, or 0 when out of memory. The
 * caller holds the instance's lock. */
uint32_t version_new_set(struct region *region, uint32_t block_class, uint32_t number,
                         const uint64_t *content, size_t content_n);
/* The same with this state in its word, and no box. */
uint32_t version_new_inline_set(struct region *region, uint32_t block_class, uint32_t number,
                                uint64_t word);
/* The set gets a spare box unless it has one: 0 or -ENOMEM. As above. Only with one may a version be
 * published over a word that is not boxed. */
int version_add_reserve_block(struct region *region, uint32_t set);
/* Makes an actor, without boxes. Returns the unit of its head, or 0. As above. */
uint32_t version_new_thread(struct region *region);
/* Gives the actor a box of this class, once. Returns 0 or -ENOMEM. As above. */
int version_add_own_block(struct region *region, uint32_t thread, uint32_t block_class);

/* Says which set the actor works on, before it reads: whoever recovers a dead actor starts there.
 */
static inline void version_set_active(const struct region *region, uint32_t thread, uint32_t set)
{
    struct thread_head *head = region_block(region, thread);

    if (atomic_load_explicit(&head->active_set, memory_order_relaxed) != set)
        atomic_store_explicit(&head->active_set, set, memory_order_release);
    SCHED_POINT();
}

/*
 * Copies the current version; its effects are complete on return. version->content must have room
 * for a full box. Lock-free: it starts anew only if somebody else committed.
 */
void version_read(const struct region *region, uint32_t set, struct version *version);

/* The same for a word that is not boxed, which owes nothing. */
void version_from_inline(struct version *version, uint64_t word);

/* The set's word as it is. */
static inline uint64_t version_peek_word(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->state_word, memory_order_acquire);
}

/* A word of what the set's box holds, which may be another's by then; 0 if it is not boxed. */
uint64_t version_peek_content(const struct region *region, uint32_t set, uint32_t i);

/* Says that the set's word is about to be changed. */
static inline void version_prefetch(const struct region *region, uint32_t set)
{
    prefetch_write(region_block(region, set));
}

/* Who heads its line: no more than a guess, for whoever asks for the record early. */
static inline void version_hint_head(const struct region *region, uint32_t set, uint32_t record)
{
    struct set_head *head = region_block(region, set);

    atomic_store_explicit(&head->recent_head, record, memory_order_relaxed);
}

/* The box that it has while it needs none; 0: none yet. */
static inline uint64_t version_reserve_block(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->reserve_block, memory_order_acquire);
}

static inline bool version_is_inflated(const struct version *version)
{
    return (version->state_word & INFLATED_BIT) != 0;
}

/* Changes the word of a set from that of a complete version without a line to `word`, which is not
 * boxed. False: the set has changed. */
bool version_deflate(const struct region *region, uint32_t set, const struct version *version,
                     uint64_t word);

/* Whether the set's word is still the one that was read: whatever was read in between is of it. */
bool version_is_current(const struct region *region, uint32_t set, const struct version *version);

/*
 * Publishes version->content and version->effects as the successor of version->word. On success
 * the effects are complete, version->word is the new word, and true comes back. False: somebody
 * else committed first and nothing happened; read again.
 */
bool version_commit(const struct region *region, uint32_t thread, uint32_t set,
                    struct version *version);

/*
 * Somebody who is stopped, or dies, between publishing and waking leaves a version untold. Whoever
 * reads it then can do the waking from its effects: at most DEFERRED_WRITES_MAX of them into `ret`, 0 if it
 * is not current any more. After the waking: version_set_notified(). Several may do both.
 */
uint32_t version_deferred_writes(const struct region *region, uint32_t set,
                                 const struct version *version, struct deferred_write *ret);
void version_set_notified(const struct region *region, uint32_t set, const struct version *version);

/* Completes the effects of the set's current version, whoever published it. */
void version_help(const struct region *region, uint32_t set);

/* Changes the set's word if it is still `before`: for what is not boxed, that is all. */
static inline bool version_cas_word(const struct region *region, uint32_t set, uint64_t expected,
                                    uint64_t desired)
{
    struct set_head *head = region_block(region, set);

    /* In one order with what says that the instance is closed: see set_acquire(). */
    return atomic_compare_exchange_strong(&head->state_word, &expected, desired);
}

/* Waits 2^turn pauses; `*turn` grows by one, to 6 at most. */
void spin_backoff(unsigned *turn);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What sets and threads keep in memory that processes may share: the state word of a set, version
 * blocks, announcement slots. state/version.h has the protocol by which they change.
 */
#ifndef WEIR_CORE_SHM_SET_LAYOUT_H
#define WEIR_CORE_SHM_SET_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

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

/* The class of a box that holds so many words of content; 0 if it would be too large. */
uint32_t block_class_for(size_t content_words);
/* Words of content that a box of this class holds. */
size_t block_capacity(uint32_t block_class);

/* Writes a set's first version, with this content, into the box of this slot, and names it. */
void set_layout_init(struct set_head *set, uint32_t block_class, uint32_t number,
                     struct version_block *block, uint64_t slot, const uint64_t *content,
                     size_t content_n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What sets and threads keep in memory that processes may share: the state word of a set, version
 * blocks, announcement slots. state/version.h has the protocol by which they change.
 */
#ifndef WEIR_CORE_SHM_SET_LAYOUT_H
#define WEIR_CORE_SHM_SET_LAYOUT_H

#include "base/invariant.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Thread contexts of a segment, at most. */
#define SEGMENT_THREADS_MAX 4096u

#define DEFERRED_WRITES_MAX 4u

#define INFLATED_BIT    (UINT64_C(1) << 63)
#define BLOCK_SLOT_BITS 22
#define BLOCK_SLOT_MASK ((UINT64_C(1) << BLOCK_SLOT_BITS) - 1)

/* Block classes are powers of two in bytes. A slot number counts blocks of the set's class. */
#define BLOCK_CLASS_MIN 8u
#define BLOCK_CLASS_MAX 28u
#define BLOCK_CLASSES   (BLOCK_CLASS_MAX - BLOCK_CLASS_MIN + 1)

/* Content words that a version can have at most: as many as `meta` can count. */
#define BLOCK_CONTENT_BITS 24
#define BLOCK_CONTENT_MAX  ((UINT32_C(1) << BLOCK_CONTENT_BITS) - 1)

struct version_block {
    _Atomic uint64_t version;     /* the block's version, incremented by each commit */
    _Atomic uint64_t completed;   /* version with its deferred writes known to be complete */
    _Atomic uint64_t predecessor; /* state word that this version replaced */
    _Atomic uint64_t meta;        /* thread head unit:32 | content words:24 | deferred writes:8 */
    _Atomic uint64_t notified;    /* version with all its waiters notified */
    _Atomic uint64_t targets[DEFERRED_WRITES_MAX / 2]; /* two 32-bit targets each */
    _Atomic uint64_t writes[DEFERRED_WRITES_MAX][2];   /* expected, desired */
    _Atomic uint64_t content[];
};

/* The head of a set. Of a shared set it lies in the segment. */
struct set_head {
    _Atomic uint64_t state_word;
    /* Block reference of the set's block while it is inline; 0: none. */
    _Atomic uint64_t reserve_block;
    uint8_t block_class; /* log2 of its blocks' size in bytes */
    /* Time of the last walk over all waiters, as set_may_walk() counts it. */
    _Atomic uint16_t walk_tick;
    uint32_t number;
    _Atomic uint32_t next_turn;   /* unit of the head of a thread that waits for its turn; 0 */
    _Atomic uint32_t recent_head; /* private sets: a recent head of the wait queue */
};

/* The head of a thread context, the part that helpers and recovery read. */
struct thread_head {
    /* Block references, version:41 | slot:22, of the thread's own blocks; 0: none yet. */
    _Atomic uint64_t own_blocks[BLOCK_CLASSES];
    _Atomic uint64_t active_set; /* unit of the head of the set it works on */
    _Atomic uint64_t generation; /* counts the context's lives: +1 at recovery and at a claim */
    /* Contention (state/contention.h): whether the turn of the thread that waits has come, stored
     * by another one; and how many operations it has done while another one waits. */
    _Atomic uint32_t turn_has_come, turn_done;
};

/* Slot and version of an inflated state word or a block reference. */
static inline uint64_t state_word_slot(uint64_t word)
{
    return word & BLOCK_SLOT_MASK;
}

static inline uint64_t state_word_version(uint64_t word)
{
    return (word & ~INFLATED_BIT) >> BLOCK_SLOT_BITS;
}

/* Returns the block reference of a slot and version. Versions wrap after 2^41 commits of one block,
 * which takes days; hence the mask. */
static inline uint64_t block_ref_make(uint64_t slot, uint64_t version)
{
    uint64_t shifted = version << BLOCK_SLOT_BITS;

    WEIR_INVARIANT(slot <= BLOCK_SLOT_MASK);
    return (shifted & ~INFLATED_BIT) | slot;
}

/* Returns the state word that refers to the next version of a thread's own block. */
static inline uint64_t state_word_next(uint64_t own)
{
    return INFLATED_BIT | (own + (UINT64_C(1) << BLOCK_SLOT_BITS));
}

/* Returns the block reference in an inflated state word. */
static inline uint64_t block_ref_of_word(uint64_t word)
{
    return word & ~INFLATED_BIT;
}

static inline uint64_t block_meta(uint32_t thread, uint32_t content_n, uint32_t writes_n)
{
    WEIR_INVARIANT(content_n <= BLOCK_CONTENT_MAX && writes_n <= DEFERRED_WRITES_MAX);
    return (uint64_t)thread << 32 | (uint64_t)content_n << 8 | writes_n;
}

static inline uint32_t block_content_n(uint64_t meta)
{
    return (uint32_t)(meta >> 8) & BLOCK_CONTENT_MAX;
}

/* Formats of a state word that is inline. */
enum inline_format {
    INLINE_NONE,  /* never inline: the set is always inflated */
    INLINE_STATE, /* the one word of an algorithm's state */
    INLINE_COUNT, /* units held of a counted resource */
    /* Units held, a mark that is always 1, and a toggle bit for each announcement slot: used:16 |
     * mark:1 | bits:46. So the word is never 0. */
    INLINE_DCAS
};

#define DCAS_SLOTS      46u
#define DCAS_MARK       (UINT64_C(1) << DCAS_SLOTS)
#define DCAS_BITS       ((DCAS_MARK << 1) - 1) /* with the mark */
#define DCAS_USED_SHIFT (DCAS_SLOTS + 1)
#define DCAS_USED_MAX   UINT64_C(0xffff)

/* Announcement slots of a set with INLINE_DCAS: see detectable_cas.h. */
struct announce_slots {
    _Atomic uint64_t owners[DCAS_SLOTS]; /* peer keys of the owners; 0: free */
    struct {
        _Alignas(64) _Atomic uint64_t announcement;
    } slots[DCAS_SLOTS];
};

/* Returns the state in a word that is inline. */
static inline uint64_t inline_state_decode(enum inline_format inline_format, uint64_t word)
{
    return inline_format == INLINE_DCAS ? word >> DCAS_USED_SHIFT : word;
}

/* Returns the offset at which the last block of this class ends that has a slot number. */
static inline size_t block_slots_end(uint32_t block_class)
{
    return (size_t)(BLOCK_SLOT_MASK + 1) << block_class;
}

/* Returns the content words that a block of this class has room for. */
static inline size_t block_capacity(uint32_t block_class)
{
    WEIR_INVARIANT(block_class >= BLOCK_CLASS_MIN && block_class <= BLOCK_CLASS_MAX);
    return (((size_t)1 << block_class) - sizeof(struct version_block)) / sizeof(uint64_t);
}

/* Returns the smallest class of a block with room for so much content; 0: too large. */
static inline uint32_t block_class_for(size_t content_words)
{
    uint32_t block_class = BLOCK_CLASS_MIN;

    if (content_words > BLOCK_CONTENT_MAX)
        return 0;
    while (block_class <= BLOCK_CLASS_MAX && block_capacity(block_class) < content_words)
        block_class++;
    return block_class <= BLOCK_CLASS_MAX ? block_class : 0;
}

/* Writes a set's first version into the block of this slot, and stores the state word. No other
 * thread uses the set yet. */
static inline void set_layout_init(struct set_head *set, uint32_t block_class, uint32_t number,
                                   struct version_block *block, uint64_t slot,
                                   const uint64_t *content, size_t content_n)
{
    WEIR_INVARIANT(content_n <= block_capacity(block_class) && slot <= BLOCK_SLOT_MASK);
    for (size_t i = 0; i < content_n; i++)
        atomic_store_explicit(&block->content[i], content[i], memory_order_relaxed);
    atomic_store_explicit(&block->meta, block_meta(0, (uint32_t)content_n, 0),
                          memory_order_relaxed);
    atomic_store_explicit(&block->version, 1, memory_order_relaxed);
    atomic_store_explicit(&block->completed, 1, memory_order_relaxed);
    atomic_store_explicit(&block->notified, 1, memory_order_relaxed);
    set->block_class = (uint8_t)block_class;
    set->number = number;
    atomic_store_explicit(&set->state_word, INFLATED_BIT | block_ref_make(slot, 1),
                          memory_order_release);
}

#endif

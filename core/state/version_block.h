/* SPDX-License-Identifier: MIT */
/*
 * Where boxes are: found by the slot in a word, compiled into whoever looks. What others may have
 * written is not relied on if it is `shared`, and never so in private memory.
 */
#ifndef WEIR_CORE_STATE_VERSION_BLOCK_H
#define WEIR_CORE_STATE_VERSION_BLOCK_H

#include "base/compiler.h"
#include "shm/segment.h"
#include "state/version.h"

/* What others can write does not say how large boxes are. */
WEIR_ALWAYS_INLINE uint32_t block_class_of(bool shared, const struct region *region,
                                           const struct set_head *set)
{
    return shared && region->segment ? region->block_class : set->block_class;
}

/* The box that a word names, one of a set or one of an actor's own; nor do they say where boxes end. */
WEIR_ALWAYS_INLINE struct version_block *block_at(bool shared, const struct region *region,
                                                  uint32_t block_class, uint64_t word)
{
    uint64_t slot = state_word_slot(word);

    if (shared && slot - region->slot_first >= region->slots_n)
        return region_mark_broken(region);
    return (struct version_block *)(void *)(region->blocks.base + (slot << block_class));
}

/* The word that names the actor's own box of this class. */
WEIR_ALWAYS_INLINE _Atomic uint64_t *block_own_ref(bool shared, const struct region *region,
                                                   uint32_t ctx, uint32_t block_class)
{
    struct thread_head *head = region_block(region, ctx);
    uint32_t i;

    if (shared && region->segment && !segment_thread_of_unit(region->segment, ctx, &i))
        return region_mark_broken(region);
    return &head->own_blocks[block_class - BLOCK_CLASS_MIN];
}

#endif

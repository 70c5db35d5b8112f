/* SPDX-License-Identifier: MIT */
/*
 * Addresses of version blocks. If `shared`, other processes may have written any slot or unit, so
 * it is checked against bounds that this process computed. In private memory it is not.
 */
#ifndef WEIR_CORE_STATE_VERSION_BLOCK_H
#define WEIR_CORE_STATE_VERSION_BLOCK_H

#include "base/compiler.h"
#include "shm/region.h"
#include "state/version.h"

/* Returns the set's block class. In a segment it is the region's own, not that of the shared
 * head. */
WEIR_ALWAYS_INLINE uint32_t block_class_of(bool shared, const struct region *region,
                                           const struct set_head *set)
{
    return shared && region->segment ? region->block_class : set->block_class;
}

/* Returns the block that a state word or block reference refers to. A slot out of bounds marks the
 * region broken, and yields fallback memory. */
WEIR_ALWAYS_INLINE struct version_block *block_at(bool shared, const struct region *region,
                                                  uint32_t block_class, uint64_t word)
{
    uint64_t slot = state_word_slot(word);

    if (shared && slot - region->slot_first >= region->slots_n)
        return region_mark_broken(region);
    return (struct version_block *)(void *)(region->blocks.base + (slot << block_class));
}

/* Returns the reference to the thread's own block of this class. In a segment an invalid unit marks
 * the region broken, and yields fallback memory. */
WEIR_ALWAYS_INLINE _Atomic uint64_t *block_own_ref(bool shared, const struct region *region,
                                                   uint32_t ctx, uint32_t block_class)
{
    struct thread_head *head = region_block(region, ctx);

    if (shared && region->segment && !region_has_thread_unit(region, ctx))
        return region_mark_broken(region);
    return &head->own_blocks[block_class - BLOCK_CLASS_MIN];
}

#endif

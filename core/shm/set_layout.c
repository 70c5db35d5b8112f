/* SPDX-License-Identifier: MIT */
/* Version blocks by size, and the first version of a set. */
#include "shm/set_layout.h"
#include "base/invariant.h"

uint32_t block_class_for(size_t content_words)
{
    uint32_t block_class = BLOCK_CLASS_MIN;

    while (block_class <= BLOCK_CLASS_MAX && block_capacity(block_class) < content_words)
        block_class++;
    return block_class <= BLOCK_CLASS_MAX ? block_class : 0;
}

size_t block_capacity(uint32_t block_class)
{
    WEIR_INVARIANT(block_class >= BLOCK_CLASS_MIN && block_class <= BLOCK_CLASS_MAX);
    return (((size_t)1 << block_class) - sizeof(struct version_block)) / sizeof(uint64_t);
}

void set_layout_init(struct set_head *set, uint32_t block_class, uint32_t number,
                     struct version_block *block, uint64_t slot, const uint64_t *content,
                     size_t content_n)
{
    WEIR_INVARIANT(content_n <= block_capacity(block_class) && slot <= BLOCK_SLOT_MASK);
    for (size_t i = 0; i < content_n; i++)
        atomic_store_explicit(&block->content[i], content[i], memory_order_relaxed);
    atomic_store_explicit(&block->meta, block_meta(0, (uint32_t)content_n, 0),
                          memory_order_relaxed);
    atomic_store_explicit(&block->version, 1, memory_order_relaxed);
    atomic_store_explicit(&block->completed, 1, memory_order_relaxed);
    atomic_store_explicit(&block->notified, 1, memory_order_relaxed);
    set->block_class = block_class;
    set->number = number;
    atomic_store_explicit(&set->state_word, INFLATED_BIT | block_ref_make(slot, 1),
                          memory_order_release);
}

/* SPDX-License-Identifier: MIT */
/*
 * Joining a line that others are in already, as a short operation: whoever comes behind others
 * cannot be granted, so of a version he reads and changes what is the line's, and the projection; the
 * limits' states go from box to box as they are. It is a version as any other, and owes what a place
 * in line owes (waitq_enqueue()).
 */
#ifndef WEIR_CORE_SET_SET_ENQUEUE_H
#define WEIR_CORE_SET_SET_ENQUEUE_H

#include "set/set.h"
#include "state/version.h"
#include "state/version_block.h"
#include "state/wait_queue.h"

/* Whether somebody seems to be in line. If not, it need not be tried. */
static inline bool enqueue_is_likely(const weir_set *set)
{
    const struct set_head *head;
    const struct version_block *block;
    uint64_t word;

    if (set->is_shared)
        return false;
    head = region_block(set->region, set->head_unit);
    word = atomic_load_explicit(&head->state_word, memory_order_acquire);
    if (!(word & INFLATED_BIT))
        return false;
    block = block_at(false, set->region, head->block_class, word);
    return (atomic_load_explicit(&block->content[CONTENT_COUNT], memory_order_relaxed) &
            WAITQ_COUNT_MASK) != 0;
}

/*
 * As set_acquire() of MODE_WAIT: 1. -EINPROGRESS: nothing has happened, and it takes the whole of
 * the set, for nobody is in line, or there is something else to be looked at.
 */
int enqueue_waiter(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                   uint64_t max_wait_ns, struct decision *ret);

#endif

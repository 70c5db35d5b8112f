/* SPDX-License-Identifier: MIT */
/* Fast enqueue behind other waiters of a private set. Such a request cannot be granted, so only the
 * wait queue and the forecast change; the states are copied from block to block. The result is a
 * version as any other, with the deferred writes of waitq_enqueue(). */
#ifndef WEIR_CORE_SET_SET_ENQUEUE_H
#define WEIR_CORE_SET_SET_ENQUEUE_H

#include "set/set.h"
#include "state/version.h"
#include "state/version_block.h"
#include "state/wait_queue.h"

/* Returns true if the set seems to have waiters. A hint, so relaxed: the block may be reused. */
static inline bool enqueue_is_likely(const weir_set *set)
{
    const struct set_head *head;
    const struct version_block *block;
    uint64_t word;

    if (set->is_robust)
        return false;
    head = region_block(set->region, set->head_unit);
    word = atomic_load_explicit(&head->state_word, memory_order_acquire);
    if (!(word & INFLATED_BIT))
        return false;
    block = block_at(false, set->region, head->block_class, word);
    return (atomic_load_explicit(&block->content[CONTENT_COUNT], memory_order_relaxed) &
            WAITQ_COUNT_MASK) != 0;
}

/* Enqueues the record. Returns 1; or -EINPROGRESS if nothing has happened and the slow path is
 * needed: the wait queue is empty, or the set is in a state that this path does not handle. */
int enqueue_waiter(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                   uint64_t max_wait_ns, struct decision *ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Joining a line that others are in already, as a short operation: whoever comes behind others
 * cannot be granted, so of a version he reads and changes what is the line's, and the projection; the
 * limits' states go from box to box as they are. It is a version as any other, and owes what a place
 * in line owes (line_push()).
 */
#ifndef WEIR_CORE_SET_SET_ENQUEUE_H
#define WEIR_CORE_SET_SET_ENQUEUE_H

#include "set/set.h"
#include "state/version.h"
#include "state/version_block.h"
#include "state/wait_queue.h"

/* Whether somebody seems to be in line. If not, it need not be tried. */
static inline bool join_is_worth_trying(const weir_set *set)
{
    const struct set_head *head;
    const struct box *box;
    uint64_t word;

    if (set->mortal)
        return false;
    head = region_box(set->region, set->head);
    word = atomic_load_explicit(&head->word, memory_order_acquire);
    if (!(word & WORD_BOXED))
        return false;
    box = boxes_at(false, set->region, head->box_class, word);
    return (atomic_load_explicit(&box->content[CONTENT_COUNT], memory_order_relaxed) &
            COUNT_MASK) != 0;
}

/*
 * As set_enter() of ENTRY_WAIT: 1. -EINPROGRESS: nothing has happened, and it takes the whole of
 * the set, for nobody is in line, or there is something else to be looked at.
 */
int join_line(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
              uint64_t max_wait_ns, struct verdict *ret);

#endif

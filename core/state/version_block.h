/* SPDX-License-Identifier: MIT */
/*
 * Where boxes are: found by the slot in a word, compiled into whoever looks. What others may have
 * written is not relied on if it is `shared`, and never so in private memory.
 */
#ifndef WEIR_CORE_STATE_VERSION_BLOCK_H
#define WEIR_CORE_STATE_VERSION_BLOCK_H

#include "shm/segment.h"
#include "state/version.h"

/* Compiled into its caller for either kind of set, with nothing of the other one: with and without
 * what is done because others may die in the set, or scribble in it. */
#define TWICE static inline __attribute__((always_inline))

/* What others can write does not say how large boxes are. */
TWICE uint32_t boxes_class(bool shared, const struct region *region, const struct set_head *set)
{
    return shared && region->segment ? region->box_class : set->box_class;
}

/* The box that a word names, one of a set or one of an actor's own; nor do they say where boxes end. */
TWICE struct box *boxes_at(bool shared, const struct region *region, uint32_t box_class,
                           uint64_t word)
{
    uint64_t slot = word_slot(word);

    if (shared && slot - region->slot_first >= region->slots_n)
        return region_stray(region);
    return (struct box *)(void *)(region->boxes.base + (slot << box_class));
}

/* The word that names the actor's own box of this class. */
TWICE _Atomic uint64_t *boxes_own(bool shared, const struct region *region, uint32_t actor,
                                  uint32_t box_class)
{
    struct actor_head *head = region_box(region, actor);
    uint32_t i;

    if (shared && region->segment && !segment_actor_of(region->segment, actor, &i))
        return region_stray(region);
    return &head->own[box_class - BOX_CLASS_MIN];
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The order of waiters in a set with classes. state/wait_class.h says which class is next, by words
 * that are among the states of the set; this module finds them, and the cost of a request.
 */
#ifndef WEIR_CORE_SET_CLASS_ORDER_H
#define WEIR_CORE_SET_CLASS_ORDER_H

#include "set/set.h"
#include "state/wait_class.h"

/* Returns the words of the classes, which are among the states. */
static inline uint64_t *class_order_words(const weir_set *set, uint64_t *states)
{
    return states + set->classes->state_offset;
}

/* Returns the next waiter of a set with classes, or 0; by the states with those words. `joining`: a
 * class that a new request would join, or the number of classes. */
uint32_t class_order_next(const weir_set *set, const struct version *version, const uint64_t *words,
                          uint32_t joining);

/* The waiters of a version, in the order in which they will be granted. Of a set that is fair per
 * limit: in their order. */
struct class_walk {
    const weir_set *set;
    uint32_t record; /* the next one; 0: none is left, or the newcomer is next */
    uint32_t first;  /* of those with a class; 0: there are none */
    uint32_t c;      /* class of `record`; in the nested part, as many as there are */
    uint64_t words[WAIT_CLASSES_MAX * WAIT_CLASS_WORDS];
    uint32_t joining; /* class of a new request */
};

/* Starts with the first waiter. */
void class_walk_start(struct class_walk *walk, const weir_set *set, const struct version *version,
                      uint32_t joining);
/* Goes on behind the waiter that asks for `amounts`. */
void class_walk_on(struct class_walk *walk, const uint64_t *amounts);

/* Returns the waiter behind which a new request of this class is enqueued; 0: the last nested one.
 */
uint32_t class_order_before(const weir_set *set, const struct version *version, uint32_t c);
/* Adds a record to its class, or removes it, in the words of a private version. A removal comes
 * before its links are changed. */
void class_order_add(const weir_set *set, struct version *version, uint32_t c, uint32_t record);
void class_order_remove(const weir_set *set, struct version *version, uint32_t record);
/* Counts a grant to a request of this class while others wait. */
void class_order_charge(const weir_set *set, struct version *version, uint32_t c,
                        const uint64_t *amounts);
/* Counts a grant to a waiter, which is not removed yet. */
void class_order_charge_waiter(const weir_set *set, struct version *version, uint32_t record,
                               const uint64_t *amounts);
/* Returns whether the words of a segment's version can be. */
bool class_order_is_valid(const weir_set *set, const struct version *version);

#endif

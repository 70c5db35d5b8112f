/* SPDX-License-Identifier: MIT */
/*
 * Classes of waiters: the rule that says of which class the next waiter is. The wait queue stays
 * one list, in which the waiters of a class stand together: first the nested ones, which have no
 * class, then those of class 0, and so on. Its content has two words for each class, its ends and
 * its key. All of it is a function of these words. They are 0 while no request waits.
 *
 * With priorities the first class with waiters is next. The key counts the grants that have passed
 * over the waiters of the class since its last one. From `ageing` on the class comes before others,
 * the one with the largest key first. So the first waiter of n classes is passed over at most
 * ageing + n - 2 times: when its class comes of age, the class that was granted last begins at 0,
 * and each of the n - 2 others goes before it at most once.
 *
 * Shares are start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). The key is the start tag
 * of the first waiter; without waiters, the finish tag of the last one. The class with the smallest
 * tag is next. The virtual time is the start tag of the last grant. All tags are relative to it,
 * and so never grow beyond the cost of one request.
 */
#ifndef WEIR_CORE_STATE_WAIT_CLASS_H
#define WEIR_CORE_STATE_WAIT_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/set.h>

enum { WAIT_CLASSES_MAX = WEIR_CLASSES_MAX, WAIT_CLASS_WORDS = 2 };
#define WAIT_CLASS_AGEING_MAX UINT32_C(1000000)
#define WAIT_CLASS_NAME_MAX   WEIR_CLASS_NAME_MAX /* bytes */
/* Keys are smaller. */
#define WAIT_CLASS_KEY_END (UINT64_C(1) << 62)

struct wait_class_rule {
    uint32_t n;      /* classes, 2 .. WAIT_CLASSES_MAX */
    uint32_t ageing; /* of priorities; 0: shares */
    /* Of shares: virtual time for one unit of cost. With the largest cost the product is smaller
     * than WAIT_CLASS_KEY_END. */
    uint64_t unit_times[WAIT_CLASSES_MAX];
};

/* The classes of a set, which is made with them. */
struct wait_classes {
    struct wait_class_rule rule;
    uint32_t state_offset;              /* of their words among the states of the set */
    uint32_t weights[WAIT_CLASSES_MAX]; /* of shares, as configured */
    char names[WAIT_CLASSES_MAX][WAIT_CLASS_NAME_MAX + 1];
    uint64_t unit_costs[]; /* of a unit of each amount of a request, WEIR_LIMITS_MAX */
};

/* Words of class `c`, at WAIT_CLASS_WORDS * c: tail:32 | head:32, then the key. */
static inline uint32_t wait_class_head(const uint64_t *words, uint32_t c)
{
    return (uint32_t)words[(size_t)WAIT_CLASS_WORDS * c];
}

static inline uint32_t wait_class_tail(const uint64_t *words, uint32_t c)
{
    return (uint32_t)(words[(size_t)WAIT_CLASS_WORDS * c] >> 32);
}

/* Returns the first waiter that has a class, or 0. */
uint32_t wait_class_first(const struct wait_class_rule *rule, const uint64_t *words);

/* Returns the class that is next. `joining` counts as a class with waiters; rule->n: none joins. If
 * there are none at all, returns rule->n. */
uint32_t wait_class_next(const struct wait_class_rule *rule, const uint64_t *words,
                         uint32_t joining);

/* Returns the waiter behind which one of class `c` is enqueued; 0: behind the nested ones. */
uint32_t wait_class_before(const uint64_t *words, uint32_t c);

/* Adds a record at the end of its class. */
void wait_class_add(uint64_t *words, uint32_t c, uint32_t record);

/* Removes a record between these two of the wait queue, unless it is nested and has no class. */
void wait_class_remove(const struct wait_class_rule *rule, uint64_t *words, uint32_t record,
                       uint32_t prev, uint32_t next);

/* Counts a grant of this cost to a request of class `c`, which is still among the waiters or never
 * was. */
void wait_class_charge(const struct wait_class_rule *rule, uint64_t *words, uint32_t c,
                       uint64_t cost);

/* Returns the class with this record as its first waiter; rule->n: it is none. */
uint32_t wait_class_of_head(const struct wait_class_rule *rule, const uint64_t *words,
                            uint32_t record);

#endif

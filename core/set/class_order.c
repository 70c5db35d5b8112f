/* SPDX-License-Identifier: MIT */
/* The order of waiters in a set with classes: which one is next, and what joins, leaves and costs.
 */
#include "set/class_order.h"

#include "shm/segment.h"
#include <string.h>

/* Returns the first waiter if it is nested, or 0. The first one with a class tells. */
static uint32_t class_order_nested_head(const weir_set *set, const struct version *version,
                                        const uint64_t *words)
{
    uint32_t head = waitq_head(version);

    return head == wait_class_first(&set->classes->rule, words) ? 0 : head;
}

uint32_t class_order_next(const weir_set *set, const struct version *version, const uint64_t *words,
                          uint32_t joining)
{
    uint32_t nested = class_order_nested_head(set, version, words), c;

    if (nested)
        return nested;
    c = wait_class_next(&set->classes->rule, words, joining);
    return c < set->classes->rule.n ? wait_class_head(words, c) : 0;
}

/* Returns what a request costs its class: of its amounts the largest part of a capacity. */
static uint64_t class_order_cost(const weir_set *set, const uint64_t *amounts)
{
    uint64_t cost = 0;

    for (uint32_t i = 0; i < set->limits.n; i++) {
        uint64_t of_limit = amounts[i] * set->classes->unit_costs[i];

        cost = of_limit > cost ? of_limit : cost;
    }
    return cost;
}

/* Finds the waiter of the class that is next, unless that is the newcomer. */
static void class_walk_choose(struct class_walk *walk)
{
    const struct wait_class_rule *rule = &walk->set->classes->rule;

    walk->c = wait_class_next(rule, walk->words, walk->joining);
    walk->record = walk->c < rule->n ? wait_class_head(walk->words, walk->c) : 0;
}

void class_walk_start(struct class_walk *walk, const weir_set *set, const struct version *version,
                      uint32_t joining)
{
    const uint64_t *words;

    walk->set = set;
    walk->joining = joining;
    walk->record = waitq_head(version);
    if (!set->classes)
        return;
    walk->c = set->classes->rule.n;
    words = class_order_words(set, waitq_states(version));
    walk->first = wait_class_first(&set->classes->rule, words);
    for (uint32_t i = 0; i < set->classes->rule.n * WAIT_CLASS_WORDS; i++)
        walk->words[i] = words[i];
    if (walk->record == walk->first)
        class_walk_choose(walk);
}

void class_walk_on(struct class_walk *walk, const uint64_t *amounts)
{
    const struct wait_classes *classes = walk->set->classes;
    uint32_t next = waitq_next(walk->set->region, walk->record);

    if (!classes || (walk->c == classes->rule.n && next != walk->first)) {
        walk->record = next;
        return;
    }
    if (walk->c < classes->rule.n) {
        wait_class_charge(&classes->rule, walk->words, walk->c,
                          class_order_cost(walk->set, amounts));
        wait_class_remove(&classes->rule, walk->words, walk->record, 0, next);
    }
    class_walk_choose(walk);
}

uint32_t class_order_before(const weir_set *set, const struct version *version, uint32_t c)
{
    return wait_class_before(class_order_words(set, waitq_states(version)), c);
}

void class_order_add(const weir_set *set, struct version *version, uint32_t c, uint32_t record)
{
    wait_class_add(class_order_words(set, waitq_states(version)), c, record);
}

void class_order_remove(const weir_set *set, struct version *version, uint32_t record)
{
    uint64_t *words = class_order_words(set, waitq_states(version));
    const struct acq_record *r = set_record(set, record);

    wait_class_remove(&set->classes->rule, words, record, record_link_target(record_load(&r->prev)),
                      record_link_target(record_load(&r->next)));
    if (waitq_length(version) == 1) /* a busy period ends: all classes begin anew */
        memset(words, 0, set->classes->rule.n * WAIT_CLASS_WORDS * sizeof(*words));
}

void class_order_charge(const weir_set *set, struct version *version, uint32_t c,
                        const uint64_t *amounts)
{
    wait_class_charge(&set->classes->rule, class_order_words(set, waitq_states(version)), c,
                      class_order_cost(set, amounts));
}

/* A nested waiter is charged to no class. */
void class_order_charge_waiter(const weir_set *set, struct version *version, uint32_t record,
                               const uint64_t *amounts)
{
    const struct wait_class_rule *rule = &set->classes->rule;
    uint32_t c = wait_class_of_head(rule, class_order_words(set, waitq_states(version)), record);

    if (c < rule->n)
        class_order_charge(set, version, c, amounts);
}

bool class_order_is_valid(const weir_set *set, const struct version *version)
{
    const struct segment *segment = set->participant->segment;
    const uint64_t *words = class_order_words(set, waitq_states(version));
    bool is_empty = !waitq_length(version);

    for (uint32_t c = 0; c < set->classes->rule.n; c++) {
        uint32_t head = wait_class_head(words, c), tail = wait_class_tail(words, c);
        uint64_t key = words[WAIT_CLASS_WORDS * c + 1];

        if (!head != !tail || key >= WAIT_CLASS_KEY_END)
            return false;
        if (is_empty && (head || key))
            return false;
        if (head && !(segment_has_record(segment, head) && segment_has_record(segment, tail)))
            return false;
    }
    return true;
}

/* SPDX-License-Identifier: MIT */
/* Classes of waiters: which one is next, and what a grant or departure changes. */
#include "state/wait_class.h"
#include "base/invariant.h"

static uint64_t *wait_class_key(uint64_t *words, uint32_t c)
{
    return &words[WAIT_CLASS_WORDS * c + 1];
}

static void wait_class_set_ends(uint64_t *words, uint32_t c, uint32_t head, uint32_t tail)
{
    words[WAIT_CLASS_WORDS * c] = (uint64_t)tail << 32 | head;
}

uint32_t wait_class_first(const struct wait_class_rule *rule, const uint64_t *words)
{
    for (uint32_t c = 0; c < rule->n; c++)
        if (wait_class_head(words, c))
            return wait_class_head(words, c);
    return 0;
}

/* Returns whether a class with the key `a` goes before an earlier one with the key `b`. */
static bool wait_class_precedes(const struct wait_class_rule *rule, uint64_t a, uint64_t b)
{
    return rule->ageing ? a >= rule->ageing && a > b : a < b;
}

uint32_t wait_class_next(const struct wait_class_rule *rule, const uint64_t *words,
                         uint32_t joining)
{
    uint32_t next = rule->n;
    uint64_t key = 0;

    for (uint32_t c = 0; c < rule->n; c++) {
        uint64_t own = words[WAIT_CLASS_WORDS * c + 1];

        if (!wait_class_head(words, c) && c != joining)
            continue;
        if (next == rule->n || wait_class_precedes(rule, own, key)) {
            next = c;
            key = own;
        }
    }
    return next;
}

uint32_t wait_class_before(const uint64_t *words, uint32_t c)
{
    for (uint32_t at = c + 1; at-- > 0;)
        if (wait_class_tail(words, at))
            return wait_class_tail(words, at);
    return 0;
}

void wait_class_add(uint64_t *words, uint32_t c, uint32_t record)
{
    uint32_t head = wait_class_head(words, c);

    WEIR_INVARIANT(c < WAIT_CLASSES_MAX && record);
    wait_class_set_ends(words, c, head ? head : record, record);
}

void wait_class_remove(const struct wait_class_rule *rule, uint64_t *words, uint32_t record,
                       uint32_t prev, uint32_t next)
{
    for (uint32_t c = 0; c < rule->n; c++) {
        uint32_t head = wait_class_head(words, c), tail = wait_class_tail(words, c);

        if (head != record && tail != record)
            continue;
        if (head != tail) {
            wait_class_set_ends(words, c, head == record ? next : head,
                                tail == record ? prev : tail);
            return;
        }
        wait_class_set_ends(words, c, 0, 0);
        if (rule->ageing)
            *wait_class_key(words, c) = 0;
        return;
    }
}

void wait_class_charge(const struct wait_class_rule *rule, uint64_t *words, uint32_t c,
                       uint64_t cost)
{
    uint64_t tag = *wait_class_key(words, c);

    for (uint32_t i = 0; i < rule->n; i++) {
        uint64_t *key = wait_class_key(words, i);

        if (!rule->ageing)
            *key = *key > tag ? *key - tag : 0;
        else if (wait_class_head(words, i) && *key < WAIT_CLASS_KEY_END)
            ++*key;
    }
    *wait_class_key(words, c) = rule->ageing ? 0 : cost * rule->unit_times[c];
}

uint32_t wait_class_of_head(const struct wait_class_rule *rule, const uint64_t *words,
                            uint32_t record)
{
    uint32_t c = 0;

    while (c < rule->n && wait_class_head(words, c) != record)
        c++;
    return c;
}

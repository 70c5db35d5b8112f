/* SPDX-License-Identifier: MIT */
/*
 * A table of pointers by number that grows and never moves, so that who knows a number may look it
 * up without a lock.
 */
#ifndef WEIR_CORE_BASE_STABLE_ARRAY_H
#define WEIR_CORE_BASE_STABLE_ARRAY_H

#include <stdint.h>

#define TABLE_FIRST 16u /* entries of the first part; each next one has twice as many */
#define TABLE_PARTS 24u

struct table {
    void **parts[TABLE_PARTS];
};

/* Makes room for numbers below `n`. Returns 0 or -ENOMEM. */
int table_reserve(struct table *table, uint32_t n);
void table_free(struct table *table);

/* The entry of a number that there is room for. */
static inline void **table_at(const struct table *table, uint32_t number)
{
    uint32_t shifted = number + TABLE_FIRST;
    uint32_t part = (uint32_t)(31 - __builtin_clz(shifted / TABLE_FIRST));

    return &table->parts[part][shifted - (TABLE_FIRST << part)];
}

#endif

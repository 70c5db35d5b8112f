/* SPDX-License-Identifier: MIT */
/*
 * Stable array: maps numbers to pointers, grows and never moves. A thread that knows a number may
 * look it up without a lock.
 */
#ifndef WEIR_CORE_BASE_STABLE_ARRAY_H
#define WEIR_CORE_BASE_STABLE_ARRAY_H

#include "base/invariant.h"
#include <stdint.h>

#define STABLE_ARRAY_FIRST 16u /* entries of the first part; each other has twice as many */
#define STABLE_ARRAY_PARTS 24u

struct stable_array {
    void **parts[STABLE_ARRAY_PARTS];
};

/* Makes room for numbers below `n`. Returns 0 or -ENOMEM. The caller holds a lock, and publishes
 * new numbers only afterwards. */
int stable_array_reserve(struct stable_array *array, uint32_t n);
void stable_array_free(struct stable_array *array);

/* Returns the entry of a number for which there is room. */
static inline void **stable_array_at(const struct stable_array *array, uint32_t number)
{
    uint32_t shifted = number + STABLE_ARRAY_FIRST;
    uint32_t part = (uint32_t)(31 - __builtin_clz(shifted / STABLE_ARRAY_FIRST));

    WEIR_INVARIANT(part < STABLE_ARRAY_PARTS && array->parts[part]);
    return &array->parts[part][shifted - (STABLE_ARRAY_FIRST << part)];
}

#endif

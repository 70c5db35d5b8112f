/* SPDX-License-Identifier: MIT */
/*
 * Shared limits: limits never change, so sets whose limits are equal have them in common. Ten
 * thousand sets seldom have as many kinds of limits, and what a limit was written as, and its
 * algorithm's configuration, is more than the rest of a set.
 *
 * Everything here is under the instance's lock, or nobody else knows the instance.
 */
#ifndef WEIR_CORE_LIMIT_LIMIT_INTERN_H
#define WEIR_CORE_LIMIT_LIMIT_INTERN_H

#include "limit/limit.h"

struct limit_intern_entry;

/* All that an instance has, by what they are. */
struct limit_intern_table {
    struct limit_intern_entry **buckets;
    uint32_t n, capacity; /* a power of two, or 0 */
};

/*
 * Limits that equal these `n`, at least one, whose state lies as theirs does; they belong to the
 * table, are never written to, and stay until they are given back as often as they were had. NULL:
 * out of memory. A shared limit is in one block with all that it owns.
 */
struct limit *limit_intern(struct limit_intern_table *table, const struct limit *limits,
                           uint32_t n);
void limit_intern_release(struct limit_intern_table *table, struct limit *limits);

/* When all were given back. */
void limit_intern_free(struct limit_intern_table *table);

#endif

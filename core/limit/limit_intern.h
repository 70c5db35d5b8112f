/* SPDX-License-Identifier: MIT */
/*
 * Interned limits: sets with equal limits share one copy. Limits never change, and ten thousand
 * sets seldom have as many kinds of them, while settings text and configuration are most of a set's
 * memory.
 *
 * The caller of each function holds the instance's lock, or is its only user.
 */
#ifndef WEIR_CORE_LIMIT_LIMIT_INTERN_H
#define WEIR_CORE_LIMIT_LIMIT_INTERN_H

#include "limit/limit.h"

struct limit_intern_entry;

/* Returns interned limits equal to these `n`, at least one, with an equal layout of state; NULL:
 * out of memory. They belong to the table, must not be written to, and stay until
 * limit_intern_release() was called once for each call. */
struct limit *limit_intern(struct limit_intern_table *table, const struct limit *limits,
                           uint32_t n);
void limit_intern_release(struct limit_intern_table *table, struct limit *limits);

/* Frees the table. All limits have been released. */
void limit_intern_free(struct limit_intern_table *table);

#endif

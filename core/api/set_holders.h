/* SPDX-License-Identifier: MIT */
/* Holders and waiters of a set, counted from its records. */
#ifndef WEIR_CORE_API_SET_HOLDERS_H
#define WEIR_CORE_API_SET_HOLDERS_H

#include "set/set.h"

/* Returns how many acquisitions of a shared set are held and not empty. Its counters cannot tell: a
 * process that dies between a grant or release and its counting leaves them apart for ever. */
uint64_t set_holders_count(const weir_set *set);

/* Adds what records hold of each limit to `ret`, over all keys of a keyed set. The caller holds the
 * instance's lock. */
void set_holders_add_amounts(const weir_set *set, uint64_t *ret);

#endif

/* SPDX-License-Identifier: MIT */
/* Who holds a set, and who waits, as its records say. */
#ifndef WEIR_CORE_API_SET_HOLDERS_H
#define WEIR_CORE_API_SET_HOLDERS_H

#include "set/set.h"

/*
 * How many acquisitions of something a set of processes has that are held now. Their counters do not
 * tell it: who is killed between a grant and its counting, or a release and its, leaves them apart
 * for ever.
 */
uint64_t set_holders_count(const weir_set *set);

/* Adds what is held of each limit by records that hold, those of all keys of a keyed set included.
 * The instance's lock is held. */
void set_holders_add_amounts(const weir_set *set, uint64_t *ret);

#endif

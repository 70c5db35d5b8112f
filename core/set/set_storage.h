/* SPDX-License-Identifier: MIT */
/* Storage of a set's state: in private memory or in a segment. */
#ifndef WEIR_CORE_SET_SET_STORAGE_H
#define WEIR_CORE_SET_SET_STORAGE_H

#include "set/set.h"

/* Makes the state of a new set, or attaches to it if the segment exists. The limits are described
 * and the plan is still whole. Returns 0, or a negative errno and, for a segment, the reason. The
 * caller holds the instance's lock. */
int set_storage_make(weir_set *set, const struct set_plan *plan, struct weir_error *reterr);

#endif

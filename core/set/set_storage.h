/* SPDX-License-Identifier: MIT */
/* Storage of a set's state: in private memory or in a segment. */
#ifndef WEIR_CORE_SET_SET_STORAGE_H
#define WEIR_CORE_SET_SET_STORAGE_H

#include "config/plan.h"
#include "set/set.h"

struct set_storage_plan {
    const struct set_plan *plan; /* whole; NULL: private storage */
    uint64_t keys_max;           /* keys that the segment of a keyed set has room for; else 0 */
    uint32_t key_sets_max;       /* key sets that it has room for */
};

/* Makes the state of a new set, or attaches to it if the segment exists. The limits are described
 * and the plan is still whole. Returns 0, or a negative errno and, for a segment, the reason. The
 * caller holds the instance's lock. */
int set_storage_make(weir_set *set, const struct set_storage_plan *storage,
                     struct weir_error *reterr);

#endif

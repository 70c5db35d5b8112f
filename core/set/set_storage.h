/* SPDX-License-Identifier: MIT */
/* Placement: where a set's state is kept, in private memory or in a segment. */
#ifndef WEIR_CORE_SET_SET_STORAGE_H
#define WEIR_CORE_SET_SET_STORAGE_H

#include "config/plan.h"
#include "set/set.h"

struct set_storage_plan {
    const struct set_plan *plan; /* whole; NULL: private storage */
    uint64_t keys_max;           /* keys that the segment of a keyed set has room for; else 0 */
    uint32_t key_sets_max;       /* key sets that it has room for */
};

/*
 * Makes the state of a new set, or joins it if processes share it and it is there. The set's limits
 * are described; its plan is still whole. Returns 0, or a negative errno and, of a segment, the
 * reason. The caller holds the instance's lock.
 */
int set_storage_make(weir_set *set, const struct set_storage_plan *storage,
                     struct weir_error *reterr);

#endif

/* SPDX-License-Identifier: MIT */
/* Sets as the instance holds them: made from a plan, named, freed. */
#ifndef WEIR_CORE_API_SET_OBJECT_H
#define WEIR_CORE_API_SET_OBJECT_H

#include "set/instance_base.h"
#include "set/set_ops.h"

struct set_plan;

/* Returns the name of the set; of a key set that of its template, which has its number. The string
 * belongs to that set. */
static inline const char *set_name(const weir_set *set)
{
    return set_own_name(instance_set(set->w, set->number));
}

/*
 * Makes a set of this kind from its plan; on success the parts of the plan move into the set.
 * Returns 0 or a negative errno with the reason in `reterr`. The caller holds the instance's lock.
 */
int set_new(weir *w, uint32_t number, struct set_plan *plan, const struct set_ops *ops,
            weir_set **ret, struct weir_error *reterr);
void set_free(weir_set *set);

#endif

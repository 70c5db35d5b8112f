/* SPDX-License-Identifier: MIT */
/* Successors of shared sets: what weir_segment_redefine() and processes that follow share. */
#ifndef WEIR_CORE_API_FOLLOW_H
#define WEIR_CORE_API_FOLLOW_H

#include "config/plan.h"
#include "set/set.h"
#include <weir/weir.h>

/* Checks whether a plan can succeed a shared set, but for its limits. Returns 0, or -EOPNOTSUPP and
 * the reason. */
int follow_check_set(const weir_set *before, const struct set_plan *plan,
                     struct weir_error *reterr);

/* Makes the successor of a shared set, which no other thread knows yet. Of what each process
 * decides for itself it has what the set before has. Returns 0, -EOPNOTSUPP, -ENOMEM or another
 * error, with the reason. The instance's lock is held. */
int follow_new_successor(weir_set *before, struct set_plan *plan, weir_set **ret,
                         struct weir_error *reterr);

/* Returns the plan of a set in what was resolved, or NULL. */
struct set_plan *follow_find_plan(const struct plan *plan, const char *name);

/* Resolves a configuration. The instance's lock is held. */
int follow_resolve_options(weir *w, const struct weir_options *options, struct plan *ret,
                           struct weir_error *reterr);

#endif

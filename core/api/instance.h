/* SPDX-License-Identifier: MIT */
/* An instance, as the core sees it. */
#ifndef WEIR_CORE_API_INSTANCE_H
#define WEIR_CORE_API_INSTANCE_H

#include "base/str_map.h"
#include "config/plan.h"
#include "wait/instance_wait.h"

/* A pool as configured; handles (struct weir_pool) refer to it. */
struct instance_pool {
    struct pool_plan plan;
    weir_set **sets;
    uint32_t sets_n;          /* at least 1 */
    _Atomic uint32_t workers; /* handed out by WEIR_WORKER_AUTO */
};

struct instance {
    struct instance_wait wait; /* the first member: see instance_of() */
    bool configured;           /* without a configuration every name opens an empty set */

    /* Under the instance's lock. */
    struct plugin_search *plugins;
    struct instance_pool **pools;
    size_t pools_n, pools_capacity;
    struct str_map set_names;
    struct str_map pool_names; /* and of sets that were opened as pools */
    uint64_t pool_handles;
};

static inline struct instance *instance_of(const weir *w)
{
    return (struct instance *)(uintptr_t)w;
}

/* registry.c */

/*
 * Adds a set. The caller holds the lock; the plan's parts move into the set. 0, or why it cannot be
 * placed: -ENOMEM, -EOPNOTSUPP.
 */
int registry_add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr);
/* Adds a pool whose sets all exist, without its name. As above. */
int registry_add_pool(weir *w, struct pool_plan *plan, struct instance_pool **ret);
/* Adds everything a plan defines, or nothing; `*ret` is its last pool. As above. */
int registry_add_plan(weir *w, struct plan *plan, struct instance_pool **ret,
                      struct weir_error *reterr);
/* How many sets and pools there are, to take back everything that was added since. */
struct registry_mark {
    uint32_t sets_n;
    size_t pools_n;
};
struct registry_mark registry_mark(const weir *w);
void registry_remove_since(weir *w, struct registry_mark mark);

/* Frees all sets and pools. */
void registry_free(weir *w);

/* For plan_resolve: whether a name is taken, and by what. */
bool registry_has_name(void *instance, const char *name, bool *ret_is_pool);

#endif

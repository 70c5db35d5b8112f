/* SPDX-License-Identifier: MIT */
/* The instance: clocks, the registry of sets and pools, thread contexts and the wait timer. */
#ifndef WEIR_CORE_API_INSTANCE_H
#define WEIR_CORE_API_INSTANCE_H

#include "base/str_map.h"
#include "wait/wait_timer.h"

struct instance_pool;
struct plan;
struct pool_plan;
struct set_ops;
struct set_plan;

struct instance {
    struct instance_wait wait; /* the first member: see instance_of() */
    bool configured;           /* without a configuration every name opens an empty set */

    _Atomic bool malformed_reported; /* a malformed request was logged */
    struct publisher *publisher;     /* NULL: its sets are not published */

    /* Under the instance's lock. */
    struct plugin_search *plugins;
    struct stable_array pools; /* of struct instance_pool */
    uint32_t pools_n;
    struct str_map set_names;
    struct str_map pool_names; /* includes sets opened as pools */
    uint64_t pool_handles;
};

static inline struct instance *instance_of(const weir *w)
{
    return (struct instance *)(uintptr_t)w;
}

/* ---- instance_open.c ---- */

/* Returns 0 if options can be, else -EINVAL. */
int instance_check_options(const struct weir_options *options, struct weir_error *reterr);
/* Returns whether the program or the log wants to hear what is odd about a configuration. */
bool instance_wants_warnings(const weir *w, const struct weir_options *options);
/* Passes such a warning to the program, if it is to hear of it, and to the log. */
void instance_pass_warning(const weir *w, const struct weir_options *options,
                           const struct weir_error *warning);

/* ---- registry.c ---- */

/* Adds a set of a kind and moves the plan's parts into it. The caller holds the lock. Returns 0, or
 * why it cannot be stored, e.g. -ENOMEM or -EOPNOTSUPP. */
int registry_add_set(weir *w, struct set_plan *plan, const struct set_ops *ops, weir_set **ret,
                     struct weir_error *reterr);
/* As registry_add_set(), without adding its name. `predecessor`: the set that it will succeed; or
 * NULL. */
int registry_add_unnamed(weir *w, struct set_plan *plan, const struct set_ops *ops,
                         weir_set *predecessor, weir_set **ret, struct weir_error *reterr);
/* Adds a set without limits. Without its name, it serves a pool that has no sets. */
int registry_add_empty_set(weir *w, const char *name, bool is_named, weir_set **ret);
/* Adds a pool of existing sets and its name; of `only_set` under the set's name. `before`: what it
 * is to replace, or NULL. The caller holds the lock. Returns 0 or -ENOMEM. */
int registry_add_pool(weir *w, struct pool_plan *plan, weir_set *only_set,
                      const struct instance_pool *before, struct instance_pool **ret);
/* Adds everything that a plan defines, or nothing; `*ret` is its last pool. `is_configured`: it is
 * a configuration. The caller holds the lock. Returns 0 or the error of the first set or pool that
 * failed. */
int registry_add_plan(weir *w, struct plan *plan, bool is_configured, struct instance_pool **ret,
                      struct weir_error *reterr);
/* Numbers of sets and pools, to remove everything that was added since. */
struct registry_mark {
    uint32_t sets_n;
    uint32_t pools_n;
};
struct registry_mark registry_mark(const weir *w);
void registry_remove_since(weir *w, struct registry_mark mark);

/* Return a pool by its number; and the name of a set, or NULL: the empty set of a pool without sets
 * bears the pool's and has none, and those that decide for others at times have none. The caller
 * holds the lock. */
struct instance_pool *registry_pool(const weir *w, uint32_t i);
const char *registry_set_name(const weir *w, uint32_t i);

/* Frees all sets and pools. */
void registry_free(weir *w);

/* Returns whether a name is taken, for plan_resolve(). */
bool registry_has_name(void *instance, const char *name, bool *ret_is_pool);

/* Returns the set or pool that a wrong name was perhaps meant to be; none if memory is short. Of
 * more than REGISTRY_HINT_MAX names the first are looked at, which bounds the time. */
#define REGISTRY_HINT_MAX ((size_t)1 << 16)
struct hint registry_hint(weir *w, const char *name);

/* Lists the sets that have names at one instant, in an array that is to be freed: as a reload may
 * give a name to another set at any time, set_newest() of each is to be looked at. They stay as
 * long as the instance. Takes the lock. Returns how many, or -ENOMEM. */
int registry_named_sets(weir *w, weir_set ***ret);

#endif

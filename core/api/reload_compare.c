/* SPDX-License-Identifier: MIT */
/* Compares a configuration with what the instance has, and refuses what cannot change. */
#include "api/own_settings.h"
#include "api/pool.h"
#include "api/reload.h"
#include "api/set_object.h"
#include "config/plan.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "remote/remote.h"
#include "shm/nameless.h"
#include "state/wait_class.h"
#include <errno.h>
#include <string.h>

/* Returns 1 if the limits are those of the plan, 0 or -ENOMEM. */
static int reload_limits_are_same(weir *w, const weir_set *set, struct set_plan *plan)
{
    struct limit *interned = NULL, *arranged = NULL;
    uint8_t places[WEIR_LIMITS_MAX];
    uint32_t n = plan->limits_n;
    bool is_same;

    if (set_listed_n(set) != plan->limits_n || !plan->limits_n)
        return set_listed_n(set) == plan->limits_n;
    for (uint32_t i = 0; i < plan->limits_n && set_is_shared(set); i++)
        plan->limits[i].held_max =
            set->limits.items[set_listed(set, i)].held_max; /* none of the definition */
    for (uint32_t i = 0; i < plan->limits_n; i++)
        places[i] = (uint8_t)set_listed(set, i);
    if (set->limits.is_arranged)
        arranged =
            limits_arrange(plan->limits, plan->limits_n, places, limits_moved(&set->limits), &n);
    if (arranged || !set->limits.is_arranged)
        interned = limit_intern(&w->limits, arranged ? arranged : plan->limits, n);
    os_free(arranged);
    if (!interned)
        return -ENOMEM;
    is_same = interned == set->limits.items; /* equal limits are one */
    limit_intern_release(&w->limits, interned);
    return is_same;
}

static bool reload_classes_are_same(const weir_set *set, const struct set_plan *plan)
{
    const struct wait_classes *a = set->classes, *b = plan->classes;

    if (!a || !b || reload_changes_classes(set, plan))
        return !a && !b;
    return memcmp(&a->rule, &b->rule, sizeof(a->rule)) == 0 &&
           memcmp(a->weights, b->weights, sizeof(a->weights)) == 0;
}

/* Returns whether all is as planned but the limits, and what a process has for itself. */
static bool reload_set_is_alike(const weir_set *set, const struct set_plan *plan)
{
    if (set->ops != set_ops_for(plan) || set->backend != plan->backend ||
        set->while_used != plan->while_used)
        return false;
    if (set->fair != (plan->fair != FAIR_NO) || set->per_limit != (plan->fair == FAIR_PER_LIMIT))
        return false;
    if (set->max_waiters != plan->max_waiters || set->boottime != plan->boottime)
        return false;
    if (!reload_classes_are_same(set, plan))
        return false;
    if (set->is_keyed && !keyed_is_planned(keyed_of(set), plan))
        return false;
    return set->backend != BACKEND_REMOTE || remote_is_planned(set, plan);
}

/* Returns why a set cannot get another definition while it is used, or NULL. */
static const char *reload_obstacle(const weir_set *set)
{
    if (set->backend == BACKEND_REMOTE)
        return "an engine keeps it";
    return set_is_shared(set) ? "processes share it; use `weir apply`, which changes it for all of "
                                "them, and reload that definition"
                              : NULL;
}

static const char *reload_obstacle_in_plan(const weir_set *before, const struct set_plan *plan)
{
    if (plan->backend == BACKEND_REMOTE)
        return "an engine would keep it";
    if (plan->backend == BACKEND_PROCESS && !before->w->private_only)
        return "processes would share it";
    if (plan->keyed.max_keys && !before->is_keyed)
        return "it would have a state for each subject";
    if (!before->is_keyed)
        return NULL;
    if (!plan->keyed.max_keys)
        return "it has a state for each subject";
    return keyed_lacks_tags(keyed_of(before))
               ? "subjects were not asked for since it has changed 2047 times"
               : NULL;
}

static int reload_refuse(const struct reload *reload, const char *kind, const char *name,
                         const char *what, const char *why)
{
    return error_set(reload->reterr, -EOPNOTSUPP, "%s `%s` cannot be %s while it is in use: %s",
                     kind, error_text(name).text, what, why);
}

/* Returns whether the set of a plan tells the time by another clock. */
static bool reload_changes_clock(const weir_set *set, const struct set_plan *plan)
{
    return set->boottime != plan->boottime && set_listed_n(set) && plan->limits_n;
}

/* Weights and ageing may change. */
bool reload_changes_classes(const weir_set *set, const struct set_plan *plan)
{
    const struct wait_classes *a = set->classes, *b = plan->classes;

    if (!a || !b)
        return a != b;
    return a->rule.n != b->rule.n || memcmp(a->names, b->names, sizeof(a->names)) != 0;
}

/* Returns 1 if the set of a plan is to be made, 0 if it is there, or an error. */
static int reload_check_set(const struct reload *reload, struct set_plan *plan,
                            const weir_set *before, bool *ret_is_variant)
{
    const char *why;
    int r;

    if (!before)
        return plan->backend == BACKEND_REMOTE && !remote_engine_find(reload->w, plan->engine)
                   ? reload_refuse(reload, "set", plan->name, "added",
                                   "its backend was not opened with the instance")
                   : 1;
    if (!before->is_configured && !before->is_by_name)
        return error_set(reload->reterr, -EEXIST, "set `%s` was defined by the program",
                         error_text(plan->name).text);
    before = set_newest(before);
    r = reload_limits_are_same(reload->w, before, plan);
    if (r < 0)
        return r;
    if (r && reload_set_is_alike(before, plan)) {
        if (own_settings_are(before, plan))
            return before->backend == BACKEND_REMOTE && set_is_removed(before);
        *ret_is_variant = set_is_shared(before);
        if (*ret_is_variant)
            return 1;
    }
    why = reload_obstacle(before);
    why = why ? why : reload_obstacle_in_plan(before, plan);
    if (before->backend == BACKEND_REMOTE && plan->backend == BACKEND_REMOTE)
        why = remote_obstacle(before, plan);
    if (!why && reload_changes_clock(before, plan))
        why = "its times are by the other clock";
    if (!why && reload_changes_classes(before, plan))
        why = "its requests would be of other classes";
    return why ? reload_refuse(reload, "set", plan->name, "changed", why) : 1;
}

static bool reload_pool_is_same(const struct pool_plan *a, const struct pool_plan *b)
{
    if (a->balancer != b->balancer || a->seed != b->seed || a->sets_n != b->sets_n)
        return false;
    if (a->tries_next != b->tries_next || a->waits_any != b->waits_any)
        return false;
    if (!a->wait_class != !b->wait_class ||
        (a->wait_class && strcmp(a->wait_class, b->wait_class) != 0))
        return false;
    if (a->config_size != b->config_size ||
        (a->config_size && memcmp(a->config, b->config, a->config_size) != 0))
        return false;
    for (uint32_t i = 0; i < a->sets_n; i++)
        if (strcmp(a->sets[i], b->sets[i]) != 0 || a->weights[i] != b->weights[i])
            return false;
    return true;
}

/* Finds the pool of a name if it is not that of a set alone. */
static struct instance_pool *reload_find_pool(const weir *w, const char *name)
{
    struct instance_pool *pool = str_map_find(&instance_of(w)->pool_names, name);

    return pool && pool->plan.name ? pool : NULL;
}

/* Returns 1 if the pool of a plan is to be made, 0 if it is there, or an error. */
static int reload_check_pool(const struct reload *reload, const struct pool_plan *plan,
                             const struct instance_pool *before)
{
    if (!before)
        return 1;
    if (!before->is_configured)
        return error_set(reload->reterr, -EEXIST, "pool `%s` was defined by the program",
                         error_text(plan->name).text);
    return !reload_pool_is_same(&before->plan, plan);
}

/* Returns an error if the program has defined what the plan calls a set, or a pool. */
static int reload_check_kind(const struct reload *reload, const char *name, bool is_pool)
{
    const weir_set *set = str_map_find(&instance_of(reload->w)->set_names, name);
    const struct instance_pool *pool = reload_find_pool(reload->w, name);
    bool is_taken =
        is_pool ? set && !set->is_configured && !set->is_by_name : pool && !pool->is_configured;

    if (is_pool && set && set->is_by_name)
        return reload_refuse(reload, "pool", name, "added", "the program has opened that name");
    return is_taken ? error_set(reload->reterr, -EEXIST, "%s `%s` was defined by the program",
                                is_pool ? "set" : "pool", error_text(name).text)
                    : 0;
}

/* Finds a set that an earlier reload has removed: its participant, or its session with an engine,
 * is there still. If its segment was removed by force, other processes have another one. */
static weir_set *reload_find_removed(const weir *w, const struct set_plan *plan)
{
    uint32_t n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);

    for (uint32_t i = 0; i < n && plan->backend != BACKEND_THREAD; i++) {
        weir_set *set = instance_set(w, i);

        if (set->backend != plan->backend || !set_is_removed(set) ||
            strcmp(set_name(set), plan->name) != 0)
            continue;
        if (set_is_shared(set) ? !nameless_segment_is(set->participant->segment)
                               : set->backend == BACKEND_REMOTE)
            return set;
    }
    return NULL;
}

static int reload_compare_sets(const struct reload *reload)
{
    int r = 0;

    for (size_t i = 0; i < reload->plan->sets_n && r >= 0; i++) {
        struct set_plan *plan = &reload->plan->sets[i];
        struct reload_set *set = &reload->sets[i];

        set->before = str_map_find(&instance_of(reload->w)->set_names, plan->name);
        if (!set->before)
            set->before = reload_find_removed(reload->w, plan);
        set->is_back = set->before && set_is_removed(set_newest(set->before));
        r = reload_check_kind(reload, plan->name, false);
        if (r == 0)
            r = reload_check_set(reload, plan, set->before, &set->is_variant);
        set->is_due = r == 1;
    }
    return r < 0 ? r : 0;
}

/* Refuses definitions by which not all subjects of all sets would have room for their states. */
static int reload_check_room(const struct reload *reload)
{
    struct promised_sets promised = reload->w->promised;
    bool is_due = false;

    for (size_t i = 0; i < reload->plan->sets_n; i++) {
        const struct reload_set *set = &reload->sets[i];

        if (!set->is_due || !set->before || !set->before->is_keyed || set_is_shared(set->before))
            continue;
        is_due = true;
        keyed_plan_owed(keyed_of(set->before), set_plan_block_class(&reload->plan->sets[i]),
                        &promised);
    }
    return !is_due || version_has_room(&reload->w->region, &promised)
               ? 0
               : error_set(reload->reterr, -EOPNOTSUPP,
                           "sets with subjects cannot be changed any more while they are in use: "
                           "the definitions that their subjects had have used up the room for "
                           "states");
}

static int reload_compare_pools(const struct reload *reload)
{
    int r = 0;

    for (size_t i = 0; i < reload->plan->pools_n && r >= 0; i++) {
        const struct pool_plan *plan = &reload->plan->pools[i];
        struct reload_pool *pool = &reload->pools[i];

        pool->before = reload_find_pool(reload->w, plan->name);
        r = reload_check_kind(reload, plan->name, true);
        if (r == 0)
            r = reload_check_pool(reload, plan, pool->before);
        pool->is_due = r == 1;
    }
    return r < 0 ? r : 0;
}

/* Finds the sets that the plan lacks. */
static int reload_compare_removed(struct reload *reload)
{
    weir *w = reload->w;
    uint32_t n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);

    for (uint32_t i = 0; i < n; i++) {
        weir_set *set = instance_set(w, i);
        const char *name = registry_set_name(w, i);

        if (!name || !set->is_configured || str_map_find(&reload->set_names, name))
            continue;
        reload->removed[reload->removed_n++] = set;
    }
    return 0;
}

int reload_compare(struct reload *reload)
{
    int r = reload_compare_sets(reload);

    if (r == 0)
        r = reload_check_room(reload);
    if (r == 0)
        r = reload_compare_pools(reload);
    return r == 0 ? reload_compare_removed(reload) : r;
}

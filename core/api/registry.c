/* SPDX-License-Identifier: MIT */
/* The registry of an instance: its sets and pools, and their names in one namespace. The caller of
 * every function that is not public holds the instance's lock. */
#include "api/instance.h"
#include "api/pool.h"
#include "api/set_object.h"
#include "api/wait_group.h"
#include "limit/limit.h"

#include "base/invariant.h"
#include "os/os.h"
#include "remote/remote.h"
#include <errno.h>
#include <string.h>

struct instance_pool *registry_pool(const weir *w, uint32_t i)
{
    return *stable_array_at(&instance_of(w)->pools, i);
}

static void registry_free_pool(struct instance_pool *pool)
{
    pool_plan_free(&pool->plan);
    os_free(pool);
}

void registry_free(weir *w)
{
    for (uint32_t i = 0; i < instance_of(w)->pools_n; i++)
        registry_free_pool(registry_pool(w, i));
    stable_array_free(&instance_of(w)->pools);
    for (uint32_t i = 0; i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i++)
        set_free(instance_set(w, i));
    stable_array_free(&w->sets);
    stable_array_free(&w->key_sets);
    limit_intern_free(&w->limits);
    str_map_free(&instance_of(w)->set_names);
    str_map_free(&instance_of(w)->pool_names);
}

bool registry_has_name(void *instance, const char *name, bool *ret_is_pool)
{
    weir *w = instance;
    bool is_set = str_map_find(&instance_of(w)->set_names, name) != NULL;

    *ret_is_pool = !is_set && str_map_find(&instance_of(w)->pool_names, name);
    return is_set || *ret_is_pool;
}

int registry_add_unnamed(weir *w, struct set_plan *plan, const struct set_ops *ops,
                         weir_set *predecessor, weir_set **ret, struct weir_error *reterr)
{
    uint32_t number = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);
    weir_set *set;
    int r = number < KEY_SET_ID_BIT ? stable_array_reserve(&w->sets, number + 1) : -ENOMEM;

    WEIR_INVARIANT(instance_lock_is_held(w));
    if (r == 0)
        r = set_new(w, number, plan, ops, predecessor, &set, reterr);
    if (r < 0)
        return r;
    r = predecessor ? 0 : set_recall(&set, reterr);
    if (r == 0 && set_is_shared(set)) {
        r = thread_ctx_prepare_spare(set);
        if (r < 0)
            error_set(reterr, r, "set `%s`: %s", set_own_name(set), strerrordesc_np(-r));
    }
    if (r < 0) {
        set_free(set);
        return r;
    }
    WEIR_INVARIANT(set->number == number && set->w == w);
    *stable_array_at(&w->sets, number) = set;
    atomic_store_explicit(&w->sets_n, number + 1, memory_order_seq_cst);
    *ret = set;
    return 0;
}

int registry_add_set(weir *w, struct set_plan *plan, const struct set_ops *ops, weir_set **ret,
                     struct weir_error *reterr)
{
    int r = str_map_reserve(&instance_of(w)->set_names, 1);

    if (r == 0)
        r = registry_add_unnamed(w, plan, ops, NULL, ret, reterr);
    if (r == 0)
        str_map_add(&instance_of(w)->set_names, set_name(*ret), *ret);
    return r;
}

int registry_add_stand_in(weir *w, struct set_plan *plan, weir_set **ret)
{
    return instance_is_closed(w) ? -ESHUTDOWN
                                 : registry_add_unnamed(w, plan, &plain_set_ops, NULL, ret, NULL);
}

static weir_set *registry_find_set(const weir *w, const char *name)
{
    return str_map_find(&instance_of(w)->set_names, name);
}

int registry_add_empty_set(weir *w, const char *name, bool is_named, weir_set **ret)
{
    struct set_plan plan = {
        .timeout_ns = WEIR_FOREVER, .max_wait_ns = WEIR_FOREVER, .fair = FAIR_SET};
    int r;

    plan.name = os_strdup(name ? name : "");
    if (!plan.name)
        return -ENOMEM;
    r = is_named ? registry_add_set(w, &plan, &plain_set_ops, ret, NULL)
                 : registry_add_unnamed(w, &plan, &plain_set_ops, NULL, ret, NULL);
    set_plan_free(&plan);
    if (r == 0)
        (*ret)->is_by_name = is_named;
    return r;
}

/* Makes a pool of `n` sets. NULL: out of memory. */
static struct instance_pool *registry_new_pool(struct instance *instance, uint32_t n)
{
    struct instance_pool *pool = NULL;

    if (stable_array_reserve(&instance->pools, instance->pools_n + 1) == 0 &&
        str_map_reserve(&instance->pool_names, 1) == 0)
        pool = os_alloc(1, sizeof(*pool) + n * (sizeof(*pool->sets) + sizeof(*pool->picks) +
                                                sizeof(*pool->places_before)));
    if (pool) {
        pool->sets_n = n;
        pool->picks = (uint64_t *)(uintptr_t)(pool->sets + n);
        pool->places_before = (uint32_t *)(pool->picks + n);
    }
    return pool;
}

/* Adds the group set of a pool. It has the pool's name, by which no set is found. */
static int registry_add_group_set(weir *w, const char *name, weir_set **ret)
{
    struct set_plan plan = {.timeout_ns = WEIR_FOREVER,
                            .max_wait_ns = WEIR_FOREVER,
                            .fair = FAIR_SET,
                            .name = os_strdup(name ? name : ""),
                            .limits = os_alloc(1, sizeof(*plan.limits)),
                            .state_words = 1};
    int r = -ENOMEM;

    if (plan.limits) {
        plan.limits_n = 1;
        *plan.limits = (struct limit){.type = WEIR_LIMIT_RESOURCE,
                                      .key = os_strdup(""),
                                      .capacity = UINT64_MAX,
                                      .state_words = 1};
    }
    if (plan.name && plan.limits && plan.limits->key)
        r = registry_add_unnamed(w, &plan, &group_set_ops, NULL, ret, NULL);
    set_plan_free(&plan);
    return r;
}

/* Finds the group set of a pool: that of an earlier definition, or a new one. */
static int registry_find_group_set(weir *w, const char *name, const struct instance_pool *before,
                                   weir_set **ret)
{
    while (before && !before->group_set)
        before = before->before;
    if (!before)
        return registry_add_group_set(w, name, ret);
    *ret = before->group_set;
    return 0;
}

/* Fills in the sets of a pool. Returns 0 or -ENOMEM. */
static int registry_fill_pool(weir *w, const struct pool_plan *plan, weir_set *only_set,
                              const struct instance_pool *before, struct instance_pool *pool)
{
    for (uint32_t i = 0; i < plan->sets_n + (plan->sets_n == 0); i++) {
        weir_set *set = only_set;
        int r = 0;

        if (plan->sets_n && !(set = registry_find_set(w, plan->sets[i])))
            return -ENOMEM;
        if (!set)
            r = registry_add_empty_set(w, plan->name, false, &set);
        if (r < 0)
            return r;
        atomic_store_explicit(&pool->sets[i], set, memory_order_release);
    }
    if (plan->waits_any && plan->sets_n > 1)
        return registry_find_group_set(w, plan->name, before, &pool->group_set);
    return 0;
}

int registry_add_pool(weir *w, struct pool_plan *plan, weir_set *only_set,
                      const struct instance_pool *before, struct instance_pool **ret)
{
    struct instance *instance = instance_of(w);
    struct instance_pool *pool = registry_new_pool(instance, plan->sets_n ? plan->sets_n : 1);
    const char *name = only_set ? set_name(only_set) : plan->name;

    WEIR_INVARIANT(instance_lock_is_held(w));
    WEIR_INVARIANT(!only_set || !plan->sets_n);
    if (!pool || registry_fill_pool(w, plan, only_set, before, pool) < 0) {
        os_free(pool);
        return -ENOMEM;
    }
    pool->plan = *plan;
    *plan = (struct pool_plan){0};
    *stable_array_at(&instance->pools, instance->pools_n++) = pool;
    if (name)
        str_map_add(&instance->pool_names, name, pool);
    *ret = pool;
    return 0;
}

static void registry_remove_last_set(weir *w)
{
    uint32_t number = atomic_load_explicit(&w->sets_n, memory_order_seq_cst) - 1;
    weir_set *set = instance_set(w, number);

    WEIR_INVARIANT(instance_lock_is_held(w));
    str_map_remove(&instance_of(w)->set_names, set_name(set), set);
    thread_ctx_unprepare(w->spare_ctx, set->number);
    set_free(set);
    atomic_store_explicit(&w->sets_n, number, memory_order_seq_cst);
}

static void registry_remove_last_pool(weir *w)
{
    struct instance_pool *pool = registry_pool(w, --instance_of(w)->pools_n);

    if (pool->plan.name)
        str_map_remove(&instance_of(w)->pool_names, pool->plan.name, pool);
    registry_free_pool(pool);
}

struct registry_mark registry_mark(const weir *w)
{
    return (struct registry_mark){atomic_load_explicit(&w->sets_n, memory_order_seq_cst),
                                  instance_of(w)->pools_n};
}

void registry_remove_since(weir *w, struct registry_mark mark)
{
    WEIR_INVARIANT(mark.pools_n <= instance_of(w)->pools_n);
    WEIR_INVARIANT(mark.sets_n <= atomic_load_explicit(&w->sets_n, memory_order_relaxed));
    while (instance_of(w)->pools_n > mark.pools_n)
        registry_remove_last_pool(w);
    while (atomic_load_explicit(&w->sets_n, memory_order_seq_cst) > mark.sets_n)
        registry_remove_last_set(w);
}

int registry_add_plan(weir *w, struct plan *plan, bool is_configured, struct instance_pool **ret,
                      struct weir_error *reterr)
{
    struct registry_mark before = registry_mark(w);
    weir_set *set;
    int r = 0;

    for (size_t i = 0; i < plan->sets_n && r == 0; i++) {
        r = registry_add_set(w, &plan->sets[i], set_ops_for(&plan->sets[i]), &set, reterr);
        if (r == 0)
            set->is_configured = set_newest(set)->is_configured = is_configured;
    }
    for (size_t i = 0; i < plan->pools_n && r == 0; i++) {
        r = registry_add_pool(w, &plan->pools[i], NULL, NULL, ret);
        if (r == 0)
            (*ret)->is_configured = is_configured;
    }
    if (r < 0)
        registry_remove_since(w, before);
    return r;
}

const char *registry_set_name(const weir *w, uint32_t i)
{
    const weir_set *set = instance_set(w, i);

    return registry_find_set(w, set_name(set)) == set ? set_name(set) : NULL;
}

/* Stores those of the first `n` sets that have names. Returns how many; -EAGAIN: there are more
 * sets by now. */
static int registry_collect_sets(weir *w, weir_set **ret, uint32_t n)
{
    int found = 0;

    pthread_mutex_lock(&w->lock);
    if (atomic_load_explicit(&w->sets_n, memory_order_seq_cst) > n)
        found = -EAGAIN;
    for (uint32_t i = 0; i < n && found >= 0; i++)
        if (i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst) && registry_set_name(w, i))
            ret[found++] = instance_set(w, i);
    pthread_mutex_unlock(&w->lock);
    return found;
}

int registry_named_sets(weir *w, weir_set ***ret)
{
    weir_set **sets;
    int r;

    do {
        uint32_t n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);

        sets = os_alloc(n + 1, sizeof(weir_set *)); /* with the lock, others would wait for it */
        r = sets ? registry_collect_sets(w, sets, n) : -ENOMEM;
        if (r < 0)
            os_free(sets);
    } while (r == -EAGAIN);
    if (r >= 0)
        *ret = sets;
    return r;
}

static const char *registry_pool_name(const weir *w, uint32_t i)
{
    const struct instance_pool *pool = registry_pool(w, i);

    return pool_is_removed(pool) ? NULL : pool->plan.name;
}

/* Stores the names of the first `n` sets or pools that have one. Returns how many have. */
static size_t registry_collect_names(weir *w, bool pools, const char **ret, size_t n)
{
    uint32_t all =
        pools ? instance_of(w)->pools_n : atomic_load_explicit(&w->sets_n, memory_order_seq_cst);
    size_t found = 0;

    for (uint32_t i = 0; i < all; i++) {
        const char *name = pools ? registry_pool_name(w, i) : registry_set_name(w, i);

        if (name && found < n)
            ret[found] = name;
        found += name != NULL;
    }
    return found;
}

struct hint registry_hint(weir *w, const char *name)
{
    uint32_t sets_n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);
    size_t all = (size_t)sets_n + instance_of(w)->pools_n, n, pools_n;
    size_t most = all < REGISTRY_HINT_MAX ? all : REGISTRY_HINT_MAX;
    const char **names = most ? os_alloc(most, sizeof(*names)) : NULL;
    struct hint hint = {0};

    WEIR_INVARIANT(instance_lock_is_held(w));
    if (!names)
        return hint;
    n = registry_collect_names(w, false, names, most);
    n = n < most ? n : most;
    pools_n = registry_collect_names(w, true, names + n, most - n);
    n = pools_n < most - n ? n + pools_n : most;
    hint = hint_find(name, names, n);
    os_free(names);
    return hint;
}

static int registry_list_names(weir *w, bool pools, const char **ret, size_t n)
{
    size_t found;

    if (!w || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    pthread_mutex_lock(&w->lock);
    found = registry_collect_names(w, pools, ret, n);
    pthread_mutex_unlock(&w->lock);
    return (int)found;
}

int weir_sets(weir *w, const char **ret, size_t n)
{
    return registry_list_names(w, false, ret, n);
}

int weir_pools(weir *w, const char **ret, size_t n)
{
    return registry_list_names(w, true, ret, n);
}

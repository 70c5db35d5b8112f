/* SPDX-License-Identifier: MIT */
/*
 * The catalog of an instance: its sets and pools, and their names, which share one namespace.
 * Everything here is under the instance's lock.
 */
#include "api/instance.h"

#include "os/os.h"
#include <errno.h>
#include <string.h>

void catalog_free(weir *w)
{
    for (size_t i = 0; i < w->pools_n; i++) {
        pool_plan_free(&w->pools[i]->plan);
        sys_free(w->pools[i]->sets);
        sys_free(w->pools[i]);
    }
    sys_free(w->pools);
    for (uint32_t i = 0; i < w->sets_n; i++)
        set_free(instance_set(w, i));
    table_free(&w->sets);
    table_free(&w->hidden);
    limits_table_free(&w->limits);
    names_free(&w->set_names);
    names_free(&w->pool_names);
}

bool instance_knows(void *instance, const char *name, bool *ret_is_pool)
{
    weir *w = instance;
    bool is_set = names_find(&w->set_names, name) != NULL;

    *ret_is_pool = !is_set && names_find(&w->pool_names, name) != NULL;
    return is_set || *ret_is_pool;
}

static int reserve_pools(weir *w, size_t more)
{
    size_t capacity = w->pools_capacity ? w->pools_capacity : 16;
    struct pool_definition_live **grown;

    while (capacity < w->pools_n + more)
        capacity *= 2;
    if (capacity == w->pools_capacity)
        return 0;
    grown = sys_grow(w->pools, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    w->pools = grown;
    w->pools_capacity = capacity;
    return 0;
}

/* A set without a name of its own in the table. */
static int add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr)
{
    uint32_t number = w->sets_n;
    weir_set *set;
    int r = table_reserve(&w->sets, number + 1);

    if (r == 0)
        r = set_new(w, number, plan, &set, reterr);
    if (r < 0)
        return r;
    r = set->member ? actor_prepare_spare(set) : 0;
    if (r < 0) {
        error_set(reterr, r, "set `%s`: %s", set_name(set), strerrordesc_np(-r));
        set_free(set);
        return r;
    }
    *table_at(&w->sets, number) = set;
    w->sets_n = number + 1;
    *ret = set;
    return 0;
}

int instance_add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr)
{
    int r = names_reserve(&w->set_names, 1);

    if (r == 0)
        r = add_set(w, plan, ret, reterr);
    if (r == 0)
        names_add(&w->set_names, set_name(*ret), *ret);
    return r;
}

static weir_set *find_set(const weir *w, const char *name)
{
    struct name_entry *entry = names_find(&w->set_names, name);

    return entry ? entry->what : NULL;
}

/* A pool without sets holds one empty set. */
static int add_empty_set(weir *w, const char *name, weir_set **ret)
{
    struct set_plan plan = {.timeout_ns = WEIR_FOREVER, .max_wait_ns = WEIR_FOREVER, .fair = true};
    int r;

    plan.name = sys_strdup(name ? name : "");
    if (!plan.name)
        return -ENOMEM;
    r = add_set(w, &plan, ret, NULL);
    set_plan_free(&plan);
    return r;
}

int instance_add_pool(weir *w, struct pool_plan *plan, struct pool_definition_live **ret)
{
    uint32_t n = plan->sets_n ? plan->sets_n : 1;
    struct pool_definition_live *pool = sys_alloc(1, sizeof(*pool));
    int r = reserve_pools(w, 1);

    if (pool)
        pool->sets = sys_alloc(n, sizeof(*pool->sets));
    if (r < 0 || !pool || !pool->sets)
        goto fail;
    for (uint32_t i = 0; i < plan->sets_n; i++)
        if (!(pool->sets[i] = find_set(w, plan->sets[i])))
            goto fail;
    if (!plan->sets_n && add_empty_set(w, plan->name, &pool->sets[0]) < 0)
        goto fail;
    pool->sets_n = n;
    pool->plan = *plan;
    *plan = (struct pool_plan){0};
    w->pools[w->pools_n++] = pool;
    *ret = pool;
    return 0;
fail:
    if (pool)
        sys_free(pool->sets);
    sys_free(pool);
    return -ENOMEM;
}

static void remove_last_set(weir *w)
{
    uint32_t number = w->sets_n - 1;
    weir_set *set = instance_set(w, number);

    names_remove(&w->set_names, set_name(set), set);
    actor_unprepare(w->spare, set);
    set_free(set);
    w->sets_n = number;
}

static void remove_last_pool(weir *w)
{
    struct pool_definition_live *pool = w->pools[--w->pools_n];

    if (pool->plan.name)
        names_remove(&w->pool_names, pool->plan.name, pool);
    pool_plan_free(&pool->plan);
    sys_free(pool->sets);
    sys_free(pool);
}

struct instance_mark instance_mark(const weir *w)
{
    return (struct instance_mark){w->sets_n, w->pools_n};
}

void instance_remove_since(weir *w, struct instance_mark mark)
{
    while (w->pools_n > mark.pools_n)
        remove_last_pool(w);
    while (w->sets_n > mark.sets_n)
        remove_last_set(w);
}

int instance_add_plan(weir *w, struct plan *plan, struct pool_definition_live **ret,
                      struct weir_error *reterr)
{
    struct instance_mark before = instance_mark(w);
    int r = names_reserve(&w->set_names, plan->sets_n);

    if (r == 0)
        r = names_reserve(&w->pool_names, plan->pools_n);

    for (size_t i = 0; i < plan->sets_n && r == 0; i++) {
        weir_set *set;

        r = add_set(w, &plan->sets[i], &set, reterr);
        if (r == 0)
            names_add(&w->set_names, set_name(set), set);
    }
    for (size_t i = 0; i < plan->pools_n && r == 0; i++) {
        r = instance_add_pool(w, &plan->pools[i], ret);
        if (r == 0 && (*ret)->plan.name)
            names_add(&w->pool_names, (*ret)->plan.name, *ret);
    }
    if (r < 0)
        instance_remove_since(w, before);
    return r;
}

static const char *name_of_set(const weir *w, size_t i)
{
    const weir_set *set = instance_set(w, (uint32_t)i);
    struct name_entry *entry = names_find(&w->set_names, set_name(set));

    /* The empty set of a pool without sets goes by the pool's name and has none of its own. */
    return entry && entry->what == set ? set_name(set) : NULL;
}

static const char *name_of_pool(const weir *w, size_t i)
{
    return w->pools[i]->plan.name;
}

static int list(weir *w, const char *(*name_of)(const weir *w, size_t i), size_t all,
                const char **ret, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < all; i++) {
        const char *name = name_of(w, i);

        if (name && found < n)
            ret[found] = name;
        found += name != NULL;
    }
    return (int)found;
}

int weir_sets(weir *w, const char **ret, size_t n)
{
    int found;

    if (instance_forked(w))
        return -ECHILD;
    pthread_mutex_lock(&w->lock);
    found = list(w, name_of_set, w->sets_n, ret, n);
    pthread_mutex_unlock(&w->lock);
    return found;
}

int weir_pools(weir *w, const char **ret, size_t n)
{
    int found;

    if (instance_forked(w))
        return -ECHILD;
    pthread_mutex_lock(&w->lock);
    found = list(w, name_of_pool, w->pools_n, ret, n);
    pthread_mutex_unlock(&w->lock);
    return found;
}

/* SPDX-License-Identifier: MIT */
/* Pools: handles, and picking a set for a request. */
#include "api/pool.h"
#include "api/instance.h"
#include "api/set_object.h"
#include "base/hash.h"

#include "api/acquisition.h"
#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include <errno.h>

/* Fills the views of the sets for a balancer that reads them. */
static int pool_fill_views(weir_pool *pool, const struct weir_request *request)
{
    for (uint32_t i = 0; pool->views && i < pool->definition->sets_n; i++) {
        weir_set *set = pool->definition->sets[i];
        struct weir_set_view *view = &pool->views[i];
        int r = stats_view(set, view);

        if (r < 0)
            return r;
        view->ready_at_ns = WEIR_FOREVER;
        /* A set that can never grant the request, or does not understand it, is never ready. */
        if (weir_set_ready_at(set, request, &view->ready_at_ns) == -ENOMEM)
            return -ENOMEM;
    }
    return 0;
}

static uint32_t pool_call_balancer(weir_pool *pool, const struct weir_request *request)
{
    const struct pool_plan *plan = &pool->definition->plan;
    struct weir_pick pick = {
        .size = sizeof(pick),
        .now_ns = clock_now_ns(&pool->w->clock),
        .random = splitmix64_next(&pool->random_state),
        .route = request->route,
        .worker = pool->worker,
        .sets_n = pool->definition->sets_n,
        .views = pool->views,
        .view_size = sizeof(*pool->views),
    };

    WEIR_INVARIANT(plan->balancer);
    return plan->balancer->balancer.pick(plan->config, pool->balancer_state, &pick);
}

/* Logs an invalid pick. Without the pool's lock: the log callback may use the pool. */
static void pool_warn_pick(const weir_pool *pool, uint32_t index)
{
    const struct pool_plan *plan = &pool->definition->plan;

    log_write(&pool->w->log, WEIR_LOG_ERROR, "pool `%s`: balancer `%s` picked set %u of %u",
              plan->name ? plan->name : "", plan->balancer->info.name, index,
              pool->definition->sets_n);
}

int pool_balance(weir_pool *pool, const struct weir_request *request, weir_set **ret)
{
    struct instance_pool *definition = pool->definition;
    uint32_t index = 0;
    bool out_of_range;
    int r;

    WEIR_INVARIANT(!pool->only_set && definition->sets_n > 0);
    pthread_mutex_lock(&pool->lock);
    r = pool_fill_views(pool, request);
    if (r == 0)
        index = pool_call_balancer(pool, request);
    out_of_range = index >= definition->sets_n && !pool->pick_warned;
    pool->pick_warned |= out_of_range;
    pthread_mutex_unlock(&pool->lock);
    if (out_of_range)
        pool_warn_pick(pool, index);
    if (r == 0)
        *ret = definition->sets[index % definition->sets_n];
    return r;
}

/* Makes a handle. Behind it are the views and the state of the balancer. */
static weir_pool *pool_make(weir *w, struct instance_pool *definition)
{
    const struct pool_plan *plan = &definition->plan;
    bool has_views = plan->balancer && plan->balancer->balancer.flags & WEIR_BALANCER_VIEWS;
    size_t views_n = has_views ? definition->sets_n : 0;
    weir_pool *pool = os_alloc(1, sizeof(*pool) + views_n * sizeof(*pool->views) +
                                      plan->state_words * sizeof(uint64_t));

    WEIR_INVARIANT(definition->sets_n > 0);
    if (!pool)
        return NULL;
    pool->w = w;
    pool->definition = definition;
    pool->only_set = definition->sets_n == 1 ? definition->sets[0] : NULL;
    pool->fast_set = pool->only_set && fast_path_supports(pool->only_set) ? pool->only_set : NULL;
    if (has_views)
        pool->views = (struct weir_set_view *)(pool + 1);
    pool->balancer_state = (uint64_t *)((struct weir_set_view *)(pool + 1) + views_n);
    return pool;
}

/* Tells the balancer of a new handle. */
static void pool_init_balancer(weir_pool *pool)
{
    const struct pool_plan *plan = &pool->definition->plan;
    struct weir_pick first = {.size = sizeof(first), .worker = pool->worker};

    if (!plan->balancer || !plan->balancer->balancer.init)
        return;
    first.now_ns = clock_now_ns(&pool->w->clock);
    first.random = splitmix64_next(&pool->random_state);
    first.sets_n = pool->definition->sets_n;
    plan->balancer->balancer.init(plan->config, pool->balancer_state, &first);
}

/* Opens a handle. The caller holds the instance's lock. */
static int pool_open_handle(weir_pool **ret, weir *w, struct instance_pool *definition,
                            uint32_t worker)
{
    const struct pool_plan *plan = &definition->plan;
    weir_pool *pool = pool_make(w, definition);
    uint64_t seed;

    WEIR_INVARIANT(instance_lock_is_held(w));
    if (!pool)
        return -ENOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pool->worker = worker == WEIR_WORKER_AUTO
                       ? atomic_fetch_add_explicit(&definition->workers, 1, memory_order_seq_cst)
                       : worker;
    seed = (plan->seed ? plan->seed : w->seed) + pool->worker;
    pool->random_state = splitmix64_next(&seed);
    pool_init_balancer(pool);
    instance_ref(w, 1);
    *ret = pool;
    return 0;
}

static int pool_open_by_name(weir_pool **ret, weir *w, const char *name, uint32_t worker,
                             bool *ret_unlimited)
{
    struct instance_pool *pool;
    weir_set *set;
    int r = 0;

    if (instance_is_closed(w))
        return -ESHUTDOWN;
    pool = str_map_find(&instance_of(w)->pool_names, name);
    if (pool)
        return pool_open_handle(ret, w, pool, worker);
    set = str_map_find(&instance_of(w)->set_names, name);
    if (!set && (instance_of(w)->configured || !*name))
        return -ENOENT;
    *ret_unlimited = !set;
    if (!set)
        r = registry_add_empty_set(w, name, true, &set);
    if (r == 0)
        r = registry_add_pool(w, &(struct pool_plan){0}, set, &pool);
    return r < 0 ? r : pool_open_handle(ret, w, pool, worker);
}

/* Fills `reterr` with the reason why a pool was not opened. */
static void pool_explain(int r, const char *name, const struct hint *hint,
                         struct weir_error *reterr)
{
    if (r == -ENOENT)
        error_set(reterr, r, "there is no set or pool `%s`%s", error_text(name).text, hint->text);
    else
        error_set(reterr, r, "%s", r == -ESHUTDOWN ? "the instance is closed" : "out of memory");
}

int weir_pool_open(weir_pool **ret, weir *w, const char *name, uint32_t worker,
                   struct weir_error *reterr)
{
    struct hint hint = {0};
    bool unlimited = false;
    int r;

    if (!ret || !w || !name)
        return error_set(reterr, -EINVAL, "an argument is NULL");
    if (instance_is_forked(w))
        return error_set(reterr, -ECHILD, "the instance belongs to the parent process");
    instance_lock(w);
    r = pool_open_by_name(ret, w, name, worker, &unlimited);
    if (r == -ENOENT && reterr)
        hint = registry_hint(w, name);
    instance_unlock(w);
    if (r < 0) {
        pool_explain(r, name, &hint, reterr);
        return r;
    }
    if (unlimited)
        log_write(&w->log, WEIR_LOG_WARNING,
                  "pool `%s` has no limits and grants everything: there is no configuration",
                  error_text(name).text);
    log_write(&w->log, WEIR_LOG_DEBUG, "pool `%s` is opened", error_text(name).text);
    return 0;
}

/* Adds everything that a specification defines and opens its pool; or adds nothing. */
static int pool_define(weir_pool **ret, weir *w, const struct weir_pool_spec *spec,
                       struct complaints *complaints, struct weir_error *reterr)
{
    struct known_names known = {registry_has_name, w};
    struct registry_mark before = registry_mark(w);
    struct instance_pool *definition;
    struct config_ast ast;
    struct plan plan;
    int r = config_spec_read(spec, &ast, complaints);

    r = plan_resolve(r, &ast, instance_of(w)->plugins, &known, &plan);
    if (r == 0)
        r = registry_add_plan(w, &plan, &definition, reterr);
    if (r == 0) {
        r = pool_open_handle(ret, w, definition, spec->worker);
        if (r < 0)
            registry_remove_since(w, before);
    }
    plan_free(&plan);
    return r;
}

int weir_pool_new(weir_pool **ret, weir *w, const struct weir_pool_spec *spec,
                  struct weir_error *reterr)
{
    struct complaints complaints = {.file = ""};
    uint32_t before;
    int r;

    if (!ret || !w || !spec)
        return error_set(reterr, -EINVAL, "an argument is NULL");
    if (instance_is_forked(w))
        return error_set(reterr, -ECHILD, "the instance belongs to the parent process");
    instance_lock(w);
    before = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);
    if (instance_is_closed(w))
        r = error_set(reterr, -ESHUTDOWN, "the instance is closed");
    else
        r = pool_define(ret, w, spec, &complaints, reterr);
    instance_unlock(w);
    if (r == 0)
        peer_reap_crowded(w, before);
    if (r < 0 && reterr && complaints.first.complaints)
        *reterr = complaints.first;
    else if (r == -ENOMEM)
        error_set(reterr, r, "out of memory");
    return r;
}

weir_pool *weir_pool_close(weir_pool *pool)
{
    weir *w;

    if (!pool)
        return NULL;
    w = pool->w;
    if (instance_is_forked(w)) {
        os_free(pool);
        return NULL;
    }
    pthread_mutex_destroy(&pool->lock);
    os_free(pool);
    if (instance_is_closed(w))
        thread_ctx_detach(w);
    instance_unref(w, 1);
    return NULL;
}

const char *weir_pool_balancer(const weir_pool *pool)
{
    const struct plugin *balancer = pool ? pool->definition->plan.balancer : NULL;

    return balancer ? balancer->info.name : NULL;
}

size_t weir_pool_sets(const weir_pool *pool)
{
    return pool ? pool->definition->sets_n : 0;
}

weir_set *weir_pool_set(weir_pool *pool, size_t index)
{
    return index < weir_pool_sets(pool) ? pool->definition->sets[index] : NULL;
}

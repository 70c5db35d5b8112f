/* SPDX-License-Identifier: MIT */
/* Pool handles. */
#include "api/pool.h"
#include "api/instance.h"
#include "api/set_object.h"
#include "base/hash.h"

#include "api/acquisition.h"
#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include <errno.h>
#include <string.h>

/* Release: a thread that finds a set here finds what it was made of. */
static void pool_store_only_set(weir_pool *pool, weir_set *set)
{
    atomic_store_explicit(&pool->only_set, set, memory_order_release);
    atomic_store_explicit(&pool->fast_set, set && fast_path_supports(set) ? set : NULL,
                          memory_order_release);
}

/* If another thread stores an earlier set later, the next request exchanges that, too. */
weir_set *pool_follow(weir_pool *pool)
{
    weir_set *set = atomic_load_explicit(&pool->only_set, memory_order_acquire);
    weir_set *newest = set_newest(set);

    if (newest != set)
        pool_store_only_set(pool, newest);
    return newest;
}

/* Fills a handle of one set, or of all. */
static void pool_fill(weir_pool *pool, weir *w, struct instance_pool *definition,
                      weir_set *only_set)
{
    pool->w = w;
    pool->definition = definition;
    pool_store_only_set(pool, only_set);
}

/* Fills a member, and what its view says at any time. */
static void pool_fill_member(const weir_pool *pool, uint32_t i)
{
    struct pool_member *member = &pool->choice->members[i];
    const char *name = set_name(pool_set(pool->definition, i));
    uint64_t hash = fnv1a_bytes(FNV1A_INIT, name, strlen(name));

    pool_fill(&member->pool, pool->w, pool->definition, pool_set(pool->definition, i));
    member->view.id = splitmix64_next(&hash);
    member->view.weight = pool->definition->plan.weights[i];
}

/* Makes a handle. Behind it is what a choice needs. */
static weir_pool *pool_make(weir *w, struct instance_pool *definition)
{
    uint32_t n = definition->sets_n;
    size_t choice_size = sizeof(struct pool_choice) + n * sizeof(struct pool_member) +
                         definition->plan.state_words * sizeof(uint64_t);
    weir_pool *pool = os_alloc(1, sizeof(*pool) + (n > 1 ? choice_size : 0));

    WEIR_INVARIANT(n > 0);
    if (!pool)
        return NULL;
    pool_fill(pool, w, definition, n == 1 ? pool_set(definition, 0) : NULL);
    if (n == 1)
        return pool;
    pool->choice = (struct pool_choice *)(pool + 1);
    pool->choice->balancer_state = (uint64_t *)(pool->choice->members + n);
    for (uint32_t i = 0; i < n; i++)
        pool_fill_member(pool, i);
    pool_fill(&pool->choice->group_pool, w, definition, definition->group_set);
    return pool;
}

/* Prepares the choice of a new handle, and tells the balancer of it. */
static void pool_init_choice(weir_pool *pool, uint32_t worker)
{
    const struct pool_plan *plan = &pool->definition->plan;
    struct pool_choice *choice = pool->choice;
    struct weir_pick first = {.size = sizeof(first), .worker = worker};
    uint64_t seed = (plan->seed ? plan->seed : pool->w->seed) + worker;

    choice->worker = worker;
    choice->random_state = splitmix64_next(&seed);
    pthread_mutex_init(&choice->lock, NULL);
    if (!plan->balancer->balancer.init)
        return;
    first.now_ns = clock_now_ns(&pool->w->clock);
    first.random = splitmix64_next(&choice->random_state);
    first.sets_n = pool->definition->sets_n;
    balance_show_views(pool, &first);
    plan->balancer->balancer.init(plan->config, choice->balancer_state, &first);
}

/* Adds a handle to those of its pool. The caller holds the instance's lock. */
static void pool_link(weir_pool *pool)
{
    pool->link = &pool->definition->handles;
    pool->next = *pool->link;
    if (pool->next)
        pool->next->link = &pool->next;
    *pool->link = pool;
}

/* Removes a handle from those of its pool, which keeps its counts. */
static void pool_unlink(weir_pool *pool)
{
    instance_lock(pool->w);
    for (uint32_t i = 0; i < pool->definition->sets_n; i++)
        pool->definition->picks[i] +=
            atomic_load_explicit(&pool->choice->members[i].picks, memory_order_relaxed);
    *pool->link = pool->next;
    if (pool->next)
        pool->next->link = pool->link;
    instance_unlock(pool->w);
}

uint64_t pool_picks(const struct instance_pool *pool, uint32_t set)
{
    uint64_t picks = pool->picks[set];

    for (const weir_pool *at = pool->handles; at; at = at->next)
        picks += atomic_load_explicit(&at->choice->members[set].picks, memory_order_relaxed);
    return picks;
}

/* Opens a handle. The caller holds the instance's lock. */
static int pool_open_handle(weir_pool **ret, weir *w, struct instance_pool *definition,
                            uint32_t worker)
{
    weir_pool *pool = pool_make(w, definition);

    WEIR_INVARIANT(instance_lock_is_held(w));
    if (!pool)
        return -ENOMEM;
    if (worker == WEIR_WORKER_AUTO)
        worker = atomic_fetch_add_explicit(&definition->workers, 1, memory_order_seq_cst);
    if (pool->choice) {
        pool_init_choice(pool, worker);
        pool_link(pool);
    }
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
        r = registry_add_plan(w, &plan, false, &definition, reterr);
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
    if (pool->choice) {
        pool_unlink(pool);
        pthread_mutex_destroy(&pool->choice->lock);
    }
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

uint32_t weir_pool_flags(const weir_pool *pool)
{
    const struct pool_plan *plan = pool ? &pool->definition->plan : NULL;

    return plan ? (plan->tries_next ? WEIR_POOL_TRY_NEXT : 0u) |
                      (plan->waits_any ? WEIR_POOL_WAIT_ANY : 0u)
                : 0;
}

size_t weir_pool_sets(const weir_pool *pool)
{
    return pool ? pool->definition->sets_n : 0;
}

weir_set *weir_pool_set(weir_pool *pool, size_t index)
{
    return index < weir_pool_sets(pool) ? pool_set(pool->definition, index) : NULL;
}

/* SPDX-License-Identifier: MIT */
/* Pool handles. */
#include "api/pool.h"
#include "api/instance.h"
#include "api/set_object.h"
#include "base/hash.h"

#include "base/invariant.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "peer/peer.h"
#include <errno.h>
#include <string.h>

uintptr_t pool_word(weir_set *set, uintptr_t several)
{
    return (uintptr_t)set | several | (set && set->fast && !set_is_removed(set) ? 0 : POOL_SLOW);
}

/* Release: a thread that finds a set here finds what it was made of. */
weir_set *pool_follow(weir_pool *pool)
{
    uintptr_t word = atomic_load_explicit(&pool->only_set, memory_order_acquire);
    weir_set *newest = set_newest(pool_word_set(word));

    if (newest != pool_word_set(word)) /* else it is removed, and asked again and again */
        atomic_compare_exchange_strong_explicit(&pool->only_set, &word,
                                                pool_word(newest, word & POOL_SEVERAL),
                                                memory_order_release, memory_order_relaxed);
    return newest;
}

/* Only a reload adds or removes POOL_SEVERAL, and it has the lock. So another value of the word is
 * that of a thread which follows. */
static void pool_update(weir_pool *pool)
{
    uintptr_t word = atomic_load_explicit(&pool->only_set, memory_order_acquire), next;

    do {
        weir_set *set = pool_word_set(word);

        if (!set || !set_is_shared(set))
            return;
        next = pool_word(set_newest(set), word & POOL_SEVERAL);
    } while (next != word &&
             !atomic_compare_exchange_weak_explicit(&pool->only_set, &word, next,
                                                    memory_order_seq_cst, memory_order_acquire));
}

void pool_update_handles(struct instance_pool *definition)
{
    for (weir_pool *at = definition->handles; at; at = at->next) {
        WEIR_INVARIANT(instance_lock_is_held(at->w));
        pool_update(at);
    }
    for (struct pool_choice *at = definition->choices; at; at = at->next)
        for (uint32_t i = 0; i < at->definition->sets_n; i++)
            pool_update(&at->members[i].pool);
}

static bool pool_has_set(const struct instance_pool *pool, const weir_set *newest)
{
    for (uint32_t i = 0; i < pool->sets_n; i++)
        if (pool_set(pool, i) == newest)
            return true;
    return false;
}

/* A reload may have changed the pool since the set was found; and a nested request goes to the set
 * of the outer one, which the pool may have lost. */
const char *pool_class(const weir_pool *pool, const weir_set *set)
{
    const struct instance_pool *at;
    const weir_set *newest;

    do {
        newest = set_newest(set);
        at = pool_definition(pool);
        while (at->before && !pool_has_set(at, newest))
            at = at->before;
    } while (set_newest(set) != newest); /* a successor came, which the pools have */
    return at->plan.wait_class;
}

/* Fills a handle of one set, or of all. */
static void pool_fill(weir_pool *pool, weir *w, struct instance_pool *definition,
                      weir_set *only_set, uintptr_t several)
{
    pool->w = w;
    atomic_store_explicit(&pool->definition, definition, memory_order_release);
    atomic_store_explicit(&pool->only_set, pool_word(only_set, several), memory_order_release);
}

/* ---- what is chosen by ---- */

/* Fills a member, and what its view says at any time. */
static void pool_fill_member(struct pool_choice *choice, uint32_t i)
{
    struct pool_member *member = &choice->members[i];
    weir_set *set = pool_set(choice->definition, i);
    uint64_t hash = fnv1a_bytes(FNV1A_INIT, set_name(set), strlen(set_name(set)));

    pool_fill(&member->pool, choice->w, choice->definition, set, 0);
    member->view.id = splitmix64_next(&hash);
    member->view.weight = choice->definition->plan.weights[i];
}

/* Prepares a new choice, and tells the balancer of it. */
static void pool_init_choice(struct pool_choice *choice)
{
    const struct pool_plan *plan = &choice->definition->plan;
    struct weir_pick first = {.size = sizeof(first), .worker = choice->worker};
    uint64_t seed = (plan->seed ? plan->seed : choice->w->seed) + choice->worker;

    choice->random_state = splitmix64_next(&seed);
    pthread_mutex_init(&choice->lock, NULL);
    if (!plan->balancer->balancer.init)
        return;
    first.now_ns = clock_now_ns(&choice->w->clock);
    first.random = splitmix64_next(&choice->random_state);
    first.sets_n = choice->definition->sets_n;
    balance_show_views(choice, &first);
    plan->balancer->balancer.init(plan->config, choice->balancer_state, &first);
}

struct pool_choice *pool_make_choice(const weir_pool *pool, struct instance_pool *definition)
{
    uint32_t n = definition->sets_n;
    struct pool_choice *choice = os_alloc(1, sizeof(*choice) + n * sizeof(struct pool_member) +
                                                 definition->plan.state_words * sizeof(uint64_t));

    WEIR_INVARIANT(n > 1);
    if (!choice)
        return NULL;
    choice->w = pool->w;
    choice->worker = pool->worker;
    choice->definition = definition;
    choice->balancer_state = (uint64_t *)(choice->members + n);
    for (uint32_t i = 0; i < n; i++)
        pool_fill_member(choice, i);
    pool_fill(&choice->group_pool, pool->w, definition, definition->group_set, 0);
    pool_init_choice(choice);
    return choice;
}

void pool_free_choice(struct pool_choice *choice)
{
    if (choice)
        pthread_mutex_destroy(&choice->lock);
    os_free(choice);
}

void pool_take_choice(weir_pool *pool, struct pool_choice *choice)
{
    WEIR_INVARIANT(instance_lock_is_held(pool->w));
    choice->older = pool->choices;
    pool->choices = choice;
    choice->link = &choice->definition->choices;
    choice->next = *choice->link;
    if (choice->next)
        choice->next->link = &choice->next;
    *choice->link = choice;
    atomic_store_explicit(&pool->choice, choice, memory_order_release);
}

/* Removes a choice from those of its definition, which keeps its counts. */
static void pool_forget_choice(struct pool_choice *choice)
{
    for (uint32_t i = 0; i < choice->definition->sets_n; i++)
        choice->definition->picks[i] +=
            atomic_load_explicit(&choice->members[i].picks, memory_order_relaxed);
    *choice->link = choice->next;
    if (choice->next)
        choice->next->link = choice->link;
}

uint64_t pool_picks(const struct instance_pool *pool, uint32_t set)
{
    uint64_t picks = 0;

    for (; pool && set != POOL_NO_PLACE; set = pool->places_before[set], pool = pool->before) {
        picks += pool->picks[set];
        for (const struct pool_choice *at = pool->choices; at; at = at->next)
            picks += atomic_load_explicit(&at->members[set].picks, memory_order_relaxed);
    }
    return picks;
}

/* ---- handles ---- */

/* Adds a handle to those of its pool. The caller holds the instance's lock. */
static void pool_link(weir_pool *pool, struct instance_pool *definition)
{
    pool->link = &definition->handles;
    pool->next = *pool->link;
    if (pool->next)
        pool->next->link = &pool->next;
    *pool->link = pool;
}

static void pool_unlink(weir_pool *pool)
{
    instance_lock(pool->w);
    for (struct pool_choice *at = pool->choices; at; at = at->older)
        pool_forget_choice(at);
    *pool->link = pool->next;
    if (pool->next)
        pool->next->link = pool->link;
    instance_unlock(pool->w);
}

/* In a forked child no lock is destroyed: a thread of the parent may have had it. */
static void pool_free(weir_pool *pool, bool in_child)
{
    for (struct pool_choice *at = pool->choices, *older; at; at = older) {
        older = at->older;
        if (in_child)
            os_free(at);
        else
            pool_free_choice(at);
    }
    os_free(pool);
}

/* Makes a handle. NULL: out of memory. */
static weir_pool *pool_make(weir *w, struct instance_pool *definition, uint32_t worker)
{
    bool is_only = definition->sets_n == 1;
    weir_pool *pool = os_alloc(1, sizeof(*pool));
    struct pool_choice *choice;

    if (!pool)
        return NULL;
    pool->worker = worker;
    pool_fill(pool, w, definition, is_only ? pool_set(definition, 0) : NULL,
              is_only ? 0 : POOL_SEVERAL);
    choice = is_only ? NULL : pool_make_choice(pool, definition);
    if (!is_only && !choice) {
        os_free(pool);
        return NULL;
    }
    if (choice)
        pool_take_choice(pool, choice);
    return pool;
}

/* Opens a handle. The caller holds the instance's lock. */
static int pool_open_handle(weir_pool **ret, weir *w, struct instance_pool *definition,
                            uint32_t worker)
{
    bool is_auto = worker == WEIR_WORKER_AUTO;
    weir_pool *pool = pool_make(w, definition, is_auto ? definition->workers : worker);

    WEIR_INVARIANT(instance_lock_is_held(w));
    if (!pool)
        return -ENOMEM;
    definition->workers += is_auto;
    pool_link(pool, definition);
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
        r = registry_add_pool(w, &(struct pool_plan){0}, set, NULL, &pool);
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

/* Gives the sets of a pool that is opened what requests would wait for; without the lock. */
static void pool_populate(weir_pool *pool)
{
    weir_set *set;

    for (size_t i = 0; (set = weir_pool_set(pool, i)); i++)
        if (set->is_keyed)
            keyed_populate(set_newest(set));
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
    pool_populate(*ret);
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
    if (r == 0) {
        peer_reap_crowded(w, before);
        pool_populate(*ret);
    }
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
        pool_free(pool, true);
        return NULL;
    }
    pool_unlink(pool);
    pool_free(pool, false);
    if (instance_is_closed(w))
        thread_ctx_detach(w);
    instance_unref(w, 1);
    return NULL;
}

const char *weir_pool_balancer(const weir_pool *pool)
{
    const struct plugin *balancer = pool ? pool_definition(pool)->plan.balancer : NULL;

    return balancer ? balancer->info.name : NULL;
}

uint32_t weir_pool_flags(const weir_pool *pool)
{
    const struct pool_plan *plan = pool ? &pool_definition(pool)->plan : NULL;

    return plan ? (plan->tries_next ? WEIR_POOL_TRY_NEXT : 0u) |
                      (plan->waits_any ? WEIR_POOL_WAIT_ANY : 0u)
                : 0;
}

size_t weir_pool_sets(const weir_pool *pool)
{
    return pool ? pool_definition(pool)->sets_n : 0;
}

weir_set *weir_pool_set(weir_pool *pool, size_t index)
{
    const struct instance_pool *definition = pool ? pool_definition(pool) : NULL;

    return definition && index < definition->sets_n ? pool_set(definition, index) : NULL;
}

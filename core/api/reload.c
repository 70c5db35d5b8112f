/* SPDX-License-Identifier: MIT */
/*
 * Reloads a configuration: compares it with what the instance has, and makes what differs. All that
 * can fail is done under the instance's lock, and undone if something does fail. Then successors
 * are published (set/set.h), and only after that sets change, without the lock.
 */
#include "api/reload.h"
#include "api/own_settings.h"
#include "api/pool.h"
#include "api/set_object.h"
#include "config/config_ast.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "remote/remote.h"
#include "state/version.h"
#include "wait/hold_watch.h"
#include <errno.h>
#include <string.h>

/* Returns whether a pool is that of a removed set alone, and bears its name. */
static bool reload_is_of_removed(const struct reload *reload, const struct instance_pool *pool)
{
    const weir_set *set = pool->plan.name || pool->plan.sets_n ? NULL : pool_set(pool, 0);

    for (uint32_t i = 0; set && i < reload->removed_n; i++)
        if (set_newest(reload->removed[i]) == set)
            return true;
    return false;
}

/* Returns whether the plan lacks a pool, or has another definition of it. */
static bool reload_ends_pool(const struct reload *reload, const struct instance_pool *pool)
{
    const struct pool_plan *plan;
    const struct reload_pool *of_plan;

    if (!pool->plan.name || !pool->is_configured || pool_is_removed(pool))
        return false;
    plan = str_map_find(&reload->pool_names, pool->plan.name);
    of_plan = plan ? &reload->pools[plan - reload->plan->pools] : NULL;
    return !of_plan || (of_plan->is_due && of_plan->before == pool);
}

static int reload_alloc(struct reload *reload)
{
    const struct plan *plan = reload->plan;
    uint32_t n = atomic_load_explicit(&reload->w->sets_n, memory_order_seq_cst);

    reload->sets = os_alloc(plan->sets_n + 1, sizeof(*reload->sets));
    reload->pools = os_alloc(plan->pools_n + 1, sizeof(*reload->pools));
    reload->removed = os_alloc(n + UINT64_C(1), sizeof(weir_set *));
    if (!reload->sets || !reload->pools || !reload->removed)
        return -ENOMEM;
    if (str_map_reserve(&reload->set_names, plan->sets_n) < 0 ||
        str_map_reserve(&reload->pool_names, plan->pools_n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < plan->sets_n; i++)
        str_map_add(&reload->set_names, plan->sets[i].name, &plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n; i++)
        str_map_add(&reload->pool_names, plan->pools[i].name, &plan->pools[i]);
    return 0;
}

static void reload_free(struct reload *reload)
{
    str_map_free(&reload->set_names);
    str_map_free(&reload->pool_names);
    os_free(reload->sets);
    os_free(reload->pools);
    os_free(reload->removed);
}

/* ---- making what differs; undone if it fails ---- */

/* Prepares for the commits of a set that cannot fail: a block to inflate it, and the context of
 * threads that get none of their own. */
static int reload_prepare_commits(weir_set *set)
{
    int r = 0;

    if (!set->head_unit && set->backend != BACKEND_REMOTE)
        return 0;
    if (set->inline_format != INLINE_NONE && !set->origin && !set_is_shared(set))
        r = version_add_reserve_block(set->region, set->head_unit);
    return r < 0 ? r : thread_ctx_prepare_spare(set);
}

/* Makes what is due of a set of the plan. */
static int reload_make_set(const struct reload *reload, struct set_plan *plan,
                           struct reload_set *set)
{
    int r;

    if (set->is_variant)
        return set_new_variant(set_newest(set->before), plan, &set->after);
    r = registry_add_unnamed(reload->w, plan, set_ops_for(plan), set->before, &set->after,
                             reload->reterr);
    if (r == 0)
        set->after->is_configured = true;
    if (r == 0 && set->before)
        r = reload_prepare_commits(set->before);
    if (r == 0 && set->before)
        r = reload_prepare_commits(set->after);
    return r;
}

static int reload_make_sets(const struct reload *reload)
{
    weir *w = reload->w;
    int r = str_map_reserve(&instance_of(w)->set_names, reload->plan->sets_n);

    if (r == 0) /* for all new pools at once: names that are removed may have to come back */
        r = str_map_reserve(&instance_of(w)->pool_names, reload->plan->pools_n);
    for (size_t i = 0; i < reload->plan->sets_n && r == 0; i++)
        if (reload->sets[i].is_due)
            r = reload_make_set(reload, &reload->plan->sets[i], &reload->sets[i]);
    for (uint32_t i = 0; i < reload->removed_n && r == 0; i++)
        r = reload_prepare_commits(set_newest(reload->removed[i]));
    return r;
}

static void reload_rename(struct str_map *names, const char *name, const void *before, void *after)
{
    if (before)
        str_map_remove(names, name, before);
    if (after)
        str_map_add(names, name, after);
}

/* Takes the name from a pool, or undoes that. Another pool may have it: of a set that was removed
 * and came back. */
static void reload_take_name(struct str_map *names, const char *name, struct instance_pool *pool,
                             bool undo)
{
    if (!undo)
        pool->has_lost_name = str_map_find(names, name) == pool;
    if (pool->has_lost_name)
        reload_rename(names, name, undo ? NULL : pool, undo ? pool : NULL);
}

/* Gives names to what is made, and takes them from what is removed; or undoes that. */
static void reload_exchange_names(const struct reload *reload, bool undo)
{
    struct instance *instance = instance_of(reload->w);

    for (size_t i = 0; i < reload->plan->sets_n; i++) {
        const struct reload_set *set = &reload->sets[i];
        weir_set *before = set->is_back ? NULL : set->before, *after = set->after;

        if (set->is_variant || (!after && set->is_back))
            after = set->before;
        if (after)
            reload_rename(&instance->set_names, set_name(undo && before ? before : after),
                          undo ? after : before, undo ? before : after);
    }
    for (uint32_t i = 0; i < reload->removed_n; i++) {
        weir_set *set = reload->removed[i];

        reload_rename(&instance->set_names, set_name(set), undo ? NULL : set, undo ? set : NULL);
    }
    for (size_t i = 0; i < reload->plan->pools_n; i++) { /* undo: they may have names of others */
        const struct instance_pool *pool = reload->pools[i].after;

        if (pool)
            str_map_remove(&instance->pool_names, pool->plan.name, pool);
    }
    for (uint32_t i = 0; i < instance->pools_n; i++) {
        struct instance_pool *pool = registry_pool(reload->w, i);

        if (reload_ends_pool(reload, pool))
            reload_take_name(&instance->pool_names, pool->plan.name, pool, undo);
        else if (reload_is_of_removed(reload, pool))
            reload_take_name(&instance->pool_names, set_name(pool_set(pool, 0)), pool, undo);
    }
}

static int reload_make_pool(const struct reload *reload, struct pool_plan *plan,
                            struct reload_pool *pool)
{
    int r = registry_add_pool(reload->w, plan, NULL, pool->before, &pool->after);

    if (r < 0)
        return r;
    pool->after->is_configured = true;
    if (pool->before)
        r = pool_follow_on(pool->after, pool->before);
    return r == 0 && pool->before ? pool_prepare_change(pool->before, pool->after) : r;
}

static int reload_make_pools(const struct reload *reload)
{
    int r = 0;

    for (size_t i = 0; i < reload->plan->pools_n && r == 0; i++)
        if (reload->pools[i].is_due)
            r = reload_make_pool(reload, &reload->plan->pools[i], &reload->pools[i]);
    for (size_t i = 0; i < reload->plan->pools_n && r < 0; i++)
        if (reload->pools[i].before)
            pool_undo_change(reload->pools[i].before);
    return r;
}

static void reload_free_variants(const struct reload *reload)
{
    for (size_t i = 0; i < reload->plan->sets_n; i++)
        if (reload->sets[i].is_variant && reload->sets[i].after) {
            set_free(reload->sets[i].after);
            reload->sets[i].after = NULL;
        }
}

/* Makes all that differs, or nothing. */
static int reload_make(const struct reload *reload)
{
    struct registry_mark before = registry_mark(reload->w);
    int r = reload_make_sets(reload);

    if (r == 0) {
        reload_exchange_names(reload, false);
        r = reload_make_pools(reload);
        if (r < 0)
            reload_exchange_names(reload, true);
    }
    if (r < 0) {
        reload_free_variants(reload);
        registry_remove_since(reload->w, before);
    }
    return r;
}

/* ---- from here on nothing fails ---- */

static void reload_publish_sets(const struct reload *reload)
{
    for (size_t i = 0; i < reload->plan->sets_n; i++) {
        const struct reload_set *set = &reload->sets[i];

        if (set->is_back && set_is_shared(set->before))
            atomic_store_explicit(&set->before->participant->is_removed, false,
                                  memory_order_seq_cst);
        if (!set->after || !set->before)
            continue;
        if (set->is_variant) {
            set_succeed(set_newest(set->before), set->after);
            continue;
        }
        if (set->after->backend == BACKEND_REMOTE)
            remote_take_over(set->after);
        if (set->after->is_keyed)
            keyed_begin_change(set->after);
        atomic_store_explicit(&set->before->successor, set->after, memory_order_seq_cst);
    }
}

/* Before pools that have lost them are without them, no sets are removed: requests to such a pool
 * would be -ESTALE. A definition says that it is removed before its sets do, so that a call which
 * finds a set of it removed finds that, too (balance_is_outdated()). */
static void reload_publish_pools(const struct reload *reload)
{
    weir *w = reload->w;

    for (size_t i = 0; i < reload->plan->pools_n; i++)
        if (reload->pools[i].before && reload->pools[i].after)
            pool_change(reload->pools[i].before, reload->pools[i].after);
    for (uint32_t i = 0; i < instance_of(w)->pools_n; i++) {
        struct instance_pool *pool = registry_pool(w, i);

        if (reload_ends_pool(reload, pool))
            atomic_store_explicit(&pool->is_removed, true, memory_order_seq_cst);
        for (uint32_t k = 0; k < pool->sets_n; k++)
            atomic_store_explicit(&pool->sets[k], pool_set(pool, k), memory_order_release);
    }
}

static void reload_publish_removed(weir_set *set)
{
    if (set_is_shared(set)) {
        atomic_store_explicit(&set->participant->is_removed, true, memory_order_seq_cst);
        return;
    }
    if (set->is_keyed)
        keyed_owe(keyed_of(set), 0);
    atomic_store_explicit(&set->successor, set, memory_order_seq_cst);
}

/* Lets threads find what has changed. */
static void reload_publish(const struct reload *reload)
{
    reload_publish_sets(reload);
    reload_publish_pools(reload);
    for (uint32_t i = 0; i < reload->removed_n; i++)
        reload_publish_removed(reload->removed[i]);
    for (uint32_t i = 0; i < instance_of(reload->w)->pools_n; i++)
        pool_update_handles(registry_pool(reload->w, i));
    instance_of(reload->w)->configured = true;
}

/* Changes the sets. Other threads that come first do the same. */
static void reload_change_sets(const struct reload *reload)
{
    struct thread_ctx *ctx;

    for (size_t i = 0; i < reload->plan->sets_n; i++) {
        weir_set *set = reload->sets[i].before ? reload->sets[i].after : NULL;

        if (!set || !set->head_unit || reload->sets[i].is_variant)
            continue;
        ctx = thread_ctx_borrow(set);
        set_grant_waiters(ctx, set);
        thread_ctx_return(ctx);
        if (set->is_keyed)
            keyed_take_over(set);
    }
    for (uint32_t i = 0; i < reload->removed_n; i++) {
        weir_set *set = set_newest(reload->removed[i]);

        if (!set->head_unit && set->backend != BACKEND_REMOTE)
            continue;
        ctx = thread_ctx_borrow(set);
        if (set->backend == BACKEND_REMOTE)
            remote_drop(ctx, set);
        else
            set_remove(ctx, set);
        thread_ctx_return(ctx);
    }
}

/* Compares and makes; the caller holds the instance's lock. */
static int reload_apply(struct reload *reload)
{
    int r = instance_is_closed(reload->w)
                ? error_set(reload->reterr, -ESHUTDOWN, "the instance is closed")
                : reload_alloc(reload);

    if (r == 0)
        r = reload_compare(reload);
    if (r == 0)
        r = reload_make(reload);
    if (r == 0)
        reload_publish(reload);
    return r;
}

/* ---- complaints and warnings, held back while the lock is held: the program may call weir when it
 * hears ---- */

struct held_complaints {
    struct weir_error *items;
    size_t n, room;
    bool is_cut; /* out of memory */
};

static void held_complaints_add(void *userdata, const struct weir_error *complaint)
{
    struct held_complaints *held = userdata;
    struct weir_error *grown;

    if (held->n == held->room) {
        held->room = held->room ? 2 * held->room : 16;
        grown = os_alloc(held->room, sizeof(*grown));
        if (grown && held->n)
            memcpy(grown, held->items, held->n * sizeof(*grown));
        os_free(held->items);
        held->items = grown;
        held->is_cut |= !grown;
    }
    if (!held->is_cut)
        held->items[held->n++] = *complaint;
}

/* Hands them out. If memory was short for complaints, so it is for the call. */
static int held_complaints_end(struct held_complaints *held, const weir *w,
                               const struct weir_options *options, int r)
{
    for (size_t i = 0; i < held->n && !held->is_cut; i++)
        if (!held->items[i].code)
            instance_pass_warning(w, options, &held->items[i]);
        else
            options->complaint(options->userdata, &held->items[i]);
    os_free(held->items);
    return held->is_cut && r < 0 ? -ENOMEM : r;
}

/* Waiters that are taken over may depend on the wall clock from now on. If it cannot be watched
 * they are looked at when they are ready by what is known now. Holders may be held too long by the
 * new definition. Each later request tries again what fails. */
void reload_watch(const weir_set *after)
{
    if (wall_watch_subscribe(after) < 0)
        log_write(&after->w->log, WEIR_LOG_WARNING,
                  "%s: steps of the wall clock are not noticed before the next request",
                  set_name(after));
    if (after->limits.has_max_hold && hold_watch_begin(after) < 0)
        log_write(&after->w->log, WEIR_LOG_WARNING,
                  "%s: what is held too long is not noticed before the next request",
                  set_name(after));
}

/* What other processes have changed is not new. */
static void reload_follow_shared(const weir *w)
{
    uint32_t n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst);

    for (uint32_t i = 0; i < n; i++)
        (void)set_current(instance_set(w, i));
}

/* Reads, resolves and applies a configuration. */
static int reload_run(weir *w, const struct weir_options *options, struct complaints *complaints,
                      struct weir_error *reterr)
{
    struct plan plan;
    struct reload reload = {.w = w, .plan = &plan, .reterr = reterr};
    struct config_ast ast;
    int r = config_yaml_load(options, &ast, complaints);

    if (complaints->warnings)
        complaints->warnings->file = complaints->file;
    if (r == 0 && !options->text && complaints->file[0] == '\0')
        r = complaint_add(complaints, -ENOENT, (struct mark){0, 0},
                          "there is no configuration to reload: the call names neither a file nor "
                          "a text, and the environment variable WEIR_CONFIG is not set, or ignored "
                          "since the process is privileged");
    reload_follow_shared(w);
    instance_lock(w);
    r = plan_resolve(r, &ast, instance_of(w)->plugins, NULL, &plan);
    if (complaints->warnings)
        complaints_report(complaints->warnings);
    if (r == 0 && options->only)
        plan_select(&plan, options->only);
    if (r == 0)
        r = reload_apply(&reload);
    instance_unlock(w);
    if (r == 0) {
        for (size_t i = 0; i < plan.sets_n; i++)
            if (reload.sets[i].after)
                reload_watch(reload.sets[i].after);
        reload_change_sets(&reload);
        log_write(&w->log, WEIR_LOG_INFO, "%s: reloaded: sets: %zu, pools: %zu", complaints->file,
                  plan.sets_n, plan.pools_n);
    }
    reload_free(&reload);
    plan_free(&plan);
    return r;
}

int weir_reload(weir *w, const struct weir_options *options, struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct held_complaints held = {0};
    struct complaints complaints = {.file = ""};
    struct complaints warnings = {
        .report = held_complaints_add, .userdata = &held, .are_warnings = true};
    struct weir_error error = {0};
    int r;

    options = options ? options : &none;
    if (!w)
        return error_set(reterr, -EINVAL, "`w` is NULL");
    r = instance_check_options(options, reterr);
    if (r < 0)
        return r;
    if (instance_is_forked(w))
        return error_set(reterr, -ECHILD, "the instance belongs to the parent process");
    if (options->complaint) {
        complaints.report = held_complaints_add;
        complaints.userdata = &held;
    }
    if (instance_wants_warnings(w, options))
        complaints.warnings = &warnings;
    r = reload_run(w, options, &complaints, &error);
    if (r >= 0)
        hold_watch_look_now(w);
    if (r < 0 && !complaints.first.complaints) {
        complaint_add(&complaints, r, (struct mark){0, 0}, "%s",
                      error.code ? error.message : strerrordesc_np(-r));
        complaints_report(&complaints);
    }
    r = held_complaints_end(&held, w, options, r);
    if (r < 0 && reterr)
        *reterr = complaints.first;
    return r;
}

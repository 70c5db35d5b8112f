/* SPDX-License-Identifier: MIT */
/* Instances: opening, closing, and what they are made of. */
#include "instance.h"

#include "acquisition.h"
#include "mutant.h"
#include "pool.h"
#include "sys.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instants stay below the marker that records use; 292 years are enough. */
#define CLOCK_MAX (GRANTED_MARKER - 1)

void instance_hold(weir *w, uint64_t n)
{
    atomic_fetch_add_explicit(&w->references, n, memory_order_relaxed);
}

static void pools_free(weir *w)
{
    for (size_t i = 0; i < w->pools_n; i++) {
        pool_plan_free(&w->pools[i]->plan);
        sys_free(w->pools[i]->sets);
        sys_free(w->pools[i]);
    }
    sys_free(w->pools);
}

static void actors_free(weir *w)
{
    while (w->actors) {
        struct actor *actor = w->actors;

        w->actors = actor->next;
        while (actor->cache) {
            weir_acquisition *acquisition = actor->cache;

            actor->cache = acquisition_next(acquisition);
            sys_free(acquisition);
        }
        actor_free(actor);
    }
}

static weir *instance_free(weir *w)
{
    pools_free(w);
    for (uint32_t i = 0; i < w->sets_n; i++)
        set_free(w->sets[i]);
    sys_free(w->sets);
    names_free(&w->names);
    actors_free(w);
    if (w->plugins)
        plugins_free(w->plugins);
    keeper_free(&w->keeper);
    region_close(&w->region);
    if (w->fork_page)
        sys_fork_page_free(w->fork_page);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->spare_lock);
    sys_free(w);
    return NULL;
}

void instance_drop(weir *w, uint64_t n)
{
    if (atomic_fetch_sub_explicit(&w->references, n, memory_order_acq_rel) == n)
        instance_free(w);
}

void instance_lock(weir *w)
{
    pthread_mutex_lock(&w->spare_lock);
    pthread_mutex_lock(&w->lock);
}

void instance_unlock(weir *w)
{
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&w->spare_lock);
}

/* An injected clock that goes back stands still instead. */
static uint64_t injected_now(weir *w)
{
    uint64_t now = w->clock.now_ns(w->clock.userdata);
    uint64_t seen = atomic_load(&w->clock_seen);

    if (now > CLOCK_MAX)
        now = CLOCK_MAX;
    while (now > seen && !atomic_compare_exchange_weak(&w->clock_seen, &seen, now))
        ;
    return now > seen ? now : seen;
}

uint64_t instance_now(weir *w)
{
    return w->clock.now_ns ? injected_now(w) : sys_now_ns();
}

static int64_t wall_offset(weir *w)
{
    if (!w->clock.now_ns)
        return sys_wall_offset_ns();
    return w->clock.wall_offset_ns ? w->clock.wall_offset_ns(w->clock.userdata) : 0;
}

struct weir_instant instance_instant(weir *w, bool with_wall)
{
    return (struct weir_instant){instance_now(w), with_wall ? wall_offset(w) : 0};
}

void instance_log(weir *w, enum weir_log_level level, const char *format, ...)
{
    char message[512];
    va_list arguments;

    if (!w->log)
        return;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    w->log(w->userdata, level, message);
}

bool instance_knows(void *instance, const char *name, bool *ret_is_pool)
{
    weir *w = instance;
    struct name_entry *entry = names_find(&w->names, name);

    if (entry)
        *ret_is_pool = entry->set == NULL;
    return entry != NULL;
}

static int reserve_sets(weir *w, size_t more)
{
    size_t capacity = w->sets_capacity ? w->sets_capacity : 16;
    weir_set **grown;

    while (capacity < w->sets_n + more)
        capacity *= 2;
    if (capacity == w->sets_capacity)
        return 0;
    grown = sys_grow(w->sets, capacity, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    w->sets = grown;
    w->sets_capacity = (uint32_t)capacity;
    return 0;
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
static int add_set(weir *w, struct set_plan *plan, weir_set **ret)
{
    uint32_t number = w->sets_n;
    weir_set *set;
    int r = reserve_sets(w, 1);

    if (r == 0)
        r = set_new(w, number, plan, &set);
    if (r < 0)
        return r;
    if (actor_prepare(w->spare, set) < 0) {
        set_free(set);
        return -ENOMEM;
    }
    w->sets[number] = set;
    w->sets_n = number + 1;
    *ret = set;
    return 0;
}

int instance_add_set(weir *w, struct set_plan *plan, weir_set **ret)
{
    int r = names_reserve(&w->names, 1);

    if (r == 0)
        r = add_set(w, plan, ret);
    if (r == 0)
        names_add(&w->names, (*ret)->name, *ret, NULL);
    return r;
}

static weir_set *find_set(const weir *w, const char *name)
{
    struct name_entry *entry = names_find(&w->names, name);

    return entry ? entry->set : NULL;
}

/* A pool without sets holds one empty set. */
static int add_empty_set(weir *w, const char *name, weir_set **ret)
{
    struct set_plan plan = {.timeout_ns = WEIR_FOREVER, .max_wait_ns = WEIR_FOREVER, .fair = true};
    int r;

    plan.name = sys_strdup(name ? name : "");
    if (!plan.name)
        return -ENOMEM;
    r = add_set(w, &plan, ret);
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

    names_remove(&w->names, w->sets[number]->name, w->sets[number]);
    sys_free(w->spare->counters[number]);
    w->spare->counters[number] = NULL;
    set_free(w->sets[number]);
    w->sets_n = number;
}

static void remove_last_pool(weir *w)
{
    struct pool_definition_live *pool = w->pools[--w->pools_n];

    if (pool->plan.name)
        names_remove(&w->names, pool->plan.name, pool);
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

int instance_add_plan(weir *w, struct plan *plan, struct pool_definition_live **ret)
{
    struct instance_mark before = instance_mark(w);
    int r = names_reserve(&w->names, plan->sets_n + plan->pools_n);

    for (size_t i = 0; i < plan->sets_n && r == 0; i++) {
        weir_set *set;

        r = add_set(w, &plan->sets[i], &set);
        if (r == 0)
            names_add(&w->names, set->name, set, NULL);
    }
    for (size_t i = 0; i < plan->pools_n && r == 0; i++) {
        r = instance_add_pool(w, &plan->pools[i], ret);
        if (r == 0 && (*ret)->plan.name)
            names_add(&w->names, (*ret)->plan.name, NULL, *ret);
    }
    if (r < 0)
        instance_remove_since(w, before);
    return r;
}

/* weir_open */

static int add_configuration(weir *w, const char *text, size_t size, struct complaints *complaints)
{
    struct pool_definition_live *pool;
    struct plan plan = {0};
    int r = plan_from_text(text, size, w->plugins, &plan, complaints);

    if (r == 0) {
        instance_lock(w);
        r = instance_add_plan(w, &plan, &pool);
        instance_unlock(w);
    }
    plan_free(&plan);
    return r;
}

static int configure(weir *w, const struct weir_options *options, struct complaints *complaints)
{
    const char *file = options->file;
    char *text;
    size_t size;
    int r;

    if (options->text) {
        w->configured = true;
        complaints->file = options->text_name ? options->text_name : "<text>";
        return add_configuration(w, options->text, strlen(options->text), complaints);
    }
    if (!file)
        file = sys_environment("WEIR_CONFIG");
    if (!file)
        return 0;
    w->configured = true;
    complaints->file = file;
    r = sys_read_file(file, CONFIG_TEXT_MAX, &text, &size);
    if (r < 0) {
        complain(complaints, r, (struct mark){0, 0}, "cannot be read: %s", strerror(-r));
        return complaints_tell(complaints);
    }
    r = add_configuration(w, text, size, complaints);
    sys_free(text);
    return r;
}

static int build(weir *w, const struct weir_options *options)
{
    int r;

    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->spare_lock, NULL);
    keeper_init(&w->keeper);
    w->references = 1;
    w->log = options->log;
    w->userdata = options->userdata;
    w->seed = options->seed ? options->seed : sys_random();
    if (options->clock)
        w->clock = *options->clock;
    w->fork_page = sys_fork_page();
    if (!w->fork_page)
        return -ENOMEM;
    w->fork_page[0] = 1;
    r = region_open(&w->region);
    if (r == 0)
        r = plugins_new(&w->plugins, options->plugin_dirs);
    if (r == 0 && !(w->spare = actor_new(w)))
        r = -ENOMEM;
    return r;
}

static int check_options(const struct weir_options *options, struct weir_error *reterr)
{
    if (options->size < sizeof(*options))
        return error_set(reterr, -EINVAL,
                         "options.size is %zu; it must be sizeof(struct "
                         "weir_options), %zu",
                         options->size, sizeof(*options));
    if (options->file && options->text)
        return error_set(reterr, -EINVAL, "options name both a file and a text");
    if (options->clock &&
        (options->clock->size < sizeof(*options->clock) || !options->clock->now_ns))
        return error_set(reterr, -EINVAL, "options.clock has no now_ns or a wrong size");
    return 0;
}

int weir_open(weir **ret, const struct weir_options *options, struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct complaints complaints = {.file = ""};
    weir *w;
    int r;

    options = options ? options : &none;
    if (!ret)
        return error_set(reterr, -EINVAL, "there is nowhere to put the instance");
    r = check_options(options, reterr);
    if (r < 0)
        return r;
    complaints.hear = options->complaint;
    complaints.userdata = options->userdata;
    w = sys_alloc(1, sizeof(*w));
    if (!w)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = build(w, options);
    if (r == 0)
        r = configure(w, options, &complaints);
    if (r < 0) {
        instance_free(w);
        if (!complaints.first.complaints)
            return error_set(reterr, r, "%s", strerror(-r));
        if (reterr)
            *reterr = complaints.first;
        return r;
    }
    *ret = w;
    return 0;
}

/* weir_close */

static void shut_sets(weir *w)
{
    /* No set is added once `closed` was set under the lock. */
    for (uint32_t i = 0; i < w->sets_n; i++) {
        struct actor *actor = actor_borrow(w->sets[i]);

        set_shut(actor, w->sets[i]);
        actor_return(actor);
    }
}

static void await_blocked(weir *w)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&w->blocked;
    uint32_t blocked;

    while ((blocked = atomic_load(&w->blocked)) != 0)
        sys_futex_wait(futex, blocked, WEIR_FOREVER);
}

static weir *close_in_child(weir *w)
{
    int fds[] = {w->keeper.epoll_fd, w->keeper.timer_fd, w->keeper.stop_fd};

    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            sys_close(fds[i]);
    return NULL;
}

weir *weir_close(weir *w)
{
    if (!w)
        return NULL;
    if (instance_forked(w))
        return close_in_child(w);
    instance_lock(w);
    pthread_mutex_lock(&w->keeper.lock);
    atomic_store(&w->closed, 1);
    pthread_mutex_unlock(&w->keeper.lock);
    instance_unlock(w);
    shut_sets(w);
    if (!MUTANT(98))
        await_blocked(w);
    keeper_stop(w);
    actor_leave(w);
    instance_drop(w, 1);
    return NULL;
}

static const char *name_of_set(const weir *w, size_t i)
{
    const weir_set *set = w->sets[i];
    struct name_entry *entry = names_find(&w->names, set->name);

    /* The empty set of a pool without sets goes by the pool's name and has none of its own. */
    return entry && entry->set == set ? set->name : NULL;
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

uint64_t weir_now(weir *w)
{
    return instance_now(w);
}

int weir_tick(weir *w)
{
    return instance_forked(w) ? -ECHILD : keeper_run(w);
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

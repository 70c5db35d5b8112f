/* SPDX-License-Identifier: MIT */
/* Statistics of sets: definitions and counters. */
#include "api/instance.h"
#include "api/set_holders.h"
#include "api/set_object.h"
#include "base/invariant.h"
#include "keyed/keyed.h"
#include "limit/counters.h"
#include "os/os.h"
#include "peer/peer_cleanup.h"
#include "set/txn.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include <errno.h>
#include <string.h>

const char *weir_set_name(const weir_set *set)
{
    return set_name(set);
}

const char *weir_set_config(const weir_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->config_n; i++)
        if (strcmp(set->config[i].name, name) == 0)
            return set->config[i].value;
    return NULL;
}

size_t weir_set_limits(const weir_set *set)
{
    return set->limits.n;
}

int weir_set_info(const weir_set *set, struct weir_set_info *ret)
{
    bool shared = set->backend == BACKEND_PROCESS;

    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    *ret = (struct weir_set_info){
        .size = sizeof(*ret),
        .timeout_ns = set->timeout_ns,
        .max_wait_ns = set->max_wait_ns,
        .max_waiters = set->max_waiters,
        .flags = (set->strict ? WEIR_SET_STRICT : 0u) | (set->fair ? 0u : WEIR_SET_UNFAIR),
        .backend = shared ? "process" : "thread",
        .lifetime = !shared           ? NULL
                    : set->while_used ? "users"
                                      : "boot",
    };
    return 0;
}

int weir_set_limit_settings(const weir_set *set, size_t limit, struct weir_setting *ret, size_t n)
{
    const char *at;

    if (limit >= set->limits.n || (n && !ret))
        return -EINVAL;
    at = set->limits.items[limit].settings_text;
    for (uint32_t i = 0; i < set->limits.items[limit].settings_n; i++) {
        const char *value = at + strlen(at) + 1;

        if (i < n)
            ret[i] = (struct weir_setting){at, value};
        at = value + strlen(value) + 1;
    }
    return (int)set->limits.items[limit].settings_n;
}

static void stats_fill_limit(const struct limit *limit, const uint64_t *state,
                             const struct weir_instant *at, struct weir_limit_stats *ret)
{
    *ret = (struct weir_limit_stats){
        .type = limit->type,
        .key = limit->key,
        .algorithm = limit->algorithm_name,
        .capacity = limit->capacity,
        .available = limit_available(limit, state, at),
        .held = limit->algorithm ? 0 : state[0],
    };
}

/* Sums the counters of all thread contexts ever used: their next owner continues them. */
static void stats_add_shared(const struct segment *segment, struct weir_set_stats *totals,
                             struct weir_limit_stats *limits, uint32_t n)
{
    for (uint32_t i = 0; i < segment_threads_n(segment); i++)
        counters_sum(segment_thread_counters(segment, i), totals, limits, n);
}

static void stats_add_counters(weir_set *set, struct weir_set_stats *totals,
                               struct weir_limit_stats *limits, uint32_t n)
{
    weir *w = set->w;
    uint64_t ended;

    if (set_is_shared(set)) {
        stats_add_shared(set->participant->segment, totals, limits, n);
        totals->held = set_holders_count(set);
        return;
    }
    pthread_mutex_lock(&w->lock);
    for (struct thread_ctx *ctx = w->thread_ctxs; ctx; ctx = ctx->next)
        if (thread_ctx_is_prepared(ctx, set->number))
            counters_sum(thread_ctx_counters(ctx, set->number), totals, limits, n);
    pthread_mutex_unlock(&w->lock);
    /* The sum over other threads may miss a grant and include its release. */
    ended = totals->taken + totals->released;
    totals->held = totals->granted > ended ? totals->granted - ended : 0;
}

/* Fills in a keyed set's totals over all keys, as each key has a state of its own. */
static void stats_fill_keyed(struct thread_ctx *ctx, const weir_set *set,
                             struct weir_set_stats *ret, struct weir_limit_stats *limits,
                             uint32_t n)
{
    uint64_t held[WEIR_LIMITS_MAX] = {0};

    WEIR_INVARIANT(set->keyed && n <= set->limits.n);
    ret->waiting = keyed_waiters_n(ctx, set);
    if (!set->limits.has_resources)
        return;
    pthread_mutex_lock(&set->w->lock);
    set_holders_add_amounts(set, held);
    pthread_mutex_unlock(&set->w->lock);
    for (uint32_t i = 0; i < n; i++)
        if (!set->limits.items[i].algorithm)
            limits[i].held = held[i];
}

int weir_set_stats(weir_set *set, struct weir_set_stats *ret, struct weir_limit_stats *retlimits,
                   size_t limits_n)
{
    uint32_t n = limits_n < set->limits.n ? (uint32_t)limits_n : set->limits.n;
    struct set_view view;
    struct weir_instant at;
    struct thread_ctx *ctx;

    if (instance_is_forked(set->w))
        return -ECHILD;
    if (!ret || ret->size < sizeof(*ret) || (limits_n && !retlimits))
        return -EINVAL;
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    *ret = (struct weir_set_stats){.size = sizeof(*ret)};
    if (set_is_shared(set))
        peer_reap(ctx, set); /* grants of dead peers are not held */
    if (set->head_unit) {
        set_snapshot(ctx, set, &view);
        ret->waiting = view.length;
        if (set_is_broken(set))
            return -EUCLEAN;
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
        /* Ahead of the clock after a reservation: nothing is granted before that time. */
        if (at.now_ns < view.last_ns)
            at.now_ns = view.last_ns;
        for (uint32_t i = 0; i < n; i++)
            stats_fill_limit(&set->limits.items[i],
                             view.content + CONTENT_STATES + set->limits.items[i].state_offset, &at,
                             &retlimits[i]);
    }
    if (set->keyed)
        stats_fill_keyed(ctx, set, ret, retlimits, n);
    stats_add_counters(set, ret, retlimits, n);
    return (int)set->limits.n;
}

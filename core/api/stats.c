/* SPDX-License-Identifier: MIT */
/* What a set tells of itself: definitions, counters, and when it would grant a request. */
#include "api/acquire.h"
#include "api/set_object.h"
#include "base/units.h"
#include "config/plan.h"
#include "keyed/keyed.h"
#include "limit/counters.h"
#include "peer/peer.h"
#include "remote/remote_lease.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/shadow.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <string.h>

const char *weir_set_name(const weir_set *set)
{
    return set ? set_name(set) : NULL;
}

const char *weir_set_config(const weir_set *set, const char *name)
{
    return set ? set_config_value(set_newest(set), name) : NULL;
}

const char *set_config_value(const weir_set *set, const char *name)
{
    if (!name)
        return NULL;
    for (uint32_t i = 0; i < set->config_n; i++)
        if (strcmp(set->config[i].name, name) == 0)
            return set->config[i].value;
    return NULL;
}

int weir_set_config_settings(const weir_set *set, struct weir_setting *ret, size_t n)
{
    if (!set || (n && !ret))
        return -EINVAL;
    set = set_current(set);
    for (uint32_t i = 0; i < set->config_n && i < n; i++)
        ret[i] = (struct weir_setting){set->config[i].name, set->config[i].value};
    return set->config_n;
}

size_t weir_set_limits(const weir_set *set)
{
    return set ? set_listed_n(set_newest(set)) : 0;
}

/* Returns a limit by its listed number. */
static const struct limit *stats_limit(const weir_set *set, uint32_t i)
{
    return &set->limits.items[set_listed(set, i)];
}

const char *weir_set_limit_key(const weir_set *set, size_t limit)
{
    const weir_set *newest = set ? set_newest(set) : NULL;

    return newest && limit < set_listed_n(newest) ? stats_limit(newest, (uint32_t)limit)->key
                                                  : NULL;
}

int weir_set_limit_find(const weir_set *set, const char *key, size_t from)
{
    if (!set || !key)
        return -EINVAL;
    set = set_current(set);
    for (size_t i = from; i < set_listed_n(set); i++)
        if (request_key_equal(stats_limit(set, (uint32_t)i)->key, key))
            return (int)i;
    return -ENOENT;
}

int weir_set_info(const weir_set *set, struct weir_set_info *ret)
{
    bool shared;

    if (!set || !ret || ret->size < sizeof(*ret))
        return -EINVAL;
    set = set_current(set);
    shared = set->backend == BACKEND_PROCESS;
    *ret = (struct weir_set_info){
        .size = sizeof(*ret),
        .timeout_ns = set->timeout_ns,
        .max_wait_ns = set->max_wait_ns,
        .max_waiters = set->max_waiters,
        .flags = (set->strict ? WEIR_SET_STRICT : 0u) | (set->fair ? 0u : WEIR_SET_UNFAIR) |
                 (set->per_limit ? WEIR_SET_FAIR_PER_LIMIT : 0u) |
                 (set->boottime ? WEIR_SET_BOOTTIME : 0u) |
                 (set->limits.counts_holds ? WEIR_SET_HOLD_HISTOGRAM : 0u),
        .backend = shared                           ? "process"
                   : set->backend == BACKEND_REMOTE ? remote_engine_name(set)
                                                    : "thread",
        .lifetime = !shared           ? NULL
                    : set->while_used ? "users"
                                      : "boot",
        .subjects_max = set->backend == BACKEND_REMOTE ? remote_subjects_max(set)
                        : set->is_keyed                ? keyed_of(set)->max_keys
                                                       : 0,
    };
    return 0;
}

int weir_set_limit_settings(const weir_set *set, size_t limit, struct weir_setting *ret, size_t n)
{
    const struct limit *of;
    const char *at;

    set = set ? set_current(set) : NULL;
    if (!set || limit >= set_listed_n(set) || (n && !ret))
        return -EINVAL;
    of = stats_limit(set, (uint32_t)limit);
    at = of->settings_text;
    for (uint32_t i = 0; i < of->settings_n; i++) {
        const char *value = at + strlen(at) + 1;

        if (i < n)
            ret[i] = (struct weir_setting){at, value};
        at = value + strlen(value) + 1;
    }
    return (int)of->settings_n;
}

/* Adds what one thread context has counted. */
static void stats_sum(struct counters *counters, const weir_set *set, struct weir_set_stats *totals,
                      struct weir_limit_stats *limits, uint32_t n)
{
    counters_sum(counters, totals, limits, n);
    if (set->limits.counts_holds || set_is_shared(set)) /* of other processes, too */
        counters_sum_holds(counters_holds(counters, set_amounts_n(set)), totals);
}

/* Adds what all thread contexts have counted for a private set with this definition. The lock is
 * held. */
static void stats_add_contexts(const weir_set *set, struct weir_set_stats *totals,
                               struct weir_limit_stats *limits, uint32_t n)
{
    for (struct thread_ctx *ctx = set->w->thread_ctxs; ctx; ctx = ctx->next)
        if (thread_ctx_is_prepared(ctx, set->number))
            stats_sum(thread_ctx_counters(ctx, set->number), set, totals, limits, n);
}

static void stats_add_limit(struct weir_limit_stats *to, const struct weir_limit_stats *from)
{
    to->granted += from->granted;
    to->refused += from->refused;
    to->would_refuse += from->would_refuse;
    to->refunded += from->refunded;
    to->overused += from->overused;
    to->leased += from->leased;
}

/* Adds what all thread contexts have counted for a private set, by this definition and those before
 * it: a limit goes on with the counts of the one that had its key. */
static void stats_add_private(const weir_set *set, struct weir_set_stats *totals,
                              struct weir_limit_stats *limits, uint32_t n)
{
    uint8_t from[WEIR_LIMITS_MAX];

    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)i;
    pthread_mutex_lock(&set->w->lock);
    stats_add_contexts(set, totals, limits, n);
    for (const struct set_origin *origin = set->origin; origin;
         origin = origin->predecessor->origin) {
        struct weir_limit_stats before[WEIR_LIMITS_MAX] = {{0}};

        stats_add_contexts(origin->predecessor, totals, before, origin->predecessor->limits.n);
        for (uint32_t i = 0; i < n; i++) {
            from[i] = from[i] == ORIGIN_NONE ? ORIGIN_NONE : origin->limits[from[i]].from;
            if (from[i] != ORIGIN_NONE)
                stats_add_limit(&limits[i], &before[from[i]]);
        }
    }
    pthread_mutex_unlock(&set->w->lock);
}

/* Adds what is counted of each class. Counters of contexts are those of one definition. */
static void stats_sum_classes(struct counters *counters, const weir_set *set,
                              struct weir_class_stats *ret)
{
    counters_sum_classes(counters_classes(counters, set_amounts_n(set)), ret, set->classes->rule.n);
}

void stats_add_classes(const weir_set *set, struct weir_class_stats *ret)
{
    const struct segment *segment = set_is_shared(set) ? set->participant->segment : NULL;
    weir *w = set->w;

    for (uint32_t i = 0; segment && i < segment_threads_n(segment); i++)
        stats_sum_classes(segment_thread_counters(segment, i), set, ret);
    if (segment)
        return;
    pthread_mutex_lock(&w->lock);
    for (; set; set = set->origin ? set->origin->predecessor : NULL) /* of the same classes */
        for (struct thread_ctx *ctx = w->thread_ctxs; ctx; ctx = ctx->next)
            if (thread_ctx_is_prepared(ctx, set->number))
                stats_sum_classes(thread_ctx_counters(ctx, set->number), set, ret);
    pthread_mutex_unlock(&w->lock);
}

static uint64_t stats_since(uint64_t count, uint64_t before)
{
    return count > before ? count - before : 0; /* of a segment, where anything may be */
}

/* Leaves what was counted of each limit of a shared set since it has its place. */
static void stats_subtract_base(const weir_set *set, struct weir_limit_stats *limits, uint32_t n)
{
    const struct limit_base *base =
        segment_definition_base(set->participant->segment, set->head_unit);

    if (n && set->limits.has_lost_first)
        limits[0].leased = 0; /* it is of the limit that was the first */
    for (uint32_t i = 0; base && i < n; i++) {
        limits[i].granted = stats_since(limits[i].granted, base[i].granted);
        limits[i].refused = stats_since(limits[i].refused, base[i].refused);
        limits[i].would_refuse = stats_since(limits[i].would_refuse, base[i].would_refuse);
        limits[i].refunded = stats_since(limits[i].refunded, base[i].refunded);
        limits[i].overused = stats_since(limits[i].overused, base[i].overused);
    }
}

static void stats_add_counters(weir_set *set, struct weir_set_stats *totals,
                               struct weir_limit_stats *limits, uint32_t n)
{
    const weir_set *stand_in;
    uint64_t ended, granted;

    if (set_is_shared(set)) {
        const struct segment *segment = set->participant->segment;

        /* All thread contexts ever used: their next owner continues the counters. */
        for (uint32_t i = 0; i < segment_threads_n(segment); i++)
            stats_sum(segment_thread_counters(segment, i), set, totals, limits, n);
        stats_subtract_base(set, limits, n);
        totals->held = set_holders_count(set);
        participant_check_name(set->participant, true);
        totals->nameless = participant_is_nameless(set->participant);
        return;
    }
    stats_add_private(set, totals, limits, n);
    granted = totals->granted;
    for (uint32_t i = 0; (stand_in = set_stand_in(set, i)); i++)
        stats_add_private(stand_in, totals, limits, n);
    totals->granted_alone += totals->granted - granted;
    /* The sum over other threads may miss a grant and include its release. */
    ended = totals->taken + totals->released;
    totals->held = totals->granted > ended ? totals->granted - ended : 0;
}

static void stats_describe_limits(const weir_set *set, struct weir_limit_stats *ret, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (struct weir_limit_stats){
            .type = set->limits.items[i].type,
            .key = set->limits.items[i].key,
            .algorithm = set->limits.items[i].algorithm_name,
            .capacity = set->limits.items[i].capacity,
        };
}

/* As stats_read(), of limits by their places. */
static int stats_read_places(weir_set *set, struct weir_set_stats *ret,
                             struct weir_limit_stats *retlimits, uint32_t n, bool asks_engine)
{
    struct thread_ctx *ctx = thread_ctx_get(set);
    int r = 0;

    WEIR_INVARIANT(n <= set->limits.n);
    if (!ctx)
        return -ENOMEM;
    *ret = (struct weir_set_stats){.size = sizeof(*ret)};
    if (set_is_shared(set))
        peer_make_room(ctx, set); /* grants of dead peers are not held */
    stats_describe_limits(set, retlimits, n);
    if (set->limits.n && set->ops->own_stats && !asks_engine)
        set->ops->own_stats(set, ret, retlimits, n);
    else if (set->limits.n)
        r = set->ops->snapshot(ctx, set, ret, retlimits, n);
    if (r < 0 && set_is_shared(set))
        return r;
    stats_add_counters(set, ret, retlimits, n);
    return r < 0 ? r : (int)set_listed_n(set);
}

int stats_read(weir_set *set, struct weir_set_stats *ret, struct weir_limit_stats *retlimits,
               uint32_t n, bool asks_engine)
{
    struct weir_limit_stats all[WEIR_LIMITS_MAX];
    int r;

    WEIR_INVARIANT(n <= set_listed_n(set));
    if (!set->limits.is_arranged)
        return stats_read_places(set, ret, retlimits, n, asks_engine);
    r = stats_read_places(set, ret, all, set->limits.n, asks_engine);
    for (uint32_t i = 0; i < n; i++)
        retlimits[i] = all[set_listed(set, i)];
    return r;
}

int weir_set_stats(weir_set *set, struct weir_set_stats *ret, struct weir_limit_stats *retlimits,
                   size_t limits_n)
{
    if (!set || !ret || (limits_n && !retlimits))
        return -EINVAL;
    if (ret->size < sizeof(*ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    return stats_read(set, ret, retlimits,
                      limits_n < set_listed_n(set) ? (uint32_t)limits_n : set_listed_n(set), true);
}

int weir_set_limit_gauges(weir_set *set, size_t limit, struct weir_limit_gauge *ret, size_t n)
{
    const struct weir_gauge *gauges;
    uint64_t values[WEIR_GAUGES_MAX];
    struct thread_ctx *ctx;
    uint32_t place;
    int gauges_n;

    set = set ? set_current(set) : NULL;
    if (!set || limit >= set_listed_n(set) || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    place = set_listed(set, (uint32_t)limit);
    if (!set->ops->observe || !set->limits.items[place].algorithm)
        return 0;
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    gauges_n = set->ops->observe(ctx, set, place, values);
    gauges = set->limits.items[place].algorithm->gauges;
    for (int i = 0; i < gauges_n && (size_t)i < n; i++)
        ret[i] = (struct weir_limit_gauge){.name = gauges[i].name,
                                           .doc = gauges[i].doc,
                                           .value = values[i],
                                           .type = gauges[i].type};
    return gauges_n;
}

int weir_set_lease_stats(weir_set *set, size_t limit, struct weir_lease_stats *ret)
{
    if (limit >= weir_set_limits(set) || !ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    return remote_leases_stats(set_newest(set), (uint32_t)limit, ret);
}

/* Returns the setting `window` of a limit, or 0. */
static uint64_t stats_window_ns(const struct limit *limit)
{
    const char *at = limit->settings_text;
    uint64_t window_ns = 0;

    for (uint32_t i = 0; i < limit->settings_n; i++) {
        const char *value = at + strlen(at) + 1;

        if (strcmp(at, "window") == 0 && units_parse(UNITS_DURATION, value, &window_ns) < 0)
            window_ns = 0;
        at = value + strlen(value) + 1;
    }
    return window_ns;
}

int weir_set_remaining(weir_set *set, const struct weir_request *request,
                       struct weir_remaining *ret, size_t n)
{
    struct acquire_op op = {.request = request_validate(request)};
    struct weir_remaining all[WEIR_LIMITS_MAX];
    uint32_t limits_n;
    int r;

    op.set = set = set ? set_current(set) : NULL;

    if (!set || !op.request || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    r = set->ops->identify ? set->ops->identify(&op) : 0;
    if (r < 0)
        return r;
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    limits_n = n < set->limits.n && !set->limits.is_arranged ? (uint32_t)n : set->limits.n;
    for (uint32_t i = 0; i < limits_n; i++) {
        const struct limit *limit = &set->limits.items[i];

        all[i] = (struct weir_remaining){.type = limit->type,
                                         .key = limit->key,
                                         .capacity = limit->capacity,
                                         .window_ns = stats_window_ns(limit)};
    }
    if (limits_n)
        r = set->ops->remaining(&op, all, limits_n);
    if (r == -ESTALE) /* of a reload that came meanwhile */
        return weir_set_remaining(set, request, ret, n);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < limits_n; i++)
        if (shadow_covers(&set->limits.items[i], shadow_number(op.request))) {
            all[i].available = all[i].capacity;
            all[i].more_after_ns = all[i].full_after_ns = 0;
        }
    for (uint32_t i = 0; i < n && i < set_listed_n(set); i++)
        ret[i] = all[set_listed(set, i)];
    return (int)set_listed_n(set);
}

int weir_set_ready_at(weir_set *set, const struct weir_request *request, uint64_t *ret_ns)
{
    struct acquire_op op = {0};
    const char *key;
    int r;

    op.set = set = set ? set_current(set) : NULL;
    op.request = request_validate(request);
    if (!set || !ret_ns || !op.request)
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    r = set->ops->identify ? set->ops->identify(&op) : 0;
    if (r == 0 && set->limits.n)
        r = acquire_within_find(&op);
    if (r == 0)
        r = request_resolve(set, op.request, PURPOSE_FORECAST, op.amounts, &key);
    if (r < 0)
        return r;
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    if (set->limits.n)
        set->ops->forecast(&op, 0, FORECAST_ANY_QUEUE);
    if (set_is_broken(set))
        return -EUCLEAN;
    *ret_ns = set->limits.n ? set_to_instance_ns(set, op.decision.forecast_ns)
                            : clock_now_ns(&set->w->clock);
    return 0;
}

/* ---- views, for balancers ---- */

/* Looks at a set of a kind that has no operation for it: its forecast, and what this process holds
 * there. */
static void stats_look_from_outside(struct acquire_op *op, struct set_look *ret)
{
    struct weir_set_stats stats = {0};
    const weir_set *set = op->set;
    const struct limit *limiting;

    for (uint32_t i = 0; i < set->limits.n && !ret->limit; i++)
        ret->limit = op->amounts[i] ? &set->limits.items[i] : NULL;
    set->ops->forecast(op, 0, FORECAST_SHORT_QUEUE); /* which leaves out what is in shadow */
    limiting = op->decision.limiting;
    ret->now_ns = op->decision.now_ns;
    ret->ready_ns = op->decision.forecast_ns;
    if (limiting && ret->ready_ns < WEIR_BLOCKED &&
        (limiting->type == WEIR_LIMIT_RESOURCE || ret->ready_ns <= ret->now_ns))
        ret->ready_ns = WEIR_BLOCKED;
    if (!ret->limit)
        return;
    if (set->ops->own_stats) {
        set->ops->own_stats(op->set, &stats, NULL, 0);
        stats_add_counters(op->set, &stats, NULL, 0);
    }
    ret->waiting = stats.waiting;
    ret->held = stats.held;
    if (ret->ready_ns <= ret->now_ns && ret->held < ret->limit->capacity)
        ret->available = ret->limit->capacity - ret->held;
}

static void stats_fill_view(const weir_set *set, const struct set_look *look, uint64_t now_ns,
                            struct weir_set_view *ret)
{
    ret->waiting = look->waiting;
    ret->held = look->held;
    ret->capacity = look->limit ? look->limit->capacity : UINT64_MAX;
    ret->available = look->limit ? look->available : UINT64_MAX;
    ret->ready_at_ns = look->ready_ns;
    if (look->ready_ns < WEIR_BLOCKED && look->ready_ns > look->now_ns)
        ret->ready_at_ns = set_to_instance_ns(set, look->ready_ns);
    if (look->ready_ns <= look->now_ns || ret->ready_at_ns < now_ns)
        ret->ready_at_ns = now_ns;
}

/* Looks at a set: what is there of all limits, and when those that may refuse the request grant. */
static void stats_look(struct acquire_op *op, struct set_look *ret)
{
    weir_set *set = op->set;
    struct set_look enforced = {.ready_ns = 0};

    if (!set->ops->look) {
        stats_look_from_outside(op, ret);
        return;
    }
    set->ops->look(op->ctx, set, op->amounts, ret);
    if (!set->limits.has_shadow)
        return;
    shadow_remove(set, shadow_number(op->request), op->amounts);
    if (!request_is_empty(set, op->amounts))
        set->ops->look(op->ctx, set, op->amounts, &enforced);
    ret->now_ns = enforced.now_ns;
    ret->ready_ns = enforced.ready_ns;
}

int stats_view(weir_set *set, const struct weir_request *request, uint64_t now_ns,
               struct weir_set_view *ret)
{
    struct acquire_op op = {.set = set, .request = request};
    struct set_look look = {.ready_ns = WEIR_NEVER};
    const char *key;

    ret->held = ret->waiting = ret->capacity = ret->available = 0;
    ret->ready_at_ns = WEIR_NEVER;
    if ((set->ops->identify && set->ops->identify(&op) < 0) ||
        request_resolve(set, request, PURPOSE_FORECAST, op.amounts, &key) < 0)
        return 0; /* it can never grant the request, or does not understand it */
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    if (request_is_empty(set, op.amounts))
        look.ready_ns = 0;
    else
        stats_look(&op, &look);
    if (!set_is_broken(set) && !set_is_faulty(set))
        stats_fill_view(set, &look, now_ns, ret);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Reads what the metrics of an instance are written of: its sets, pools and backends. */
#include "api/instance.h"
#include "api/metrics_text.h"
#include "api/pool.h"
#include "api/set_object.h"
#include "os/os.h"
#include "remote/remote.h"
#include <errno.h>

/* What was read; all of it is owned. */
struct metrics_reading {
    struct metrics metrics;
    struct metrics_set *sets;
    struct metrics_pick *picks;
    struct metrics_backend *backends;
};

static void metrics_free_set(const struct metrics_set *set)
{
    os_free((void *)(uintptr_t)set->limits);
    os_free((void *)(uintptr_t)set->gauges);
}

static void metrics_free(struct metrics_reading *reading)
{
    for (size_t i = 0; i < reading->metrics.sets_n; i++)
        metrics_free_set(&reading->sets[i]);
    os_free(reading->sets);
    os_free(reading->picks);
    os_free(reading->backends);
}

/* ---- sets ---- */

static size_t metrics_count_gauges(const weir_set *set)
{
    size_t n = 0;

    for (uint32_t i = 0; set->ops->observe && !set->is_keyed && i < set->limits.n; i++)
        if (set->limits.items[i].algorithm)
            n += set->limits.items[i].algorithm->gauges_n;
    return n;
}

/* The gauges of a new subject tell nothing, so a per-subject set has none here. */
static int metrics_read_gauges(weir_set *set, struct metrics_set *ret)
{
    size_t n = metrics_count_gauges(set);
    struct metrics_gauge *gauges = n ? os_alloc(n, sizeof(*gauges)) : NULL;

    if (n && !gauges)
        return -ENOMEM;
    ret->gauges = gauges;
    for (uint32_t i = 0; n && i < set_listed_n(set); i++) {
        struct weir_limit_gauge of_limit[WEIR_GAUGES_MAX];
        int r = weir_set_limit_gauges(set, i, of_limit, WEIR_GAUGES_MAX);

        if (r < 0)
            return r;
        for (int k = 0; k < r && ret->gauges_n < n; k++) /* a reload may have brought more */
            gauges[ret->gauges_n++] =
                (struct metrics_gauge){.limit = i,
                                       .name = of_limit[k].name,
                                       .value = of_limit[k].value,
                                       .is_duration = of_limit[k].type == WEIR_PARAMETER_DURATION};
    }
    return 0;
}

/* Reads a set. Returns 0; -ENOMEM; or 1: it cannot be read, as it is damaged or has no room for
 * another thread. */
static int metrics_read_set(weir_set *set, struct metrics_set *ret)
{
    struct weir_set_info info = {.size = sizeof(info)};
    struct weir_limit_stats *limits = NULL;
    uint32_t n = set_listed_n(set);
    int r;

    weir_set_info(set, &info);
    *ret = (struct metrics_set){.name = set_name(set),
                                .backend = set_is_shared(set) ? NULL : info.backend,
                                .is_unknown = set->ops->own_stats != NULL,
                                .users = METRICS_UNKNOWN,
                                .reachable = METRICS_UNKNOWN,
                                .wait_queue_age = METRICS_UNKNOWN,
                                .subjects.size = sizeof(ret->subjects)};
    if (set_is_shared(set) && !thread_ctx_get(set))
        return 1;
    if (n)
        limits = os_alloc(n, sizeof(*limits));
    if (n && !limits)
        return -ENOMEM;
    ret->limits = limits;
    ret->limits_n = n;
    r = stats_read(set, &ret->stats, limits, n, false);
    ret->has_subjects = r >= 0 && weir_set_subjects(set, &ret->subjects) == 1;
    if (r >= 0)
        r = weir_set_classes(set, ret->classes, WEIR_CLASSES_MAX);
    ret->classes_n = r > 0 ? (size_t)r : 0;
    if (r >= 0)
        r = metrics_read_gauges(set, ret);
    return r == -ENOMEM ? r : r < 0;
}

/* Reads all sets with names: those that there are now. They stay as long as the instance. */
static int metrics_read_sets(weir *w, struct metrics_reading *ret)
{
    weir_set **sets = NULL;
    int n = registry_named_sets(w, &sets), r = n < 0 ? n : 0;

    ret->sets = n > 0 ? os_alloc((size_t)n, sizeof(*ret->sets)) : NULL;
    if (n > 0 && !ret->sets)
        r = -ENOMEM;
    ret->metrics.sets = ret->sets;
    for (int i = 0; i < n && r == 0; i++) {
        weir_set *set = set_newest(sets[i]);

        if (set_is_removed(set))
            continue;
        r = metrics_read_set(set, &ret->sets[ret->metrics.sets_n++]);
        if (r > 0) { /* a 0 would look like a restart */
            metrics_free_set(&ret->sets[--ret->metrics.sets_n]);
            r = 0;
        }
    }
    os_free(sets);
    return r;
}

/* ---- pools and backends ---- */

/* Counts the sets of pools that pick, and reads them if there is room. */
static size_t metrics_each_pick(const weir *w, struct metrics_pick *ret)
{
    size_t n = 0;

    for (uint32_t i = 0; i < instance_of(w)->pools_n; i++) {
        const struct instance_pool *pool = registry_pool(w, i);

        if (pool->sets_n == 1 || !pool->plan.name || pool_is_removed(pool))
            continue;
        for (uint32_t k = 0; k < pool->sets_n; k++, n++)
            if (ret)
                ret[n] = (struct metrics_pick){.pool = pool->plan.name,
                                               .set = set_name(pool_set(pool, k)),
                                               .picks = pool_picks(pool, k)};
    }
    return n;
}

static size_t metrics_each_backend(const weir *w, struct metrics_backend *ret)
{
    size_t n = 0;

    for (const struct remote_engine *at = w->engines; at; at = at->next, n++)
        if (ret)
            ret[n] = (struct metrics_backend){
                .name = at->plan.name,
                .round_trips = atomic_load_explicit(&at->answers_n, memory_order_relaxed),
                .errors = atomic_load_explicit(&at->errors_n, memory_order_relaxed)};
    return n;
}

static int metrics_read_others(weir *w, struct metrics_reading *ret)
{
    struct metrics *metrics = &ret->metrics;
    int r = 0;

    pthread_mutex_lock(&w->lock);
    metrics->picks_n = metrics_each_pick(w, NULL);
    metrics->backends_n = metrics_each_backend(w, NULL);
    if (metrics->picks_n)
        ret->picks = os_alloc(metrics->picks_n, sizeof(*ret->picks));
    if (metrics->backends_n)
        ret->backends = os_alloc(metrics->backends_n, sizeof(*ret->backends));
    if ((metrics->picks_n && !ret->picks) || (metrics->backends_n && !ret->backends))
        r = -ENOMEM;
    if (r == 0 && ret->picks)
        metrics_each_pick(w, ret->picks);
    if (r == 0 && ret->backends)
        metrics_each_backend(w, ret->backends);
    pthread_mutex_unlock(&w->lock);
    metrics->picks = ret->picks;
    metrics->backends = ret->backends;
    return r;
}

int weir_metrics_write(weir *w, enum weir_metrics_format format,
                       int (*write)(void *userdata, const char *text, size_t n), void *userdata)
{
    struct metrics_reading reading = {.sets = NULL};
    int r;

    if (!w || !write || (format != WEIR_METRICS_OPENMETRICS && format != WEIR_METRICS_PROMETHEUS))
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    r = metrics_read_sets(w, &reading);
    if (r == 0)
        r = metrics_read_others(w, &reading);
    if (r == 0)
        r = metrics_text_write(&reading.metrics, format, write, userdata);
    metrics_free(&reading);
    return r;
}

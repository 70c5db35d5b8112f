/* SPDX-License-Identifier: MIT */
/* What a configuration means, as `weir check` says it. */
#include "check_summary.h"
#include "base/units.h"
#include "limit_type.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 80

static void print_limit(const struct weir_limit_stats *limit, const struct weir_setting *settings,
                        int n)
{
    printf("  %-8s  %-16s", limit_type_name(limit->type), limit->key);
    if (limit->algorithm)
        printf("  %s", limit->algorithm);
    for (int i = 0; i < n; i++)
        printf("  %s %s", settings[i].name, settings[i].value);
    putchar('\n');
}

static void json_limit(struct json *json, const struct weir_limit_stats *limit,
                       const struct weir_setting *settings, int n)
{
    json_object(json, NULL);
    json_text(json, "type", limit_type_name(limit->type));
    json_text(json, "key", limit->key);
    json_text(json, "algorithm", limit->algorithm);
    json_number(json, "capacity", limit->capacity);
    json_object(json, "settings");
    for (int i = 0; i < n; i++)
        json_text(json, settings[i].name, settings[i].value);
    json_end_object(json);
    json_end_object(json);
}

/* Prints the defaults of requests and the other settings of the set. */
static void print_defaults(const struct weir_set_info *info)
{
    char text[UNITS_TEXT_MAX];

    if (strcmp(info->backend, "thread") != 0)
        printf("  backend %s", info->backend);
    if (info->lifetime)
        printf("  lifetime %s", info->lifetime);
    if (info->timeout_ns != WEIR_FOREVER)
        printf("  timeout %s", units_format(UNITS_DURATION, info->timeout_ns, text));
    if (info->max_wait_ns != WEIR_FOREVER)
        printf("  max_wait %s", units_format(UNITS_DURATION, info->max_wait_ns, text));
    if (info->max_waiters != 0)
        printf("  max_waiters %u", info->max_waiters);
    if (info->flags & WEIR_SET_STRICT)
        printf("  strict");
    if (info->flags & WEIR_SET_UNFAIR)
        printf("  unfair");
    if (info->flags & WEIR_SET_FAIR_PER_LIMIT)
        printf("  fair per limit");
    if (info->flags & WEIR_SET_BOOTTIME)
        printf("  clock boottime");
    if (info->flags & WEIR_SET_HOLD_HISTOGRAM)
        printf("  hold_histogram");
}

/* Prints the bounds of a per-subject set. */
static void print_subjects(const struct weir_subjects_stats *subjects)
{
    char text[UNITS_TEXT_MAX];

    printf("  subjects  max %s", units_format(UNITS_AMOUNT, subjects->max, text));
    if (subjects->memory_max != 0)
        printf("  memory %s", units_format(UNITS_SIZE, subjects->memory_max, text));
    if (subjects->evict)
        printf("  evict %s", subjects->evict);
}

static void json_subjects(struct json *json, const struct weir_subjects_stats *subjects)
{
    json_object(json, "subjects");
    json_number(json, "max", subjects->max);
    if (subjects->memory_max != 0)
        json_number(json, "memory", subjects->memory_max);
    if (subjects->evict)
        json_text(json, "evict", subjects->evict);
    json_end_object(json);
}

/* Prints the classes of a set: priorities, the most urgent one first, or shares. */
static void print_classes(const struct weir_class_stats *classes, int n)
{
    printf(classes->weight != 0 ? "  shares" : "  priorities");
    for (int i = 0; i < n; i++)
        if (classes->weight != 0)
            printf(" %s: %llu", classes[i].name, (unsigned long long)classes[i].weight);
        else
            printf(" %s", classes[i].name);
}

static void json_classes(struct json *json, const struct weir_class_stats *classes, int n)
{
    json_array(json, "classes");
    for (int i = 0; i < n; i++) {
        json_object(json, NULL);
        json_text(json, "name", classes[i].name);
        if (classes[i].weight != 0)
            json_number(json, "weight", classes[i].weight);
        json_end_object(json);
    }
    json_end_array(json);
}

static void json_defaults(struct json *json, const struct weir_set_info *info)
{
    json_text(json, "backend", info->backend);
    if (info->lifetime)
        json_text(json, "lifetime", info->lifetime);
    if (info->timeout_ns != WEIR_FOREVER)
        json_number(json, "timeout_ns", info->timeout_ns);
    if (info->max_wait_ns != WEIR_FOREVER)
        json_number(json, "max_wait_ns", info->max_wait_ns);
    if (info->max_waiters != 0)
        json_number(json, "max_waiters", info->max_waiters);
    json_boolean(json, "strict", (info->flags & WEIR_SET_STRICT) != 0);
    json_boolean(json, "fair", (info->flags & WEIR_SET_UNFAIR) == 0);
    json_boolean(json, "per_limit", (info->flags & WEIR_SET_FAIR_PER_LIMIT) != 0);
    json_text(json, "clock", info->flags & WEIR_SET_BOOTTIME ? "boottime" : "monotonic");
    json_boolean(json, "hold_histogram", (info->flags & WEIR_SET_HOLD_HISTOGRAM) != 0);
}

/* Describes the set or pool that opens under this name. `json`: NULL for text. */
typedef int describe(struct json *json, const char *name, weir_pool *pool);

static void describe_limit(struct json *json, const weir_set *set, int number,
                           const struct weir_limit_stats *limit)
{
    struct weir_setting settings[SETTINGS_MAX];
    int n = weir_set_limit_settings(set, (size_t)number, settings, SETTINGS_MAX);

    n = n < SETTINGS_MAX ? n : SETTINGS_MAX;
    if (json)
        json_limit(json, limit, settings, n);
    else
        print_limit(limit, settings, n);
}

static int describe_set(struct json *json, const char *name, weir_pool *pool)
{
    weir_set *set = weir_pool_set(pool, 0);
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_set_info info = {.size = sizeof(info)};
    struct weir_subjects_stats subjects = {.size = sizeof(subjects)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    int r = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX), n = (int)weir_set_limits(set);
    int classes_n;

    if (r < 0 && r != -EHOSTUNREACH) /* no engine is asked */
        return r;
    weir_set_info(set, &info);
    weir_set_subjects(set, &subjects); /* nothing of a set that an engine keeps */
    subjects.max = info.subjects_max;
    classes_n = weir_set_classes(set, classes, WEIR_CLASSES_MAX);
    if (json) {
        json_object(json, NULL);
        json_text(json, "name", name);
        json_defaults(json, &info);
        if (info.subjects_max != 0)
            json_subjects(json, &subjects);
        if (classes_n > 0)
            json_classes(json, classes, classes_n);
        json_array(json, "limits");
    } else {
        printf("set %s%s", name, n == 0 ? ": no limits" : "");
        print_defaults(&info);
        if (info.subjects_max != 0)
            print_subjects(&subjects);
        if (classes_n > 0)
            print_classes(classes, classes_n);
        putchar('\n');
    }
    for (int i = 0; i < n; i++)
        describe_limit(json, set, i, &limits[i]);
    if (json) {
        json_end_array(json);
        json_end_object(json);
    }
    return 0;
}

static int describe_pool(struct json *json, const char *name, weir_pool *pool)
{
    const char *balancer = weir_pool_balancer(pool);
    size_t n = weir_pool_sets(pool);
    uint32_t flags = weir_pool_flags(pool);

    if (!json) {
        printf("pool %s%s%s%s%s:", name, balancer ? "  " : "", balancer ? balancer : "",
               flags & WEIR_POOL_TRY_NEXT ? "  try next" : "",
               flags & WEIR_POOL_WAIT_ANY ? "  wait any" : "");
        for (size_t i = 0; i < n; i++)
            printf(" %s", weir_set_name(weir_pool_set(pool, i)));
        putchar('\n');
        return 0;
    }
    json_object(json, NULL);
    json_text(json, "name", name);
    json_text(json, "balancer", balancer);
    json_text(json, "try", flags & WEIR_POOL_TRY_NEXT ? "next" : "one");
    json_text(json, "wait", flags & WEIR_POOL_WAIT_ANY ? "any" : "picked");
    json_array(json, "sets");
    for (size_t i = 0; i < n; i++)
        json_text(json, NULL, weir_set_name(weir_pool_set(pool, i)));
    json_end_array(json);
    json_end_object(json);
    return 0;
}

/* Prints the name if `weir exec` takes it. */
static int name_shared(struct json *json, const char *name, weir_pool *pool)
{
    bool is_shared = true;

    (void)json;
    for (size_t i = 0; i < weir_pool_sets(pool); i++) {
        struct weir_set_info info = {.size = sizeof(info)};

        weir_set_info(weir_pool_set(pool, i), &info);
        is_shared = is_shared && strcmp(info.backend, "thread") != 0;
    }
    if (is_shared)
        puts(name);
    return 0;
}

static int describe_all(struct json *json, weir *w, const char *const *names, int n,
                        const char *key, describe *describe_one)
{
    int r = 0;

    if (json)
        json_array(json, key);
    for (int i = 0; i < n && r == 0; i++) {
        weir_pool *pool = NULL;

        r = weir_pool_open(&pool, w, names[i], 0, NULL);
        if (r == 0)
            r = describe_one(json, names[i], pool);
        weir_pool_close(pool);
    }
    if (json)
        json_end_array(json);
    return r;
}

/* Describes all sets and pools. */
static int describe_everything(struct json *json, weir *w, describe *set, describe *pool)
{
    int sets_n = weir_sets(w, NULL, 0), pools_n = weir_pools(w, NULL, 0), r;
    const char **names = calloc((size_t)sets_n + (size_t)pools_n + 1, sizeof(*names));

    if (!names)
        return -ENOMEM;
    weir_sets(w, names, (size_t)sets_n);
    weir_pools(w, names + sets_n, (size_t)pools_n);
    r = describe_all(json, w, names, sets_n, "sets", set);
    if (r == 0)
        r = describe_all(json, w, names + sets_n, pools_n, "pools", pool);
    free(names);
    return r;
}

int check_summary(struct json *json, weir *w, const char *file)
{
    int sets_n = weir_sets(w, NULL, 0), pools_n = weir_pools(w, NULL, 0);

    if (!json)
        printf("%s: %d %s, %d %s\n", file, sets_n, sets_n == 1 ? "set" : "sets", pools_n,
               pools_n == 1 ? "pool" : "pools");
    return describe_everything(json, w, describe_set, describe_pool);
}

int check_names(weir *w)
{
    return describe_everything(NULL, w, name_shared, name_shared);
}

/* SPDX-License-Identifier: MIT */
/* The metrics of a snapshot: the list and its formats are the library's. */
#include "metrics.h"
#include "api/metrics_text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t count_gauges(const struct snapshot_set *set)
{
    size_t n = 0;

    for (size_t i = 0; i < set->limits_n; i++)
        n += set->limits[i].gauges_n;
    return n;
}

/* Borrows from the snapshot, but for the two arrays. Returns 0 or -ENOMEM. */
static int fill(struct metrics_set *ret, const struct snapshot_set *set)
{
    size_t gauges_n = count_gauges(set);
    struct weir_limit_stats *limits = calloc(set->limits_n + 1, sizeof(*limits));
    struct metrics_gauge *gauges = calloc(gauges_n + 1, sizeof(*gauges));
    bool waits = set->held_n < set->holders_n;

    *ret = (struct metrics_set){
        .name = set->name,
        .backend = set->process != 0 ? "thread" : set->engine,
        .process = set->process,
        .instance = set->instance,
        .of_engine = set->engine != NULL,
        .is_unknown = set->is_unknown,
        .has_subjects = set->has_subjects,
        .users = set->engine || set->process != 0 ? METRICS_UNKNOWN : set->users,
        .reachable = set->engine && set->info.subjects_max == 0 ? set->away == 0 : METRICS_UNKNOWN,
        .wait_queue_age = set->engine ? METRICS_UNKNOWN
                          : waits     ? set->holders[set->held_n].age_ns
                                      : 0,
        .stats = set->stats,
        .classes_n = set->classes_n,
        .subjects = set->subjects,
        .limits = limits,
        .limits_n = set->limits_n,
        .gauges = gauges};
    memcpy(ret->classes, set->classes, sizeof(ret->classes));
    if (!limits || !gauges)
        return -ENOMEM;
    for (size_t i = 0; i < set->limits_n; i++) {
        const struct snapshot_limit *limit = &set->limits[i];

        limits[i] = limit->stats;
        limits[i].key = limit->key;
        limits[i].algorithm = limit->algorithm;
        for (size_t k = 0; k < limit->gauges_n; k++)
            gauges[ret->gauges_n++] = (struct metrics_gauge){
                .limit = i,
                .name = limit->gauges[k].name,
                .value = limit->gauges[k].value,
                .is_duration = limit->gauges[k].type == WEIR_PARAMETER_DURATION};
    }
    return 0;
}

int metrics_write(const struct snapshot *snapshot, enum weir_metrics_format format,
                  int (*write)(void *userdata, const char *text, size_t n), void *userdata)
{
    struct metrics_set *sets = calloc(snapshot->sets_n + 1, sizeof(*sets));
    struct metrics metrics = {.sets = sets};
    int r = sets ? 0 : -ENOMEM;

    while (r == 0 && metrics.sets_n < snapshot->sets_n) {
        r = fill(&sets[metrics.sets_n], &snapshot->sets[metrics.sets_n]);
        metrics.sets_n++;
    }
    if (r == 0)
        r = metrics_text_write(&metrics, format, write, userdata);
    for (size_t i = 0; i < metrics.sets_n; i++) {
        free((void *)(uintptr_t)sets[i].limits);
        free((void *)(uintptr_t)sets[i].gauges);
    }
    free(sets);
    return r;
}

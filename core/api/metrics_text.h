/* SPDX-License-Identifier: MIT */
/*
 * Metrics as text, from what was read of sets. The library writes those of an instance by it, and
 * the command, which is compiled with it, those of the sets that it has inspected. So there is one
 * list of metrics.
 */
#ifndef WEIR_CORE_API_METRICS_TEXT_H
#define WEIR_CORE_API_METRICS_TEXT_H

#include <stdbool.h>
#include <weir/metrics.h>
#include <weir/set.h>

/* A value that is not known, and is left out. */
#define METRICS_UNKNOWN UINT64_MAX

/* A gauge that the algorithm of a limit reports. */
struct metrics_gauge {
    size_t limit;
    const char *name;
    uint64_t value;
    bool is_duration;
};

/* What is known of a set. */
struct metrics_set {
    const char *name;
    const char *backend; /* a label; NULL: processes share it, and it has none */
    uint32_t process;    /* labels, of a set that is published; 0: it has none */
    uint32_t instance;
    bool of_engine;  /* of the statistics, only what an engine says of all processes */
    bool is_unknown; /* what waits, is held and is available now */
    bool has_subjects;
    uint64_t users;          /* processes; METRICS_UNKNOWN */
    uint64_t reachable;      /* 1: the engine can be asked; METRICS_UNKNOWN: there is none */
    uint64_t wait_queue_age; /* ns; METRICS_UNKNOWN */
    struct weir_set_stats stats;
    struct weir_subjects_stats subjects; /* if it has them */
    const struct weir_limit_stats *limits;
    size_t limits_n;
    const struct metrics_gauge *gauges;
    size_t gauges_n;
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    size_t classes_n;
};

/* How often a set was picked from a pool. */
struct metrics_pick {
    const char *pool, *set;
    uint64_t picks;
};

/* What a backend was asked for. */
struct metrics_backend {
    const char *name;
    uint64_t round_trips, errors;
};

struct metrics {
    const struct metrics_set *sets;
    const struct metrics_pick *picks;
    const struct metrics_backend *backends;
    size_t sets_n, picks_n, backends_n;
};

/* Writes all metrics; those that nothing is known of as well, without samples. Returns as
 * weir_metrics_write() does. */
int metrics_text_write(const struct metrics *metrics, enum weir_metrics_format format,
                       int (*write)(void *userdata, const char *text, size_t n), void *userdata);

#endif

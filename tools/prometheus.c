/* SPDX-License-Identifier: MIT */
/* Writes a snapshot in the text format of Prometheus. All samples of a metric follow its HELP and
 * TYPE lines; durations are in seconds. */
#include "prometheus.h"
#include "limit_type.h"
#include "time_text.h"
#include "utf8.h"
#include <inttypes.h>
#include <stddef.h>

/* A field of struct weir_set_stats. Metrics with one name are adjacent and differ in a label. */
struct set_metric {
    const char *name, *type, *help;
    const char *reason; /* or NULL */
    size_t at;
};

#define SET(field) offsetof(struct weir_set_stats, field)

static const char refusals[] = "Requests that were refused.";

static const struct set_metric set_metrics[] = {
    {"weir_grants_total", "counter", "Requests that were granted.", NULL, SET(granted)},
    {"weir_grants_taken_total", "counter", "Granted requests that had nothing to release.", NULL,
     SET(taken)},
    {"weir_grants_waited_total", "counter", "Granted requests that had to wait.", NULL,
     SET(granted_waited)},
    {"weir_refusals_total", "counter", refusals, "busy", SET(refused_busy)},
    {"weir_refusals_total", "counter", refusals, "max_wait", SET(refused_max_wait)},
    {"weir_refusals_total", "counter", refusals, "full", SET(refused_full)},
    {"weir_refusals_total", "counter", refusals, "impossible", SET(refused_impossible)},
    {"weir_refusals_total", "counter", refusals, "deadlock", SET(refused_deadlock)},
    {"weir_refusals_total", "counter", refusals, "unknown", SET(refused_unknown)},
    {"weir_timeouts_total", "counter", "Requests that waited until their timeout.", NULL,
     SET(timed_out)},
    {"weir_cancellations_total", "counter", "Requests that were canceled.", NULL, SET(canceled)},
    {"weir_releases_total", "counter", "Acquisitions that were released.", NULL, SET(released)},
    {"weir_refunds_total", "counter", "Releases that refunded a part of a rate or call.", NULL,
     SET(refunded)},
    {"weir_overuses_total", "counter", "Reports of use beyond the amount granted.", NULL,
     SET(overused)},
    {"weir_missing_updates_total", "counter", "Releases without a report of what was used.", NULL,
     SET(missing_update)},
    {"weir_waiting", "gauge", "Requests that wait.", NULL, SET(waiting)},
    {"weir_held", "gauge", "Acquisitions that are held.", NULL, SET(held)},
};

/* A field of struct weir_limit_stats, or of struct weir_subjects_stats. */
struct metric {
    const char *name, *type, *help;
    size_t at;
};

#define LIMIT(field) offsetof(struct weir_limit_stats, field)

static const struct metric limit_metrics[] = {
    {"weir_limit_capacity", "gauge", "The largest amount that can be granted.", LIMIT(capacity)},
    {"weir_limit_available", "gauge", "Units that are available.", LIMIT(available)},
    {"weir_limit_held", "gauge", "Units of a counted resource that are held.", LIMIT(held)},
    {"weir_limit_granted_total", "counter", "Units that were granted.", LIMIT(granted)},
    {"weir_limit_refused_total", "counter", "Requests that were refused because of this limit.",
     LIMIT(refused)},
    {"weir_limit_refunded_total", "counter", "Units that were refunded.", LIMIT(refunded)},
    {"weir_limit_overused_total", "counter", "Units that were used beyond what was granted.",
     LIMIT(overused)},
    {"weir_limit_leased", "gauge", "Units that threads have taken ahead of use.", LIMIT(leased)},
};

#define SUBJECTS(field) offsetof(struct weir_subjects_stats, field)

static const struct metric subject_metrics[] = {
    {"weir_subjects", "gauge", "Subjects of a per-subject set that are known.", SUBJECTS(known)},
    {"weir_subjects_live", "gauge", "Known subjects that need more than a word.", SUBJECTS(live)},
    {"weir_subjects_room", "gauge", "Subjects that there is room for.", SUBJECTS(room)},
    {"weir_subjects_memory_bytes", "gauge", "Memory of a set's subjects.", SUBJECTS(memory)},
    {"weir_subjects_forgotten_total", "counter",
     "Subjects that were forgotten, with limits as good as new.", SUBJECTS(forgotten)},
    {"weir_subjects_evicted_total", "counter", "Subjects that were evicted for others.",
     SUBJECTS(evicted)},
    {"weir_subjects_refused_total", "counter",
     "Requests refused for lack of room for their subject.", SUBJECTS(refused)},
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t field(const void *stats, size_t at)
{
    return *(const uint64_t *)(const void *)((const char *)stats + at);
}

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes a label in UTF-8; an invalid byte becomes U+FFFD. */
static void write_label(FILE *out, const char *name, const char *value)
{
    const unsigned char *at = (const unsigned char *)value;

    fprintf(out, "%s=\"", name);
    while (*at != '\0') {
        size_t length = utf8_sequence(at);

        if (length == 0)
            fputs("\xef\xbf\xbd", out);
        else if (*at == '\n')
            fputs("\\n", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else
            fwrite(at, 1, length, out);
        at += length != 0 ? length : 1;
    }
    fputc('"', out);
}

/* A set that an engine keeps also has the label `backend`: a shared set may have its name. */
static void write_set_labels(FILE *out, const struct snapshot_set *set)
{
    write_label(out, "set", set->name);
    if (set->engine) {
        fputc(',', out);
        write_label(out, "backend", set->engine);
    }
}

/* Returns whether the metric is known of a set that an engine keeps, of all processes. */
static bool is_known_of_engine(const struct snapshot_set *set, size_t at)
{
    return !set->is_unknown &&
           (at == SET(engine_granted) || at == SET(waiting) || at == SET(engine_held));
}

static void write_set_sample(FILE *out, const struct snapshot_set *set,
                             const struct set_metric *metric)
{
    size_t at = metric->at;

    if (set->engine && at == SET(granted))
        at = SET(engine_granted);
    else if (set->engine && at == SET(held))
        at = SET(engine_held);
    if (set->engine && !is_known_of_engine(set, at))
        return;
    fprintf(out, "%s{", metric->name);
    write_set_labels(out, set);
    if (metric->reason)
        fprintf(out, ",reason=\"%s\"", metric->reason);
    fprintf(out, "} %" PRIu64 "\n", field(&set->stats, at));
}

/* Returns how many metrics share the name of the first. */
static size_t write_set_metric(FILE *out, const struct snapshot *snapshot,
                               const struct set_metric *metric, size_t left)
{
    size_t n = 1;

    while (n < left && metric[n].name == metric[0].name)
        n++;
    write_head(out, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < snapshot->sets_n; i++)
        for (size_t k = 0; k < n; k++)
            write_set_sample(out, &snapshot->sets[i], &metric[k]);
    return n;
}

static void write_limit_sample(FILE *out, const struct snapshot_set *set, size_t i,
                               const struct metric *metric)
{
    const struct snapshot_limit *limit = &set->limits[i];
    bool is_now = metric->at == LIMIT(available) || metric->at == LIMIT(held);

    if (set->engine && metric->at != LIMIT(capacity) && (!is_now || set->is_unknown))
        return;
    fprintf(out, "%s{", metric->name);
    write_set_labels(out, set);
    fprintf(out, ",limit=\"%zu\",type=\"%s\",", i, limit_type_name(limit->stats.type));
    write_label(out, "key", limit->key);
    fputc(',', out);
    write_label(out, "algorithm", limit->algorithm ? limit->algorithm : "");
    fprintf(out, "} %" PRIu64 "\n", field(&limit->stats, metric->at));
}

static void write_limit_metric(FILE *out, const struct snapshot *snapshot,
                               const struct metric *metric)
{
    write_head(out, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < snapshot->sets_n; i++)
        for (size_t k = 0; k < snapshot->sets[i].limits_n; k++)
            write_limit_sample(out, &snapshot->sets[i], k, metric);
}

static void write_subject_metric(FILE *out, const struct snapshot *snapshot,
                                 const struct metric *metric)
{
    write_head(out, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        const struct snapshot_set *set = &snapshot->sets[i];

        if (!set->has_subjects)
            continue;
        fprintf(out, "%s{", metric->name);
        write_label(out, "set", set->name);
        fprintf(out, "} %" PRIu64 "\n", field(&set->subjects, metric->at));
    }
}

/* ---- durations ---- */

static void write_seconds(FILE *out, const char *name, const struct snapshot_set *set, uint64_t ns)
{
    char text[TIME_TEXT_MAX];

    fprintf(out, "%s{", name);
    write_label(out, "set", set->name);
    fprintf(out, "} %s\n", time_text_seconds(ns, text));
}

/* Bucket i holds waits below 2^i µs, the last all others. */
static void write_histogram(FILE *out, const struct snapshot_set *set)
{
    char text[TIME_TEXT_MAX];
    uint64_t n = 0;

    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++) {
        n += set->stats.wait_histogram[i];
        fputs("weir_wait_seconds_bucket{", out);
        write_label(out, "set", set->name);
        fprintf(out, ",le=\"%s\"} %" PRIu64 "\n",
                i + 1 < WEIR_WAIT_BUCKETS ? time_text_seconds(UINT64_C(1000) << i, text) : "+Inf",
                n);
    }
    write_seconds(out, "weir_wait_seconds_sum", set, set->stats.wait_ns_sum);
    fputs("weir_wait_seconds_count{", out);
    write_label(out, "set", set->name);
    fprintf(out, "} %" PRIu64 "\n", n);
}

/* Of shared sets: an engine does not measure how long requests wait. */
static void write_spans(FILE *out, const struct snapshot *snapshot)
{
    write_head(out, "weir_wait_seconds", "histogram", "How long granted requests had waited.");
    for (size_t i = 0; i < snapshot->sets_n; i++)
        if (!snapshot->sets[i].engine)
            write_histogram(out, &snapshot->sets[i]);
    write_head(out, "weir_wait_max_seconds", "gauge", "The longest wait of a granted request.");
    for (size_t i = 0; i < snapshot->sets_n; i++)
        if (!snapshot->sets[i].engine)
            write_seconds(out, "weir_wait_max_seconds", &snapshot->sets[i],
                          snapshot->sets[i].stats.wait_ns_max);
    write_head(out, "weir_wait_queue_age_seconds", "gauge",
               "How long the first waiter has been waiting; 0 without waiters.");
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        const struct snapshot_set *set = &snapshot->sets[i];

        if (!set->engine)
            write_seconds(out, "weir_wait_queue_age_seconds", set,
                          set->held_n < set->holders_n ? set->holders[set->held_n].age_ns : 0);
    }
}

static void write_users(FILE *out, const struct snapshot *snapshot)
{
    write_head(out, "weir_users", "gauge", "Processes that take part in a set.");
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        if (snapshot->sets[i].engine)
            continue;
        fputs("weir_users{", out);
        write_label(out, "set", snapshot->sets[i].name);
        fprintf(out, "} %" PRIu32 "\n", snapshot->sets[i].users);
    }
}

static void write_reachable(FILE *out, const struct snapshot *snapshot)
{
    write_head(out, "weir_reachable", "gauge", "Whether the engine that keeps a set can be asked.");
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        if (!snapshot->sets[i].engine || snapshot->sets[i].info.subjects_max != 0)
            continue;
        fputs("weir_reachable{", out);
        write_set_labels(out, &snapshot->sets[i]);
        fprintf(out, "} %d\n", snapshot->sets[i].away == 0);
    }
}

void prometheus_write(FILE *out, const struct snapshot *snapshot)
{
    for (size_t i = 0; i < LENGTH(set_metrics);)
        i += write_set_metric(out, snapshot, &set_metrics[i], LENGTH(set_metrics) - i);
    write_users(out, snapshot);
    write_reachable(out, snapshot);
    write_spans(out, snapshot);
    for (size_t i = 0; i < LENGTH(subject_metrics); i++)
        write_subject_metric(out, snapshot, &subject_metrics[i]);
    for (size_t i = 0; i < LENGTH(limit_metrics); i++)
        write_limit_metric(out, snapshot, &limit_metrics[i]);
}

/* SPDX-License-Identifier: MIT */
/* The list of metrics, and its two text formats. All samples of a metric follow its name, type and
 * help, so the list is walked once, and for each metric all that it is known of. */
#include "api/metrics_text.h"
#include "base/text_out.h"
#include "base/utf8.h"
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

/* What a metric is known of; and how it is read, if not as a number from a struct. */
enum scope {
    OF_SET,       /* a field of struct metrics_set */
    OF_STATS,     /* a field of struct weir_set_stats */
    OF_WAITS,     /* the histogram of waits there */
    OF_HOLDS,     /* and that of holds, if any was counted */
    OF_CLASS,     /* a field of struct weir_class_stats */
    OF_LIMIT,     /* a field of struct weir_limit_stats */
    OF_GAUGES,    /* of limits: what algorithms report as an amount */
    OF_DURATIONS, /* the same as a duration */
    OF_SUBJECTS,  /* a field of struct weir_subjects_stats */
    OF_PICK,      /* a field of struct metrics_pick */
    OF_BACKEND    /* a field of struct metrics_backend */
};

/* Which of the statistics an engine tells; else another field of them. */
enum { ENGINE_NOT = 0, ENGINE_ALWAYS = 1, ENGINE_IF_KNOWN = 2 };

/* A metric, or of one with several causes, one of these: they are adjacent. */
struct metric {
    const char *name; /* without the suffix of counters, `_total` */
    const char *type; /* "counter", "gauge" or "histogram" */
    const char *unit; /* the name ends with it; NULL: none. Of `seconds`, fields are in ns */
    const char *help;
    const char *cause; /* NULL: the metric has no causes */
    size_t at;
    enum scope scope;
    uint32_t engine; /* ENGINE_*, or the field of the statistics that an engine tells in place */
};

#define SET(field)      offsetof(struct metrics_set, field)
#define STATS(field)    offsetof(struct weir_set_stats, field)
#define LIMIT(field)    offsetof(struct weir_limit_stats, field)
#define SUBJECTS(field) offsetof(struct weir_subjects_stats, field)
#define COUNTER         "counter", NULL
#define GAUGE           "gauge", NULL

#define REFUSED(cause, field)                                                                      \
    {                                                                                              \
        "weir_refusals", COUNTER, "Requests that were refused.", cause, STATS(field), OF_STATS, 0  \
    }
#define COUNT(name, help, field)                                                                   \
    {                                                                                              \
        "weir_" name, COUNTER, help, NULL, STATS(field), OF_STATS, ENGINE_NOT                      \
    }
#define OF_LIMITS(name, type, help, field, engine)                                                 \
    {                                                                                              \
        "weir_limit_" name, type, help, NULL, LIMIT(field), OF_LIMIT, engine                       \
    }
#define OF_CLASSES(name, type, help, field)                                                        \
    {                                                                                              \
        "weir_class_" name, type, help, NULL, offsetof(struct weir_class_stats, field), OF_CLASS,  \
            0                                                                                      \
    }
#define SUBJECT(name, type, help, field)                                                           \
    {                                                                                              \
        "weir_subjects" name, type, help, NULL, SUBJECTS(field), OF_SUBJECTS, 0                    \
    }

static const struct metric metrics_list[] = {
    {"weir_grants", COUNTER, "Requests that were granted.", NULL, STATS(granted), OF_STATS,
     STATS(engine_granted)},
    COUNT("grants_taken", "Granted requests that had nothing to release.", taken),
    COUNT("grants_waited", "Granted requests that had to wait.", granted_waited),
    COUNT("grants_alone", "Requests granted while the engine of the set was away.", granted_alone),
    REFUSED("busy", refused_busy),
    REFUSED("max_wait", refused_max_wait),
    REFUSED("full", refused_full),
    REFUSED("impossible", refused_impossible),
    REFUSED("deadlock", refused_deadlock),
    REFUSED("unknown", refused_unknown),
    COUNT("timeouts", "Requests that waited until their timeout.", timed_out),
    COUNT("cancellations", "Requests that were canceled.", canceled),
    COUNT("releases", "Acquisitions that were released.", released),
    COUNT("refunds", "Releases that refunded a part of a rate or call.", refunded),
    COUNT("overuses", "Reports of use beyond the amount granted.", overused),
    COUNT("missing_updates", "Releases without a report of what was used.", missing_update),
    COUNT("overheld", "Acquisitions that were held longer than max_hold.", overheld),
    COUNT("revoked", "Acquisitions that were revoked, as they were held too long.", revoked),
    {"weir_waiting", GAUGE, "Requests that wait.", NULL, STATS(waiting), OF_STATS, STATS(waiting)},
    {"weir_held", GAUGE, "Acquisitions that are held.", NULL, STATS(held), OF_STATS,
     STATS(engine_held)},
    OF_CLASSES("waiting", GAUGE, "Requests of a class that wait.", waiting),
    OF_CLASSES("held", GAUGE, "Acquisitions of a class that are held.", held),
    OF_CLASSES("grants", COUNTER, "Requests of a class that were granted.", granted),
    OF_CLASSES("grants_waited", COUNTER, "Granted requests of a class that had to wait.",
               granted_waited),
    OF_CLASSES("refusals", COUNTER, "Requests of a class that were refused.", refused),
    OF_CLASSES("timeouts", COUNTER, "Requests of a class that waited until their timeout.",
               timed_out),
    {"weir_class_wait_seconds", "counter", "seconds",
     "How long granted requests of a class had waited, together.", NULL,
     offsetof(struct weir_class_stats, wait_ns_sum), OF_CLASS, 0},
    {"weir_nameless", GAUGE, "Whether the file of a shared set is gone, though it is in use.", NULL,
     STATS(nameless), OF_STATS, ENGINE_NOT},
    {"weir_users", GAUGE, "Processes that take part in a set.", NULL, SET(users), OF_SET, 0},
    {"weir_reachable", GAUGE, "Whether the engine that keeps a set can be asked.", NULL,
     SET(reachable), OF_SET, 0},
    {"weir_wait_seconds", "histogram", "seconds", "How long granted requests had waited.", NULL, 0,
     OF_WAITS, 0},
    {"weir_wait_max_seconds", "gauge", "seconds", "The longest wait of a granted request.", NULL,
     STATS(wait_ns_max), OF_STATS, ENGINE_NOT},
    {"weir_hold_seconds", "histogram", "seconds",
     "How long acquisitions were held, of sets that count it.", NULL, 0, OF_HOLDS, 0},
    {"weir_wait_queue_age_seconds", "gauge", "seconds",
     "How long the first waiter has been waiting; 0 without waiters.", NULL, SET(wait_queue_age),
     OF_SET, 0},
    SUBJECT("", GAUGE, "Subjects of a per-subject set that are known.", known),
    SUBJECT("_live", GAUGE, "Known subjects that need more than a word.", live),
    SUBJECT("_room", GAUGE, "Subjects that there is room for.", room),
    {"weir_subjects_memory_bytes", "gauge", "bytes", "Memory of a set's subjects.", NULL,
     SUBJECTS(memory), OF_SUBJECTS, 0},
    SUBJECT("_forgotten", COUNTER, "Subjects that were forgotten, with limits as good as new.",
            forgotten),
    SUBJECT("_evicted", COUNTER, "Subjects that were evicted for others.", evicted),
    SUBJECT("_refused", COUNTER, "Requests refused for lack of room for their subject.", refused),
    OF_LIMITS("capacity", GAUGE, "The largest amount that can be granted.", capacity,
              ENGINE_ALWAYS),
    OF_LIMITS("available", GAUGE, "Units that are available.", available, ENGINE_IF_KNOWN),
    OF_LIMITS("held", GAUGE, "Units of a resource that are held.", held, ENGINE_IF_KNOWN),
    OF_LIMITS("granted", COUNTER, "Units that were granted.", granted, ENGINE_NOT),
    OF_LIMITS("refused", COUNTER, "Requests that were refused because of this limit.", refused,
              ENGINE_NOT),
    OF_LIMITS("would_refuse", COUNTER,
              "Requests that this limit would have refused or delayed if it were enforced.",
              would_refuse, ENGINE_NOT),
    OF_LIMITS("refunded", COUNTER, "Units that were refunded.", refunded, ENGINE_NOT),
    OF_LIMITS("overused", COUNTER, "Units that were used beyond what was granted.", overused,
              ENGINE_NOT),
    OF_LIMITS("leased", GAUGE, "Units that threads or processes have taken ahead of use.", leased,
              ENGINE_NOT),
    {"weir_limit_reported", GAUGE, "What the algorithm of a limit reports of itself.", NULL, 0,
     OF_GAUGES, 0},
    {"weir_limit_reported_seconds", "gauge", "seconds",
     "What the algorithm of a limit reports of itself, as a duration.", NULL, 0, OF_DURATIONS, 0},
    {"weir_pool_picks", COUNTER, "How often a set was picked from a pool of several.", NULL,
     offsetof(struct metrics_pick, picks), OF_PICK, 0},
    {"weir_backend_round_trips", COUNTER, "Requests that the engine of a backend answered.", NULL,
     offsetof(struct metrics_backend, round_trips), OF_BACKEND, 0},
    {"weir_backend_errors", COUNTER, "Requests that the engine of a backend did not answer.", NULL,
     offsetof(struct metrics_backend, errors), OF_BACKEND, 0},
};

#define METRICS_N (sizeof(metrics_list) / sizeof(*metrics_list))

/* ---- pieces ---- */

static uint64_t metrics_field(const void *of, size_t at)
{
    return *(const uint64_t *)(const void *)((const char *)of + at);
}

/* Writes a duration in seconds, exactly. */
static void metrics_seconds(struct text_out *out, uint64_t ns)
{
    uint64_t part = NS_PER_S / 10, rest = ns % NS_PER_S;

    text_out_number(out, ns / NS_PER_S);
    if (rest)
        text_out_char(out, '.');
    for (; rest; rest %= part, part /= 10)
        text_out_char(out, (char)('0' + rest / part));
}

/* Writes a value of a label in UTF-8; an invalid byte becomes U+FFFD. */
static void metrics_label(struct text_out *out, const char *name, const char *value)
{
    size_t left = strlen(value), valid = utf8_valid_length(value, left);

    text_out_string(out, name);
    text_out_string(out, "=\"");
    for (; left; value++, left--) {
        if (!valid) {
            text_out_string(out, "\xef\xbf\xbd");
            valid = utf8_valid_length(value + 1, left - 1);
            continue;
        }
        valid--;
        if (*value == '"' || *value == '\\' || *value == '\n')
            text_out_char(out, '\\');
        text_out_char(out, (char)(*value == '\n' ? 'n' : *value));
    }
    text_out_char(out, '"');
}

/* Begins a sample: its name and the brace of its labels. */
static void metrics_sample(struct text_out *out, const struct metric *metric, const char *suffix)
{
    text_out_string(out, metric->name);
    text_out_string(out, *metric->type == 'c' ? "_total" : suffix);
    text_out_char(out, '{');
}

/* Ends a sample. */
static void metrics_value(struct text_out *out, const struct metric *metric, uint64_t value)
{
    text_out_string(out, "} ");
    if (metric->unit && strcmp(metric->unit, "seconds") == 0)
        metrics_seconds(out, value);
    else
        text_out_number(out, value);
    text_out_char(out, '\n');
}

static void metrics_set_labels(struct text_out *out, const struct metrics_set *set)
{
    metrics_label(out, "set", set->name);
    if (set->backend)
        metrics_label(out, ",backend", set->backend);
    if (set->process) {
        text_out_string(out, ",pid=\"");
        text_out_number(out, set->process);
        text_out_string(out, "\",number=\"");
        text_out_number(out, set->instance);
        text_out_char(out, '"');
    }
}

static void metrics_limit_labels(struct text_out *out, const struct metrics_set *set, size_t i)
{
    static const char *const types[] = {
        [WEIR_LIMIT_RATE] = "rate", [WEIR_LIMIT_CALL] = "call", [WEIR_LIMIT_RESOURCE] = "resource"};
    const struct weir_limit_stats *limit = &set->limits[i];

    metrics_set_labels(out, set);
    text_out_string(out, ",limit=\"");
    text_out_number(out, i);
    text_out_string(out, "\",type=\"");
    text_out_string(out, types[limit->type]);
    text_out_char(out, '"');
    metrics_label(out, ",key", limit->key);
    metrics_label(out, ",algorithm", limit->algorithm ? limit->algorithm : "");
}

/* ---- samples of a metric ---- */

static void metrics_of_set(struct text_out *out, const struct metric *metric,
                           const struct metrics_set *set)
{
    const void *of = metric->scope == OF_SET        ? (const void *)set
                     : metric->scope == OF_SUBJECTS ? (const void *)&set->subjects
                                                    : (const void *)&set->stats;
    size_t at = metric->at;

    if (metric->scope == OF_SUBJECTS && !set->has_subjects)
        return;
    if (metric->scope == OF_STATS && set->of_engine) {
        if (!metric->engine || set->is_unknown)
            return;
        at = metric->engine;
    }
    if (metric->scope == OF_SET && metrics_field(of, at) == METRICS_UNKNOWN)
        return;
    metrics_sample(out, metric, "");
    metrics_set_labels(out, set);
    if (metric->cause)
        metrics_label(out, ",reason", metric->cause);
    metrics_value(out, metric, metrics_field(of, at));
}

/* Bucket i of a histogram has times below 2^i us, the last all others. An engine measures none. */
static void metrics_times(struct text_out *out, const struct metric *metric,
                          const struct metrics_set *set, const uint64_t *histogram, uint64_t ns_sum)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++) {
        n += histogram[i];
        metrics_sample(out, metric, "_bucket");
        metrics_set_labels(out, set);
        text_out_string(out, ",le=\"");
        if (i + 1 < WEIR_WAIT_BUCKETS)
            metrics_seconds(out, UINT64_C(1000) << i);
        else
            text_out_string(out, "+Inf");
        text_out_string(out, "\"} ");
        text_out_number(out, n);
        text_out_char(out, '\n');
    }
    metrics_sample(out, metric, "_sum");
    metrics_set_labels(out, set);
    metrics_value(out, metric, ns_sum);
    metrics_sample(out, metric, "_count");
    metrics_set_labels(out, set);
    text_out_string(out, "} ");
    text_out_number(out, n);
    text_out_char(out, '\n');
}

static void metrics_waits(struct text_out *out, const struct metric *metric,
                          const struct metrics_set *set)
{
    if (!set->of_engine)
        metrics_times(out, metric, set, set->stats.wait_histogram, set->stats.wait_ns_sum);
}

static void metrics_holds(struct text_out *out, const struct metric *metric,
                          const struct metrics_set *set)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        n += set->stats.hold_histogram[i];
    if (n)
        metrics_times(out, metric, set, set->stats.hold_histogram, set->stats.hold_ns_sum);
}

static void metrics_of_limits(struct text_out *out, const struct metric *metric,
                              const struct metrics_set *set)
{
    bool is_known = metric->engine == ENGINE_IF_KNOWN
                        ? !set->is_unknown
                        : !set->of_engine || metric->engine == ENGINE_ALWAYS;

    for (size_t i = 0; is_known && i < set->limits_n; i++) {
        metrics_sample(out, metric, "");
        metrics_limit_labels(out, set, i);
        metrics_value(out, metric, metrics_field(&set->limits[i], metric->at));
    }
}

static void metrics_of_classes(struct text_out *out, const struct metric *metric,
                               const struct metrics_set *set)
{
    for (size_t i = 0; i < set->classes_n; i++) {
        metrics_sample(out, metric, "");
        metrics_set_labels(out, set);
        metrics_label(out, ",class", set->classes[i].name);
        metrics_value(out, metric, metrics_field(&set->classes[i], metric->at));
    }
}

static void metrics_of_gauges(struct text_out *out, const struct metric *metric,
                              const struct metrics_set *set)
{
    for (size_t i = 0; i < set->gauges_n; i++) {
        const struct metrics_gauge *gauge = &set->gauges[i];

        if (gauge->is_duration != (metric->scope == OF_DURATIONS))
            continue;
        metrics_sample(out, metric, "");
        metrics_limit_labels(out, set, gauge->limit);
        metrics_label(out, ",gauge", gauge->name);
        metrics_value(out, metric, gauge->value);
    }
}

static void metrics_of_sets(struct text_out *out, const struct metric *metric,
                            const struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->sets_n; i++) {
        const struct metrics_set *set = &metrics->sets[i];

        if (metric->scope == OF_WAITS)
            metrics_waits(out, metric, set);
        else if (metric->scope == OF_HOLDS)
            metrics_holds(out, metric, set);
        else if (metric->scope == OF_CLASS)
            metrics_of_classes(out, metric, set);
        else if (metric->scope == OF_LIMIT)
            metrics_of_limits(out, metric, set);
        else if (metric->scope == OF_GAUGES || metric->scope == OF_DURATIONS)
            metrics_of_gauges(out, metric, set);
        else
            metrics_of_set(out, metric, set);
    }
}

static void metrics_of_picks(struct text_out *out, const struct metric *metric,
                             const struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->picks_n; i++) {
        metrics_sample(out, metric, "");
        metrics_label(out, "pool", metrics->picks[i].pool);
        metrics_label(out, ",set", metrics->picks[i].set);
        metrics_value(out, metric, metrics_field(&metrics->picks[i], metric->at));
    }
}

static void metrics_of_backends(struct text_out *out, const struct metric *metric,
                                const struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->backends_n; i++) {
        metrics_sample(out, metric, "");
        metrics_label(out, "backend", metrics->backends[i].name);
        metrics_value(out, metric, metrics_field(&metrics->backends[i], metric->at));
    }
}

/* ---- formats ---- */

static void metrics_line(struct text_out *out, const char *word, const struct metric *metric,
                         const char *suffix, const char *text)
{
    text_out_string(out, word);
    text_out_string(out, metric->name);
    text_out_string(out, suffix);
    text_out_char(out, ' ');
    text_out_string(out, text);
    text_out_char(out, '\n');
}

/* In OpenMetrics the suffix of a counter is not a part of the name of the metric. */
static void metrics_head(struct text_out *out, const struct metric *metric,
                         enum weir_metrics_format format)
{
    bool is_open = format == WEIR_METRICS_OPENMETRICS;
    const char *suffix = !is_open && *metric->type == 'c' ? "_total" : "";

    metrics_line(out, "# HELP ", metric, suffix, metric->help);
    metrics_line(out, "# TYPE ", metric, suffix, metric->type);
    if (is_open && metric->unit)
        metrics_line(out, "# UNIT ", metric, suffix, metric->unit);
}

int metrics_text_write(const struct metrics *metrics, enum weir_metrics_format format,
                       int (*write)(void *userdata, const char *text, size_t n), void *userdata)
{
    struct text_out out = {.write = write, .userdata = userdata};
    size_t next;

    for (size_t i = 0; i < METRICS_N && !out.code; i = next) {
        const struct metric *metric = &metrics_list[i];

        metrics_head(&out, metric, format);
        /* Of one with causes, those of a set are adjacent. */
        for (next = i + 1; next < METRICS_N && metrics_list[next].cause && metric->cause;)
            next++;
        if (metric->scope == OF_PICK)
            metrics_of_picks(&out, metric, metrics);
        else if (metric->scope == OF_BACKEND)
            metrics_of_backends(&out, metric, metrics);
        else
            for (size_t k = i; k < next; k++)
                metrics_of_sets(&out, &metrics_list[k], metrics);
    }
    if (format == WEIR_METRICS_OPENMETRICS)
        text_out_string(&out, "# EOF\n");
    return text_out_end(&out);
}

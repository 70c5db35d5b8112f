/* SPDX-License-Identifier: MIT */
/* The report of a simulation as JSON. */
#include "json.h"
#include "report.h"

static void write_traffic(struct json *json, const struct simulation *simulation)
{
    const struct traffic *traffic = simulation->traffic;
    const struct tally *tally = &simulation->engines[0].tally;

    json_object(json, "traffic");
    json_text(json, "file", traffic->load.n > 0 ? NULL : traffic->options->path);
    json_number(json, "seed", traffic->options->seed);
    json_number(json, "events", tally->events);
    json_number(json, "start_ns", tally->timeline.start_ns);
    json_number(json, "length_ns", tally_length(tally));
    json_number(json, "wrong_lines", traffic->wrong_n);
    json_number(json, "moved", traffic->reorder.late_n);
    json_end_object(json);
}

static void write_waits(struct json *json, const struct histogram *waits)
{
    json_object(json, "waits_ns");
    json_number(json, "p50", histogram_percentile(waits, 500000, 0));
    json_number(json, "p90", histogram_percentile(waits, 900000, 0));
    json_number(json, "p99", histogram_percentile(waits, 990000, 0));
    json_number(json, "p999", histogram_percentile(waits, 999000, 0));
    json_number(json, "max", waits->max);
    json_end_object(json);
}

static void write_classes(struct json *json, const struct tally *tally)
{
    json_array(json, "classes");
    for (unsigned i = 0; i < tally->classes_n; i++) {
        const struct tally_class *at = tally->classes[i];

        json_object(json, NULL);
        json_text(json, "name", at->name);
        json_number(json, "events", at->events);
        json_number(json, "granted", at->waits.n);
        write_waits(json, &at->waits);
        json_end_object(json);
    }
    json_end_array(json);
}

/* Writes thousandths; what is not known is null. */
static void write_used(struct json *json, const char *key, int64_t used)
{
    if (used < 0)
        json_null(json, key);
    else
        json_number(json, key, (uint64_t)used);
}

static void write_limits(struct json *json, const struct tally *tally)
{
    static const char *const types[] = {
        [WEIR_LIMIT_RATE] = "rate", [WEIR_LIMIT_CALL] = "call", [WEIR_LIMIT_RESOURCE] = "resource"};
    const struct candidate *candidate = tally->candidate;
    const struct timeline *timeline = &tally->timeline;

    json_array(json, "limits");
    for (uint32_t i = 0; i < candidate->limits_n; i++) {
        const struct candidate_limit *limit = &candidate->limits[i];
        struct interval_limit all = timeline_limit_merged(timeline, 0, timeline->n, i);

        json_object(json, NULL);
        json_text(json, "set", candidate->sets[limit->set].name);
        json_text(json, "key", limit->key);
        json_text(json, "type", types[limit->type]);
        json_number(json, "capacity", limit->capacity);
        json_number(json, "window_ns", limit->window_ns);
        json_number(json, "granted", tally->limits[i].units);
        json_number(json, "held_most", tally->limits[i].held_most);
        json_number(json, "waited", tally->limits[i].waited);
        json_number(json, "refused", tally->limits[i].refused);
        json_number(json, "would_refuse", tally->limits[i].would_refuse);
        write_used(json, "used_thousandths", tally_used(tally, i, &all, tally_length(tally)));
        json_end_object(json);
    }
    json_end_array(json);
    if (tally_binding(tally) < 0)
        json_null(json, "binding");
    else
        json_number(json, "binding", (uint64_t)tally_binding(tally));
}

static void write_interval(struct json *json, const struct tally *tally, unsigned index)
{
    const struct timeline *timeline = &tally->timeline;
    const struct interval *in = &timeline->intervals[index];

    json_object(json, NULL);
    json_number(json, "arrivals", in->arrivals);
    json_number(json, "granted", in->granted);
    json_number(json, "refused", in->refused);
    json_number(json, "wait_p50_ns", interval_wait(in, 500000));
    json_number(json, "wait_p99_ns", interval_wait(in, 990000));
    json_number(json, "wait_max_ns", in->wait_max_ns);
    json_array(json, "used_thousandths");
    for (uint32_t i = 0; i < timeline->limits_n; i++)
        write_used(json, NULL,
                   tally_used(tally, i, timeline_limit(timeline, index, i),
                              UINT64_C(1) << timeline->bits));
    json_end_array(json);
    json_end_object(json);
}

static void write_candidate(struct json *json, const struct tally *tally)
{
    json_object(json, NULL);
    json_text(json, "file", tally->candidate->name);
    json_text(json, "name", tally->candidate->target);
    json_object(json, "decisions");
    for (int i = 0; i < DECISIONS_N; i++)
        json_number(json, decision_word((enum decision)i), tally->decisions[i]);
    json_end_object(json);
    write_waits(json, &tally->waits);
    if (tally->classes_n > 0)
        write_classes(json, tally);
    json_number(json, "waiting_most", tally->waiting_most);
    write_limits(json, tally);
    json_number(json, "interval_ns", UINT64_C(1) << tally->timeline.bits);
    json_array(json, "intervals");
    for (unsigned i = 0; i < tally->timeline.n; i++)
        write_interval(json, tally, i);
    json_end_array(json);
    json_end_object(json);
}

static void write_suggestion(struct json *json, const struct suggestion *suggestion)
{
    json_object(json, "suggestion");
    json_text(json, "set", suggestion->set);
    json_text(json, "key", suggestion->key);
    json_number(json, "before", suggestion->before);
    if (suggestion->capacity == 0)
        json_null(json, "capacity");
    else
        json_number(json, "capacity", suggestion->capacity);
    json_number(json, "runs", suggestion->runs_n);
    json_end_object(json);
}

void report_json(const struct simulation *simulation, const struct suggestion *suggestion)
{
    struct json json = {.out = stdout};

    json_object(&json, NULL);
    write_traffic(&json, simulation);
    json_array(&json, "candidates");
    for (unsigned i = 0; i < simulation->n; i++)
        write_candidate(&json, &simulation->engines[i].tally);
    json_end_array(&json);
    if (suggestion)
        write_suggestion(&json, suggestion);
    json_end_object(&json);
}

/* SPDX-License-Identifier: MIT */
/* Snapshots as JSON. */
#include "snapshot_json.h"
#include "limit_type.h"
#include <inttypes.h>
#include <string.h>

void snapshot_json_holder(struct json *json, const struct snapshot_set *set,
                          const struct snapshot_holder *holder)
{
    json_object(json, NULL);
    if (holder->holder.waiting)
        json_number(json, "position", holder->holder.position);
    json_number(json, "process", holder->holder.process);
    json_number(json, "thread", holder->holder.thread);
    json_text(json, "command", holder->name[0] != '\0' ? holder->name : NULL);
    json_text(json, "command_line", holder->has_command_line ? holder->command_line : NULL);
    json_number(json, "since_ns", holder->holder.since_ns);
    json_number(json, "age_ns", holder->age_ns);
    if (holder->overheld < set->limits_n) {
        json_text(json, "overheld", set->limits[holder->overheld].key);
        json_number(json, "overheld_ns", holder->overheld_ns);
    }
    json_object(json, "amounts");
    for (size_t i = 0; i < set->limits_n; i++)
        if (holder->amounts[i] != 0 && snapshot_is_first_of_key(set, i))
            json_number(json, set->limits[i].key, holder->amounts[i]);
    json_end_object(json);
    json_end_object(json);
}

/* Writes a number that may not be known. */
static void json_maybe(struct json *json, const char *key, const struct snapshot_set *set,
                       uint64_t number)
{
    if (set->is_unknown)
        json_null(json, key);
    else
        json_number(json, key, number);
}

/* Writes what is counted of a limit: of one that an engine has, nothing. */
static void json_limit_counters(struct json *json, const struct weir_limit_stats *stats)
{
    json_number(json, "granted", stats->granted);
    json_number(json, "refused", stats->refused);
    json_number(json, "would_refuse", stats->would_refuse);
    json_number(json, "refunded", stats->refunded);
    json_number(json, "overused", stats->overused);
    json_number(json, "leased", stats->leased);
}

static void json_limit(struct json *json, const struct snapshot_set *set,
                       const struct snapshot_limit *limit)
{
    json_object(json, NULL);
    json_text(json, "type", limit_type_name(limit->stats.type));
    json_text(json, "key", limit->key);
    json_text(json, "algorithm", limit->algorithm);
    json_number(json, "capacity", limit->stats.capacity);
    json_maybe(json, "available", set, limit->stats.available);
    json_maybe(json, "held", set, limit->stats.held);
    if (!set->engine)
        json_limit_counters(json, &limit->stats);
    json_object(json, "settings");
    for (size_t i = 0; i < limit->settings_n; i++)
        json_text(json, limit->settings[i].name, limit->settings[i].value);
    json_end_object(json);
    if (limit->gauges_n != 0) {
        json_object(json, "gauges");
        for (size_t i = 0; i < limit->gauges_n; i++)
            json_number(json, limit->gauges[i].name, limit->gauges[i].value);
        json_end_object(json);
    }
    json_end_object(json);
}

static void json_subjects(struct json *json, const struct weir_subjects_stats *subjects)
{
    json_object(json, "subjects");
    json_number(json, "known", subjects->known);
    json_number(json, "live", subjects->live);
    json_number(json, "max", subjects->max);
    json_number(json, "room", subjects->room);
    json_number(json, "memory", subjects->memory);
    if (subjects->memory_max != 0)
        json_number(json, "memory_max", subjects->memory_max);
    json_text(json, "evict", subjects->evict);
    json_number(json, "forgotten", subjects->forgotten);
    json_number(json, "evicted", subjects->evicted);
    json_number(json, "refused", subjects->refused);
    json_end_object(json);
}

static void json_counters(struct json *json, const struct weir_set_stats *stats)
{
    json_object(json, "counters");
    json_number(json, "granted", stats->granted);
    json_number(json, "taken", stats->taken);
    json_number(json, "granted_waited", stats->granted_waited);
    json_number(json, "refused_busy", stats->refused_busy);
    json_number(json, "refused_max_wait", stats->refused_max_wait);
    json_number(json, "refused_full", stats->refused_full);
    json_number(json, "refused_impossible", stats->refused_impossible);
    json_number(json, "refused_deadlock", stats->refused_deadlock);
    json_number(json, "refused_unknown", stats->refused_unknown);
    json_number(json, "timed_out", stats->timed_out);
    json_number(json, "canceled", stats->canceled);
    json_number(json, "released", stats->released);
    json_number(json, "refunded", stats->refunded);
    json_number(json, "overused", stats->overused);
    json_number(json, "missing_update", stats->missing_update);
    json_number(json, "overheld", stats->overheld);
    json_number(json, "revoked", stats->revoked);
    json_number(json, "wait_ns_sum", stats->wait_ns_sum);
    json_number(json, "wait_ns_max", stats->wait_ns_max);
    json_array(json, "wait_histogram");
    for (size_t i = 0; i < WEIR_WAIT_BUCKETS; i++)
        json_number(json, NULL, stats->wait_histogram[i]);
    json_end_array(json);
    json_number(json, "hold_ns_sum", stats->hold_ns_sum);
    json_number(json, "hold_ns_max", stats->hold_ns_max);
    json_array(json, "hold_histogram");
    for (size_t i = 0; i < WEIR_WAIT_BUCKETS; i++)
        json_number(json, NULL, stats->hold_histogram[i]);
    json_end_array(json);
    json_end_object(json);
}

static void json_classes(struct json *json, const struct snapshot_set *set)
{
    json_array(json, "classes");
    for (size_t i = 0; i < set->classes_n; i++) {
        json_object(json, NULL);
        json_text(json, "name", set->classes[i].name);
        if (set->classes[i].weight != 0)
            json_number(json, "weight", set->classes[i].weight);
        json_number(json, "waiting", set->classes[i].waiting);
        json_number(json, "held", set->classes[i].held);
        json_number(json, "granted", set->classes[i].granted);
        json_number(json, "granted_waited", set->classes[i].granted_waited);
        json_number(json, "refused", set->classes[i].refused);
        json_number(json, "timed_out", set->classes[i].timed_out);
        json_number(json, "wait_ns_sum", set->classes[i].wait_ns_sum);
        json_end_object(json);
    }
    json_end_array(json);
}

static void json_set(struct json *json, const struct snapshot_set *set)
{
    json_object(json, NULL);
    json_text(json, "name", set->name);
    json_text(json, "backend",
              set->engine         ? set->engine
              : set->process != 0 ? "thread"
                                  : "process");
    if (set->engine) {
        if (set->info.subjects_max == 0)
            json_boolean(json, "reachable", set->away == 0);
    } else if (set->process != 0) {
        json_number(json, "process", set->process);
        json_number(json, "instance", set->instance);
        json_text(json, "command", set->process_name[0] != '\0' ? set->process_name : NULL);
        json_text(json, "command_line", set->has_command_line ? set->command_line : NULL);
    } else {
        json_text(json, "lifetime", set->lifetime);
        json_number(json, "users", set->users);
    }
    if (set->info.max_waiters != 0)
        json_number(json, "max_waiters", set->info.max_waiters);
    json_boolean(json, "fair", (set->info.flags & WEIR_SET_UNFAIR) == 0);
    json_boolean(json, "per_limit", (set->info.flags & WEIR_SET_FAIR_PER_LIMIT) != 0);
    if (!set->engine)
        json_text(json, "clock", set->info.flags & WEIR_SET_BOOTTIME ? "boottime" : "monotonic");
    json_maybe(json, "waiting", set, set->stats.waiting);
    json_maybe(json, "held", set, snapshot_held(set));
    if (set->has_subjects)
        json_subjects(json, &set->subjects);
    if (set->classes_n != 0)
        json_classes(json, set);
    json_array(json, "limits");
    for (size_t i = 0; i < set->limits_n; i++)
        json_limit(json, set, &set->limits[i]);
    json_end_array(json);
    if (set->engine)
        json_maybe(json, "granted", set, set->stats.engine_granted);
    else
        json_counters(json, &set->stats);
    json_array(json, "holders");
    for (size_t i = 0; i < set->held_n; i++)
        snapshot_json_holder(json, set, &set->holders[i]);
    json_end_array(json);
    json_array(json, "waiters");
    for (size_t i = set->held_n; i < set->holders_n; i++)
        snapshot_json_holder(json, set, &set->holders[i]);
    json_end_array(json);
    json_end_object(json);
}

void snapshot_json_write(const struct snapshot *snapshot, FILE *out)
{
    struct json json = {.out = out};

    json_object(&json, NULL);
    json_array(&json, "sets");
    for (size_t i = 0; i < snapshot->sets_n; i++)
        json_set(&json, &snapshot->sets[i]);
    json_end_array(&json);
    json_end_object(&json);
}

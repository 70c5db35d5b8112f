/* SPDX-License-Identifier: MIT */
/* What a simulation has counted. */
#include "tally.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 tally_u128;

const char *decision_word(enum decision decision)
{
    static const char *const words[DECISIONS_N] = {
        [DECISION_AT_ONCE] = "granted",   [DECISION_WAITED] = "granted_waited",
        [DECISION_BUSY] = "refused_busy", [DECISION_MAX_WAIT] = "refused_max_wait",
        [DECISION_FULL] = "refused_full", [DECISION_IMPOSSIBLE] = "refused_impossible",
        [DECISION_TIMEOUT] = "timed_out", [DECISION_NEVER] = "undecided",
    };

    return words[decision];
}

int tally_open(struct tally *ret, const struct candidate *candidate, uint64_t start_ns)
{
    int r;

    *ret = (struct tally){.candidate = candidate, .end_ns = start_ns};
    ret->limits = calloc(candidate->limits_n + 1, sizeof(*ret->limits));
    r = ret->limits ? timeline_open(&ret->timeline, candidate->limits_n) : -ENOMEM;
    if (r < 0)
        tally_close(ret);
    ret->timeline.start_ns = start_ns;
    for (uint32_t i = 0; r == 0 && i < candidate->limits_n; i++)
        ret->limits[i].since_ns = start_ns;
    return r;
}

void tally_close(struct tally *tally)
{
    free(tally->limits);
    for (unsigned i = 0; i < tally->classes_n; i++)
        free(tally->classes[i]);
    timeline_close(&tally->timeline);
    *tally = (struct tally){0};
}

void tally_arrival(struct tally *tally, uint64_t at_ns)
{
    unsigned before = tally->timeline.n, i = timeline_at(&tally->timeline, at_ns);

    tally->events++;
    tally->timeline.intervals[i].arrivals++;
    if (tally->timeline.n != before)
        tally_look(tally, i);
}

static unsigned tally_class_number(const struct tally *tally, const char *name)
{
    unsigned i = 0;

    while (i < tally->classes_n && strcmp(tally->classes[i]->name, name) != 0)
        i++;
    return i;
}

const struct tally_class *tally_find_class(const struct tally *tally, const char *name)
{
    unsigned i = tally_class_number(tally, name);

    return i < tally->classes_n ? tally->classes[i] : NULL;
}

int tally_class_arrival(struct tally *tally, const char *name, unsigned *ret)
{
    unsigned i = *name == '\0' ? TALLY_NO_CLASS : tally_class_number(tally, name);

    *ret = i;
    if (i == TALLY_NO_CLASS)
        return 0;
    if (i == tally->classes_n) {
        tally->classes[i] = calloc(1, sizeof(*tally->classes[i]));
        if (!tally->classes[i])
            return -ENOMEM;
        strcpy(tally->classes[i]->name, name); /* names are cut where they are read */
        tally->classes_n++;
    }
    tally->classes[i]->events++;
    return 0;
}

void tally_grant(struct tally *tally, uint64_t at_ns, uint64_t wait_ns, bool has_waited,
                 unsigned wait_class)
{
    struct interval *in = &tally->timeline.intervals[timeline_at(&tally->timeline, at_ns)];

    tally->decisions[has_waited ? DECISION_WAITED : DECISION_AT_ONCE]++;
    histogram_add(&tally->waits, wait_ns);
    if (wait_class != TALLY_NO_CLASS)
        histogram_add(&tally->classes[wait_class]->waits, wait_ns);
    targets_count(&tally->targets, wait_ns);
    in->granted++;
    interval_add_wait(in, wait_ns);
}

void tally_refusal(struct tally *tally, uint64_t at_ns, enum decision decision)
{
    tally->decisions[decision]++;
    targets_count(&tally->targets, UINT64_MAX);
    tally->timeline.intervals[timeline_at(&tally->timeline, at_ns)].refused++;
}

/* Brings the units of a resource that are held into the timeline. */
static void note_held(struct tally *tally, uint32_t limit, uint64_t at_ns)
{
    struct tally_limit *of = &tally->limits[limit];

    if (of->held > 0)
        timeline_held(&tally->timeline, limit, of->held, of->since_ns, at_ns);
    of->since_ns = at_ns;
}

/* Counts units that were granted; of a resource, `held` are held then. */
static void add_units(struct tally *tally, uint32_t limit, uint64_t units, uint64_t held,
                      uint64_t at_ns)
{
    struct tally_limit *of = &tally->limits[limit];
    struct interval_limit *in;

    of->units += units;
    if (tally->candidate->limits[limit].type == WEIR_LIMIT_RESOURCE) {
        note_held(tally, limit, at_ns);
        of->held = held;
        if (of->held > of->held_most)
            of->held_most = of->held;
    }
    in = timeline_limit(&tally->timeline, timeline_at(&tally->timeline, at_ns), limit);
    in->units += units;
    if (of->held > in->held_most)
        in->held_most = of->held;
}

void tally_units(struct tally *tally, uint32_t limit, uint64_t units, uint64_t at_ns)
{
    add_units(tally, limit, units, tally->limits[limit].held + units, at_ns);
}

void tally_taken(struct tally *tally, uint32_t set, uint64_t at_ns)
{
    const struct candidate_set *of = &tally->candidate->sets[set];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];

    if (weir_set_stats(of->set, &stats, limits, WEIR_LIMITS_MAX) < 0)
        return;
    for (uint32_t i = 0; i < of->limits_n; i++)
        add_units(tally, of->limits_first + i,
                  limits[i].granted - tally->limits[of->limits_first + i].units, limits[i].held,
                  at_ns);
}

void tally_released(struct tally *tally, uint32_t limit, uint64_t units, uint64_t at_ns)
{
    note_held(tally, limit, at_ns);
    tally->limits[limit].held -= units;
}

/* Returns whether the use of a limit is neither that of a window nor held. */
static bool is_looked_at(const struct candidate *candidate, uint32_t limit)
{
    const struct candidate_limit *at = &candidate->limits[limit];

    return at->type != WEIR_LIMIT_RESOURCE && at->window_ns == 0 &&
           !candidate->sets[at->set].has_subjects;
}

static void look_at_set(struct tally *tally, uint32_t set, unsigned interval)
{
    const struct candidate_set *of = &tally->candidate->sets[set];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];

    if (weir_set_stats(of->set, &stats, limits, WEIR_LIMITS_MAX) < 0)
        return;
    for (uint32_t i = 0; i < of->limits_n; i++) {
        uint64_t all = limits[i].capacity;
        uint64_t used = limits[i].available < all ? all - limits[i].available : 0;
        struct interval_limit *in =
            timeline_limit(&tally->timeline, interval, of->limits_first + i);

        used = (uint64_t)((tally_u128)used * 1000 / (all > 0 ? all : 1));
        if (used > in->used_parts)
            in->used_parts = used;
    }
}

void tally_look(struct tally *tally, unsigned interval)
{
    const struct candidate *candidate = tally->candidate;

    for (uint32_t i = 0; i < candidate->limits_n; i++) {
        if (!is_looked_at(candidate, i))
            continue;
        look_at_set(tally, candidate->limits[i].set, interval);
        i = candidate->sets[candidate->limits[i].set].limits_first +
            candidate->sets[candidate->limits[i].set].limits_n - 1;
    }
}

/* Notes what limits in shadow would have refused. */
static void note_shadow(struct tally *tally, const struct candidate_set *set)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];

    if (weir_set_stats(set->set, &stats, limits, WEIR_LIMITS_MAX) < 0)
        return;
    for (uint32_t i = 0; i < set->limits_n; i++)
        tally->limits[set->limits_first + i].would_refuse = limits[i].would_refuse;
}

void tally_finish(struct tally *tally, uint64_t at_ns)
{
    tally->end_ns = at_ns;
    for (uint32_t i = 0; i < tally->candidate->sets_n; i++)
        note_shadow(tally, &tally->candidate->sets[i]);
    for (uint32_t i = 0; i < tally->candidate->limits_n; i++)
        note_held(tally, i, at_ns);
    tally_look(tally, timeline_at(&tally->timeline, at_ns));
}

uint64_t tally_length(const struct tally *tally)
{
    uint64_t ns = tally->end_ns - tally->timeline.start_ns;

    return ns > 0 ? ns : 1;
}

int64_t tally_used(const struct tally *tally, uint32_t limit, const struct interval_limit *in,
                   uint64_t length_ns)
{
    const struct candidate_limit *at = &tally->candidate->limits[limit];
    tally_u128 used, all;

    if (tally->candidate->sets[at->set].has_subjects || tally->end_ns == tally->timeline.start_ns)
        return -1;
    if (is_looked_at(tally->candidate, limit))
        return (int64_t)in->used_parts;
    if (at->type == WEIR_LIMIT_RESOURCE) {
        used = (tally_u128)in->held_us * 1000 * 1000;
        all = (tally_u128)at->capacity * length_ns;
    } else {
        used = (tally_u128)in->units * at->window_ns * 1000;
        all = (tally_u128)at->capacity * length_ns;
    }
    return all > 0 && used / all < INT32_MAX ? (int64_t)(used / all) : INT32_MAX;
}

int tally_binding(const struct tally *tally)
{
    uint64_t most = 0;
    int binding = -1;

    for (uint32_t i = 0; i < tally->candidate->limits_n; i++) {
        uint64_t n = tally->limits[i].refused + tally->limits[i].waited;

        if (n > most) {
            most = n;
            binding = (int)i;
        }
    }
    return binding;
}

/* SPDX-License-Identifier: MIT */
/* Finds the smallest capacity with which the traffic meets the targets. */
#include "suggest.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    struct simulation *simulation;
    const struct engine_options *options;
    char *set; /* a copy: the candidate is opened again and again */
    size_t limit;
    uint64_t events_n; /* of the traffic; 0: not known yet */
    uint64_t last;     /* the capacity of the last run; 0: the run was cut short */
    unsigned runs_n;
};

/* Runs the traffic with a capacity. Returns 1 (the targets are met), 0, or a negative errno. With
 * `whole` the run goes to its end. */
static int try_capacity(struct search *search, uint64_t capacity, bool whole)
{
    char what[64];
    struct simulation_run run = {.edit = {search->set, search->limit, capacity},
                                 .events_n = whole ? 0 : search->events_n,
                                 .what = what};
    const struct tally *tally = &search->simulation->engines[0].tally;
    bool is_missed = false;
    int r;

    snprintf(what, sizeof(what), "capacity %" PRIu64, capacity);
    simulation_end_run(search->simulation);
    r = traffic_rewind(search->simulation->traffic);
    if (r == 0)
        r = simulation_go(search->simulation, search->options, &run, &is_missed);
    if (r < 0)
        return r;
    search->runs_n++;
    if (run.events_n == 0)
        search->events_n = tally->events;
    search->last = run.events_n == 0 || !is_missed ? capacity : 0;
    return !is_missed && targets_are_met(&tally->targets, search->events_n);
}

/* Returns whether the limit can have this capacity. */
static bool is_possible(const struct search *search, uint64_t capacity)
{
    const struct capacity_edit edit = {search->set, search->limit, capacity};

    return candidate_accepts(&search->simulation->candidates[0], &edit);
}

/* Returns the largest possible capacity from `low` on, which is possible, to `high`. */
static uint64_t most_possible(const struct search *search, uint64_t low, uint64_t high)
{
    if (is_possible(search, high))
        return high;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (is_possible(search, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Doubles the capacity until one meets the targets. Returns as try_capacity(). */
static int find_enough(struct search *search, uint64_t *low, uint64_t *high)
{
    int r;

    while ((r = try_capacity(search, *high, *high == *low)) == 0) {
        uint64_t next = *high > SUGGEST_CAPACITY_MAX / 2 ? SUGGEST_CAPACITY_MAX : *high * 2;

        *low = *high;
        *high = next > *low ? most_possible(search, *low, next) : *low;
        if (*high == *low)
            return 0;
    }
    if (*high == *low)
        *low = 0;
    return r;
}

/* Finds the least capacity above `low` that meets the targets, as `high` does. One that is not
 * possible does not. */
static int bisect(struct search *search, uint64_t low, uint64_t *high)
{
    while (*high - low > 1) {
        uint64_t middle = low + (*high - low) / 2;
        int r = is_possible(search, middle) ? try_capacity(search, middle, false) : 0;

        if (r < 0)
            return r;
        if (r > 0)
            *high = middle;
        else
            low = middle;
    }
    return 0;
}

static int search_capacity(struct search *search, struct suggestion *ret)
{
    uint64_t low = ret->before, high = ret->before;
    int r = find_enough(search, &low, &high);

    ret->capacity = 0;
    ret->most = high;
    if (r > 0) {
        r = bisect(search, low, &high);
        ret->capacity = high;
    }
    if (r == 0 && search->last != high)
        r = try_capacity(search, high, true);
    return r < 0 ? r : 0;
}

int suggest(struct simulation *simulation, const struct engine_options *options, const char *name,
            struct suggestion *ret)
{
    static const struct capacity_edit none = {NULL, 0, 0};
    struct candidate *candidate = &simulation->candidates[0];
    struct search search = {.simulation = simulation, .options = options};
    int r = candidate_open(candidate, 0, &none), index;

    if (r < 0)
        return r;
    index = candidate_find_limit(candidate, name);
    if (index < 0)
        return index;
    if (!candidate->limits[index].has_capacity) {
        fprintf(stderr, "%s: the limit `%s` has no `capacity`\n", candidate->command, name);
        return -EINVAL;
    }
    search.limit = candidate->limits[index].number;
    search.set = strdup(candidate->sets[candidate->limits[index].set].name);
    if (!search.set)
        return -ENOMEM;
    ret->before = candidate->limits[index].capacity;
    r = search_capacity(&search, ret);
    free(search.set);
    if (r < 0)
        return r;
    ret->set = candidate->sets[candidate->limits[index].set].name;
    ret->key = candidate->limits[index].key;
    ret->runs_n = search.runs_n;
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* What happens over time. */
#include "timeline.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MILLION   UINT64_C(1000000)
#define WAIT_BITS 2
#define WAIT_SKIP 10 /* a bucket of waits is of units of 2^10 ns */

int timeline_open(struct timeline *ret, unsigned limits_n)
{
    struct timeline timeline = {.bits = TIMELINE_FIRST_BITS, .limits_n = limits_n};

    timeline.intervals = calloc(TIMELINE_MAX, sizeof(*timeline.intervals));
    timeline.limits = calloc((size_t)TIMELINE_MAX * (limits_n + 1), sizeof(*timeline.limits));
    *ret = timeline;
    if (timeline.intervals && timeline.limits)
        return 0;
    timeline_close(ret);
    return -ENOMEM;
}

void timeline_close(struct timeline *timeline)
{
    free(timeline->intervals);
    free(timeline->limits);
    *timeline = (struct timeline){0};
}

static void limit_merge(struct interval_limit *into, const struct interval_limit *from)
{
    into->units += from->units;
    into->held_us += from->held_us;
    if (from->held_most > into->held_most)
        into->held_most = from->held_most;
    if (from->used_parts > into->used_parts)
        into->used_parts = from->used_parts;
}

static void interval_merge(struct interval *into, const struct interval *from)
{
    into->arrivals += from->arrivals;
    into->granted += from->granted;
    into->refused += from->refused;
    if (from->wait_max_ns > into->wait_max_ns)
        into->wait_max_ns = from->wait_max_ns;
    for (unsigned i = 0; i < TIMELINE_WAITS; i++)
        into->waits[i] += from->waits[i];
}

/* Merges pairs of intervals. */
static void timeline_double(struct timeline *timeline)
{
    size_t row = timeline->limits_n * sizeof(*timeline->limits);
    unsigned half = TIMELINE_MAX / 2;

    for (unsigned i = 0; i < half; i++) {
        struct interval merged = timeline->intervals[2 * i];

        interval_merge(&merged, &timeline->intervals[2 * i + 1]);
        timeline->intervals[i] = merged;
        for (unsigned k = 0; k < timeline->limits_n; k++) {
            struct interval_limit limit = *timeline_limit(timeline, 2 * i, k);

            limit_merge(&limit, timeline_limit(timeline, 2 * i + 1, k));
            *timeline_limit(timeline, i, k) = limit;
        }
    }
    memset(timeline->intervals + half, 0, half * sizeof(*timeline->intervals));
    memset(timeline_limit(timeline, half, 0), 0, half * row);
    timeline->bits++;
    timeline->n = (timeline->n + 1) / 2;
}

unsigned timeline_at(struct timeline *timeline, uint64_t at_ns)
{
    uint64_t since_ns = at_ns - timeline->start_ns;
    unsigned i;

    while (since_ns >> timeline->bits >= TIMELINE_MAX)
        timeline_double(timeline);
    i = (unsigned)(since_ns >> timeline->bits);
    if (i >= timeline->n)
        timeline->n = i + 1;
    return i;
}

void timeline_held(struct timeline *timeline, unsigned limit, uint64_t units, uint64_t from_ns,
                   uint64_t to_ns)
{
    if (from_ns >= to_ns)
        return;
    timeline_at(timeline, to_ns);
    while (from_ns < to_ns) {
        unsigned i = timeline_at(timeline, from_ns);
        uint64_t end_ns = timeline->start_ns + ((uint64_t)(i + 1) << timeline->bits);
        struct interval_limit *at = timeline_limit(timeline, i, limit);
        uint64_t us;

        end_ns = end_ns < to_ns ? end_ns : to_ns;
        us = end_ns / 1000 - from_ns / 1000;
        if (us != 0 && units > (UINT64_MAX - at->held_us) / us)
            at->held_us = UINT64_MAX;
        else
            at->held_us += units * us;
        if (units > at->held_most)
            at->held_most = units;
        from_ns = end_ns;
    }
}

static unsigned wait_bucket(uint64_t wait_ns)
{
    uint64_t value = wait_ns >> WAIT_SKIP;
    unsigned power;

    if (value < 1u << WAIT_BITS)
        return (unsigned)value;
    power = 63 - (unsigned)__builtin_clzll(value) - WAIT_BITS;
    power = (power << WAIT_BITS) + (unsigned)(value >> power);
    return power < TIMELINE_WAITS ? power : TIMELINE_WAITS - 1;
}

/* Returns the middle of a bucket. */
static uint64_t wait_of_bucket(unsigned bucket)
{
    unsigned power = bucket >> WAIT_BITS;
    uint64_t from = bucket;

    if (bucket == 0)
        return 0;
    power = power > 1 ? power - 1 : 0;
    from = (from - ((uint64_t)power << WAIT_BITS)) << power;
    return (from << WAIT_SKIP) + (UINT64_C(1) << (power + WAIT_SKIP - 1));
}

void interval_add_wait(struct interval *interval, uint64_t wait_ns)
{
    interval->waits[wait_bucket(wait_ns)]++;
    if (wait_ns > interval->wait_max_ns)
        interval->wait_max_ns = wait_ns;
}

uint64_t interval_wait(const struct interval *interval, uint32_t share)
{
    uint64_t rank = (interval->granted * share + MILLION - 1) / MILLION, seen = 0;

    for (unsigned i = 0; i < TIMELINE_WAITS && rank > 0; i++) {
        seen += interval->waits[i];
        if (seen >= rank)
            return wait_of_bucket(i) < interval->wait_max_ns ? wait_of_bucket(i)
                                                             : interval->wait_max_ns;
    }
    return rank > 0 ? interval->wait_max_ns : 0;
}

struct interval timeline_merged(const struct timeline *timeline, unsigned first, unsigned n)
{
    struct interval merged = {0};

    for (unsigned i = first; i < first + n && i < timeline->n; i++)
        interval_merge(&merged, &timeline->intervals[i]);
    return merged;
}

struct interval_limit timeline_limit_merged(const struct timeline *timeline, unsigned first,
                                            unsigned n, unsigned limit)
{
    struct interval_limit merged = {0};

    for (unsigned i = first; i < first + n && i < timeline->n; i++)
        limit_merge(&merged, timeline_limit(timeline, i, limit));
    return merged;
}

/* SPDX-License-Identifier: MIT */
/*
 * What happens over time: counts by intervals of one length, in a memory of a fixed size. The
 * length is a power of two of nanoseconds. It doubles, and pairs of intervals become one, when
 * there would be too many.
 */
#ifndef WEIR_TOOLS_SIMULATE_TIMELINE_H
#define WEIR_TOOLS_SIMULATE_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#define TIMELINE_MAX        512u /* intervals; even */
#define TIMELINE_WAITS      164u /* buckets */
#define TIMELINE_FIRST_BITS 20u  /* about a millisecond */

/* Of one limit in one interval. */
struct interval_limit {
    uint64_t units;      /* granted, of a rate or call */
    uint64_t held_us;    /* units of a resource, times the time they were held, us */
    uint64_t held_most;  /* units of a resource */
    uint64_t used_parts; /* the most of a limit without a window that was used, thousandths */
};

struct interval {
    uint64_t arrivals, granted, refused;
    uint64_t wait_max_ns;
    uint32_t waits[TIMELINE_WAITS]; /* of those granted */
};

struct timeline {
    uint64_t start_ns;
    unsigned bits;     /* an interval has 2^bits ns */
    unsigned n;        /* intervals so far */
    unsigned limits_n; /* columns of `limits` */
    struct interval *intervals;
    struct interval_limit *limits; /* TIMELINE_MAX rows */
};

/* Returns 0 or -ENOMEM. */
int timeline_open(struct timeline *ret, unsigned limits_n);
void timeline_close(struct timeline *timeline);

/* Returns the index of the interval of a time, which is no earlier than the start. Intervals of
 * earlier times may have got another index since. */
unsigned timeline_at(struct timeline *timeline, uint64_t at_ns);

static inline struct interval_limit *timeline_limit(const struct timeline *timeline,
                                                    unsigned interval, unsigned limit)
{
    return &timeline->limits[(size_t)interval * timeline->limits_n + limit];
}

/* Adds units of a resource that were held from one time to another. */
void timeline_held(struct timeline *timeline, unsigned limit, uint64_t units, uint64_t from_ns,
                   uint64_t to_ns);

void interval_add_wait(struct interval *interval, uint64_t wait_ns);

/* Returns the wait that `share` of those granted, in millionths, do not exceed: too large by an
 * eighth at most. */
uint64_t interval_wait(const struct interval *interval, uint32_t share);

/* Merge `n` intervals, or their part that is there, from `first` on. */
struct interval timeline_merged(const struct timeline *timeline, unsigned first, unsigned n);
struct interval_limit timeline_limit_merged(const struct timeline *timeline, unsigned first,
                                            unsigned n, unsigned limit);

#endif

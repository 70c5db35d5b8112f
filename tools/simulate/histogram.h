/* SPDX-License-Identifier: MIT */
/*
 * Counts of waits by their length, for percentiles in a memory of a fixed size. Each power of two
 * has HISTOGRAM_PARTS buckets, so a percentile is too large by at most 1/HISTOGRAM_PARTS; the
 * maximum is exact. G. Tene's HdrHistogram does the same.
 */
#ifndef WEIR_TOOLS_SIMULATE_HISTOGRAM_H
#define WEIR_TOOLS_SIMULATE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS    6
#define HISTOGRAM_PARTS   (1u << HISTOGRAM_BITS)
#define HISTOGRAM_BUCKETS ((64u - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
    uint64_t n, max;
    uint64_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);

/* Returns the value that `share` of all, in millionths, do not exceed. `beyond` more values count
 * as greater than all others; UINT64_MAX: it is one of them. */
uint64_t histogram_percentile(const struct histogram *histogram, uint32_t share, uint64_t beyond);

/* Returns how many values are greater, as far as the buckets tell: those of its own bucket are not.
 */
uint64_t histogram_above(const struct histogram *histogram, uint64_t value);

#endif

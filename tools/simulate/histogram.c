/* SPDX-License-Identifier: MIT */
/* Counts of waits by their length. */
#include "histogram.h"

#define MILLION UINT64_C(1000000)

/* Values below HISTOGRAM_PARTS have a bucket each. Those of a power of two above share
 * HISTOGRAM_PARTS of them. */
static unsigned bucket_of(uint64_t value)
{
    unsigned power = 0;

    if (value < HISTOGRAM_PARTS)
        return (unsigned)value;
    power = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_BITS;
    return (power << HISTOGRAM_BITS) + (unsigned)(value >> power);
}

/* Returns the largest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    unsigned power = bucket >> HISTOGRAM_BITS;

    if (power <= 1)
        return bucket;
    power--;
    return (((uint64_t)bucket - ((uint64_t)power << HISTOGRAM_BITS) + 1) << power) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->counts[bucket_of(value)]++;
    histogram->n++;
    if (value > histogram->max)
        histogram->max = value;
}

/* Returns the rank, from 1, of the value that `share` do not exceed. */
static uint64_t rank_of(uint64_t n, uint32_t share)
{
    return n / MILLION * share + (n % MILLION * share + MILLION - 1) / MILLION;
}

uint64_t histogram_percentile(const struct histogram *histogram, uint32_t share, uint64_t beyond)
{
    uint64_t rank = rank_of(histogram->n + beyond, share), seen = 0;

    if (rank > histogram->n)
        return UINT64_MAX;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen >= rank && seen > 0)
            return bucket_end(i) < histogram->max ? bucket_end(i) : histogram->max;
    }
    return 0;
}

uint64_t histogram_above(const struct histogram *histogram, uint64_t value)
{
    uint64_t n = 0;

    for (unsigned i = bucket_of(value) + 1; i < HISTOGRAM_BUCKETS; i++)
        n += histogram->counts[i];
    return n;
}

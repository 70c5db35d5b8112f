/* SPDX-License-Identifier: MIT */
/*
 * Generated load: streams of arrivals, which add up.
 *
 *     even:N/WINDOW:DURATION      evenly spaced
 *     poisson:N/WINDOW:DURATION   independent of each other, at a constant rate
 *     day:N/WINDOW:DURATION       so too, at a rate that follows the hours of a day; N is the peak
 *     burst:N/WINDOW:DURATION     N at one instant, once in each WINDOW
 *
 * It begins at midnight UTC, 2000-01-01. Times are computed with integers.
 */
#ifndef WEIR_TOOLS_SIMULATE_LOAD_H
#define WEIR_TOOLS_SIMULATE_LOAD_H

#include "limit_option.h"
#include "random.h"
#include <stdbool.h>
#include <stdint.h>

#define LOAD_STREAMS_MAX 8
#define LOAD_START_NS    (UINT64_C(946684800) * 1000000000)

enum load_kind { LOAD_EVEN, LOAD_POISSON, LOAD_DAY, LOAD_BURST };

struct load_stream {
    enum load_kind kind;
    uint64_t amount, window_ns, duration_ns;
    struct random random;
    uint64_t done_n;  /* arrivals so far */
    uint64_t next_ns; /* since the start */
};

struct load {
    struct load_stream streams[LOAD_STREAMS_MAX];
    unsigned n;
    uint64_t duration_ns; /* of the longest one */
};

/* Takes a stream as it is written on the command line. Returns false and what is wrong. */
bool load_add(struct load *load, char *text, struct option_complaint *ret_wrong);

/* Starts all streams, by a seed. */
void load_start(struct load *load, uint64_t seed);

/* Stores the time of the next arrival. Returns false if there is no more. */
bool load_next(struct load *load, uint64_t *ret_ns);

#endif

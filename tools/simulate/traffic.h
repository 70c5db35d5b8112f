/* SPDX-License-Identifier: MIT */
/* The traffic of a simulation: a recorded trace, or generated load. */
#ifndef WEIR_TOOLS_SIMULATE_TRAFFIC_H
#define WEIR_TOOLS_SIMULATE_TRAFFIC_H

#include "line_format.h"
#include "lines.h"
#include "load.h"
#include "read_ahead.h"
#include "reorder.h"

/* How traffic is made. All zero but for the mapping: to be read from `path`. */
struct traffic_options {
    struct mapping mapping;
    struct load load; /* with streams: no trace is read */
    const char *path;
    enum line_kind kind;
    uint32_t reorder; /* events that are sorted */
    uint64_t seed;
    bool strict; /* a wrong line is an error */
};

struct traffic {
    const struct traffic_options *options;
    const char *command; /* prefix of messages */
    struct load load;
    struct lines lines;
    struct line_format format;
    struct reorder reorder;
    struct random random; /* of what the mapping draws */
    struct read_ahead ahead;
    uint64_t made_n;    /* events, by the thread that reads ahead */
    uint64_t events_n;  /* that traffic_next() has returned */
    uint64_t wrong_n;   /* lines; by the thread that reads ahead */
    uint64_t first_ns;  /* time of the first event */
    bool is_quiet;      /* it is read again: wrong lines were reported */
    struct event event; /* of a load */
};

/* Opens the traffic. Returns 0, or a negative errno after a message. */
int traffic_open(struct traffic *ret, const struct traffic_options *options, const char *command);
void traffic_close(struct traffic *traffic);

/* Starts anew with the first event. Returns 0, or a negative errno after a message. */
int traffic_rewind(struct traffic *traffic);

/* Returns the next event, valid until the next call: 1, 0 at the end, or a negative errno after a
 * message. */
int traffic_next(struct traffic *traffic, const struct event **ret);

/* Ends the run: what was counted can be read then, and traffic_rewind() begins the next one. */
void traffic_stop(struct traffic *traffic);

/* Returns how much has been used, thousandths; or -1 if that is not known. */
int traffic_progress(const struct traffic *traffic);

#endif

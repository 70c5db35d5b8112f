/* SPDX-License-Identifier: MIT */
/*
 * Puts events in the order of their times. Servers write a line when a request ends, so the lines
 * of a log are a little out of order. A window of a fixed number of events is sorted; those of one
 * time stay in their order. An event that comes later than that is moved to the time of the last
 * one that left.
 */
#ifndef WEIR_TOOLS_SIMULATE_REORDER_H
#define WEIR_TOOLS_SIMULATE_REORDER_H

#include "event.h"
#include <stdbool.h>

#define REORDER_MAX     1000000
#define REORDER_DEFAULT 4096

struct reorder {
    struct event *events; /* size + 1 of them */
    uint32_t *order;      /* a ring of indices into them, sorted by time */
    uint32_t *unused;     /* a stack of indices */
    uint32_t size, n, first, unused_n;
    uint32_t out;     /* the event that left last */
    bool has_out;     /* it is still in use */
    uint64_t last_ns; /* its time */
    uint64_t late_n;  /* events that were moved */
};

/* Makes a window of `size` events. Returns 0 or -ENOMEM. */
int reorder_open(struct reorder *ret, uint32_t size);
void reorder_close(struct reorder *reorder);
void reorder_clear(struct reorder *reorder);

/* Returns an event to be filled in. There is one, unless the window is full. */
struct event *reorder_next(struct reorder *reorder);
/* Takes the event that reorder_next() has returned. */
void reorder_add(struct reorder *reorder);

static inline bool reorder_is_full(const struct reorder *reorder)
{
    return reorder->n == reorder->size;
}

/* Takes the first event out, which is valid until the next call; NULL: there is none. */
const struct event *reorder_take(struct reorder *reorder);

#endif

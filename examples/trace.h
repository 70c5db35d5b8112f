/* SPDX-License-Identifier: MIT */
/*
 * A trace of a server: each request with the time of its arrival, and what was decided. weir goes
 * by a clock that the program moves. It stops wherever weir has something to decide, and each call
 * has a time of its own. So the decisions follow from the trace alone, and `weir simulate` makes
 * the same ones:
 *
 *     weir simulate -f api.yaml -T time:ns -a tokens=tokens --used tokens=used -H hold:ns TRACE
 */
#ifndef WEIR_EXAMPLES_TRACE_H
#define WEIR_EXAMPLES_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <weir/weir.h>

struct trace {
    FILE *out;       /* NULL: no trace is kept, and weir reads its own clock */
    uint64_t now_ns; /* the clock of weir: never ahead of CLOCK_MONOTONIC but by a few ns */
};

/* What the trace tells of a request. */
struct trace_request {
    uint64_t arrived_ns; /* 0: it never came to weir */
    uint64_t tokens;
    uint64_t used;
};

/* Opens the file. Returns 0 or a negative errno. */
int trace_open(struct trace *trace, const char *path);
/* Returns whether all was written. */
bool trace_close(struct trace *trace);

/* Returns the clock for weir_open, which lives as long as the trace; NULL without a trace. */
const struct weir_clock *trace_clock(struct trace *trace, struct weir_clock *ret);

/* Lets the time pass for weir, up to now. Call before each call that asks or gives back. Returns
 * the time of that call. */
uint64_t trace_move(struct trace *trace, weir *w);

/* Returns when it has to be called again, ns of CLOCK_MONOTONIC; or 0: not before another call. */
uint64_t trace_due_ns(const struct trace *trace, weir *w);

/* Write a request that was refused with `result`, or one that is released now. */
void trace_refused(struct trace *trace, const struct trace_request *request, int result,
                   const char *set);
void trace_released(struct trace *trace, const struct trace_request *request,
                    weir_acquisition *granted);

#endif

/* SPDX-License-Identifier: MIT */
/* A bar on the terminal that shows how far a long simulation has come. */
#ifndef WEIR_TOOLS_SIMULATE_PROGRESS_H
#define WEIR_TOOLS_SIMULATE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;    /* stands before the bar */
    uint64_t started_ns; /* 0: there is no bar */
    uint64_t shown_ns;
    bool is_shown;
};

/* Starts a bar if the standard error is a terminal. It appears after a moment. */
struct progress progress_start(const char *what);

/* Shows how far it has come, thousandths, or -1: not known. Cheap if it was shown a moment ago. */
void progress_show(struct progress *progress, int done, uint64_t events);

/* Removes the bar. */
void progress_end(struct progress *progress);

#endif

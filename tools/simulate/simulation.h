/* SPDX-License-Identifier: MIT */
/* A simulation: traffic that is given to one candidate or to two at once. */
#ifndef WEIR_TOOLS_SIMULATE_SIMULATION_H
#define WEIR_TOOLS_SIMULATE_SIMULATION_H

#include "engine.h"
#include "traffic.h"

#define CANDIDATES_MAX 2

struct simulation {
    const char *command; /* prefix of messages */
    struct traffic *traffic;
    struct candidate candidates[CANDIDATES_MAX];
    struct engine engines[CANDIDATES_MAX];
    unsigned n;
};

/* How a run goes. All zero: to its end, with the configurations as they are. */
struct simulation_run {
    struct capacity_edit edit; /* of the first candidate */
    uint64_t events_n;         /* so many are expected; 0: not known, and the run goes to its end */
    const char *what;          /* for the bar; NULL: `simulating` */
};

/*
 * Runs the traffic, from the event that comes next. With `events_n` it ends as soon as a target is
 * missed whatever comes; `*ret_is_missed` says so. Returns 0, or a negative errno after a message.
 */
int simulation_go(struct simulation *simulation, const struct engine_options *options,
                  const struct simulation_run *run, bool *ret_is_missed);

/* Closes the engines of a run. Their tallies are gone then. */
void simulation_end_run(struct simulation *simulation);

#endif

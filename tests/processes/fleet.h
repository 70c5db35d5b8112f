/* SPDX-License-Identifier: MIT */
/*
 * A fleet: worker processes that a test forks, kills, stops and starts again, and one log in shared
 * memory of what they and the test have done. The log outlives all of them, so the invariants of a
 * test can be checked on it, whichever worker was killed where.
 *
 * Functions of the fleet are called by the process that made it, those of a worker by the worker.
 * Workers end with the process that made the fleet.
 */
#ifndef WEIR_TESTS_FLEET_H
#define WEIR_TESTS_FLEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define FLEET_WORKERS_MAX 64u

/* Kinds of events that the fleet logs itself. A test's own begin with FLEET_OWN. */
enum fleet_kind {
    FLEET_BORN = 1,  /* of a worker: it has begun; before any event of its own */
    FLEET_KILLING,   /* about to be killed: from here on it may be dead, and what it held free */
    FLEET_KILLED,    /* dead: no event of it comes behind this */
    FLEET_STOPPED,   /* has stopped: none comes … */
    FLEET_CONTINUED, /* … until this */
    FLEET_ENDED,     /* has returned from its function, and is gone */
    FLEET_OWN = 16
};

struct fleet_event {
    _Atomic uint64_t seq; /* from 1; written last: 0 means that its writer died in the middle */
    uint64_t at_ns;       /* CLOCK_MONOTONIC, read before the place in the log was taken */
    uint32_t kind, worker;
    pid_t pid; /* the worker */
    uint64_t what, more;
};

struct fleet;

/* What a worker knows of itself; private to its process. */
struct fleet_worker {
    struct fleet *fleet;
    uint32_t number; /* 0 … workers - 1; its successors have the same */
    uint32_t life;   /* counts them, from 1 */
    uint64_t random; /* for random_next(); different in each life */
    void *argument;
};

/* Returning ends the worker with success. */
typedef void fleet_run(struct fleet_worker *me);

struct fleet_plan {
    uint32_t workers;
    size_t events_max;
    uint64_t seed;
    fleet_run *run;
    void *argument;
    FILE *complaints; /* NULL: stderr */
};

/* NULL: no memory. */
struct fleet *fleet_new(const struct fleet_plan *plan);
/* Kills all workers that are left. */
void fleet_free(struct fleet *fleet);

/* Forks all workers; they begin together, when all are there. False, with a complaint: no fork, or
 * one died before. */
bool fleet_start(struct fleet *fleet);

/* Any worker that is (or is not) running and not stopped; false: there is none. */
bool fleet_pick(struct fleet *fleet, bool running, uint32_t *ret_worker);
/* The next random number of the test. */
uint64_t fleet_random(struct fleet *fleet);

/* These return when it has happened. False, with a complaint: it had ended by itself before. */
bool fleet_kill(struct fleet *fleet, uint32_t worker); /* with SIGKILL, also a stopped one */
bool fleet_stop(struct fleet *fleet, uint32_t worker);
void fleet_continue(struct fleet *fleet, uint32_t worker);
/* In place of one that was killed. False: no fork. */
bool fleet_respawn(struct fleet *fleet, uint32_t worker);
/* Whichever of the two it needs, if any. */
bool fleet_revive(struct fleet *fleet, uint32_t worker);

/* Asks all workers to end, continues the stopped ones, and waits. Returns whether all of them
 * returned in time. If not, complains of each that crashed, failed or is stuck, with what is known
 * of it, and kills the rest. */
bool fleet_end(struct fleet *fleet, uint64_t timeout_ns);

/* Returns whether each running worker has made a step since less than this; complains of the
 * others. */
bool fleet_is_moving(struct fleet *fleet, uint64_t within_ns);

/* The log. Returns how many places were taken. An event with seq 0 is torn. */
size_t fleet_events(const struct fleet *fleet, const struct fleet_event **ret);
/* False: there were more events than places. */
bool fleet_log_is_whole(const struct fleet *fleet);

/* ---- in a worker ---- */

/*
 * Appends an event. Its place in the log is taken at one instant during the call: whatever the
 * worker did before is before it, whatever it does after is after it.
 */
void fleet_log(struct fleet_worker *me, uint32_t kind, uint64_t what, uint64_t more);
/* Tells where it is: a text that is there for ever. For complaints. */
void fleet_step(struct fleet_worker *me, const char *where);
/* False: time to end. */
bool fleet_goes_on(const struct fleet_worker *me);

#endif

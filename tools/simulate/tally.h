/* SPDX-License-Identifier: MIT */
/* What a simulation has counted. */
#ifndef WEIR_TOOLS_SIMULATE_TALLY_H
#define WEIR_TOOLS_SIMULATE_TALLY_H

#include "candidate.h"
#include "event.h"
#include "histogram.h"
#include "target.h"
#include "timeline.h"

enum decision {
    DECISION_AT_ONCE,
    DECISION_WAITED,     /* granted after waiting */
    DECISION_BUSY,       /* refused: would have to wait, and may not */
    DECISION_MAX_WAIT,   /* refused: would wait longer than max_wait, or has */
    DECISION_FULL,       /* refused: the wait queue is full */
    DECISION_IMPOSSIBLE, /* refused: more than the limit can ever grant */
    DECISION_TIMEOUT,
    DECISION_NEVER, /* it waits for what nothing gives back */
    DECISIONS_N
};

/* Returns the word for a decision, as in the files of decisions and in JSON. */
const char *decision_word(enum decision decision);

struct tally_limit {
    uint64_t refused; /* requests, among them those that timed out */
    uint64_t waited;  /* requests that had to wait, and found the head of the queue wait for it */
    uint64_t would_refuse; /* requests granted that it would have refused, were it enforced */
    uint64_t units;        /* granted, those alone that the limit had */
    uint64_t held;         /* units of a resource, now */
    uint64_t held_most;
    uint64_t since_ns; /* `held` is in the timeline up to here */
};

/* The requests of a class. */
struct tally_class {
    char name[EVENT_CLASS_MAX + 1];
    uint64_t events;
    struct histogram waits; /* of those that were granted, ns */
};
#define TALLY_CLASSES_MAX 16
#define TALLY_NO_CLASS    TALLY_CLASSES_MAX

struct tally {
    const struct candidate *candidate;
    uint64_t events;
    uint64_t decisions[DECISIONS_N];
    struct histogram waits; /* of all that were granted, ns */
    uint64_t waiting_most;
    uint64_t end_ns;
    struct tally_limit *limits; /* as those of the candidate */
    struct timeline timeline;
    struct targets targets;
    struct tally_class *classes[TALLY_CLASSES_MAX]; /* in the order in which they came */
    unsigned classes_n;
};

/* The candidate is open; the tally is for as long as it is. Returns 0 or -ENOMEM. */
int tally_open(struct tally *ret, const struct candidate *candidate, uint64_t start_ns);
void tally_close(struct tally *tally);

/* Counts a request of a class; empty: it has none. Stores the number of the class, or
 * TALLY_NO_CLASS; more than TALLY_CLASSES_MAX are not counted. Returns 0 or -ENOMEM. */
int tally_class_arrival(struct tally *tally, const char *name, unsigned *ret);
/* Returns the class of this name, or NULL. */
const struct tally_class *tally_find_class(const struct tally *tally, const char *name);

/* Count what happens at a time. `wait_ns` is that of a request that is granted. */
void tally_arrival(struct tally *tally, uint64_t at_ns);
void tally_grant(struct tally *tally, uint64_t at_ns, uint64_t wait_ns, bool has_waited,
                 unsigned wait_class);
void tally_refusal(struct tally *tally, uint64_t at_ns, enum decision decision);
/* Counts units of a limit that were granted, or of a resource that was released. */
void tally_units(struct tally *tally, uint32_t limit, uint64_t units, uint64_t at_ns);
void tally_released(struct tally *tally, uint32_t limit, uint64_t units, uint64_t at_ns);
/* Counts what has been granted of the limits of a set since the last call, and what is held, as the
 * library says. It takes longer; but what is asked of a limit that is not enforced may be granted
 * without it. */
void tally_taken(struct tally *tally, uint32_t set, uint64_t at_ns);

/* Looks at limits of which the use is not counted: rates and calls without one window. Of the
 * interval with this index. */
void tally_look(struct tally *tally, unsigned interval);

/* Ends the counting. */
void tally_finish(struct tally *tally, uint64_t at_ns);

static inline uint64_t tally_granted(const struct tally *tally)
{
    return tally->decisions[DECISION_AT_ONCE] + tally->decisions[DECISION_WAITED];
}

static inline uint64_t tally_not_granted(const struct tally *tally)
{
    return tally->events - tally_granted(tally);
}

/* Returns the wait that `share` of the granted requests, in millionths, do not exceed, ns. */
static inline uint64_t tally_wait(const struct tally *tally, uint32_t share)
{
    return histogram_percentile(&tally->waits, share, 0);
}

/* How much of a limit was used in a time of `length_ns`: thousandths, above 1000 while a burst is
 * used up. -1: it is not known, as each subject has a limit of its own, or no time has passed. */
int64_t tally_used(const struct tally *tally, uint32_t limit, const struct interval_limit *in,
                   uint64_t length_ns);

/* Returns the limit that held back or refused most requests, or -1: none did. */
int tally_binding(const struct tally *tally);

/* Returns the length of the simulation, at least 1 ns. */
uint64_t tally_length(const struct tally *tally);

#endif

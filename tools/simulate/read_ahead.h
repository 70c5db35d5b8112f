/* SPDX-License-Identifier: MIT */
/*
 * Makes events ahead of their use, in a thread of its own: to read a line takes about as long as to
 * decide on it. The order of the events and what they are do not depend on how fast the threads
 * are.
 */
#ifndef WEIR_TOOLS_SIMULATE_READ_AHEAD_H
#define WEIR_TOOLS_SIMULATE_READ_AHEAD_H

#include "event.h"
#include <pthread.h>
#include <stdbool.h>

#define READ_AHEAD_BATCHES 4

/* Where the events come from. Only the thread calls these, until it is stopped. */
struct event_source {
    void *of;
    /* Returns 1 and an event, valid until the next call; 0 at the end; or a negative errno. */
    int (*next)(void *of, const struct event **ret);
    int (*progress)(const void *of);
};

struct event_batch {
    struct event *events;
    uint32_t n;
    int result;   /* of the event behind the last one; 1: there is another batch */
    int progress; /* once these were read */
};

struct read_ahead {
    struct event_source source;
    struct event_batch batches[READ_AHEAD_BATCHES];
    pthread_t thread;
    bool is_running;
    uint32_t at; /* the next event of the batch in use */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t filled_n, used_n; /* batches; under the lock */
    bool is_to_stop;           /* under the lock */
};

/* Starts the thread. Returns 0 or a negative errno. */
int read_ahead_start(struct read_ahead *ret, const struct event_source *source);

/* As `next` of the source. After 0 or an error the thread has been stopped. */
int read_ahead_next(struct read_ahead *ahead, const struct event **ret);

/* Returns the progress of the source when it had made the events in use. */
int read_ahead_progress(const struct read_ahead *ahead);

/* Stops the thread, if it runs, and forgets events that were not used. */
void read_ahead_stop(struct read_ahead *ahead);

#endif

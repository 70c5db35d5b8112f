/* SPDX-License-Identifier: MIT */
/*
 * The engine of a simulation: makes the requests of the traffic to a candidate, each at its time,
 * and releases what is granted. Between them it stops the clock at each time at which the library
 * has something to decide, so that waits end exactly when they are due. All decisions are those of
 * the library.
 *
 * At one instant time comes first, then releases in the order of their grants, then arrivals in
 * theirs.
 */
#ifndef WEIR_TOOLS_SIMULATE_ENGINE_H
#define WEIR_TOOLS_SIMULATE_ENGINE_H

#include "mapping.h"
#include "release_heap.h"
#include "tally.h"
#include <stdio.h>

/* Requests that wait at a time. With more the simulation ends. */
#define ENGINE_WAITING_MAX (1u << 22)
/* Keys that a request names: those of the mapping, and other rates. */
#define ENGINE_KEYS_MAX (EVENT_VALUES_MAX + WEIR_LIMITS_MAX)

enum engine_mode { ENGINE_WAIT, ENGINE_TRY, ENGINE_TAKE };

struct engine_options {
    enum engine_mode mode;
    uint64_t timeout_ns, max_wait_ns; /* 0: as the set says */
    const struct mapping *mapping;
    FILE *decisions; /* or NULL */
    struct targets targets;
};

struct slot;

struct engine {
    struct engine_options options;
    struct candidate *candidate;
    struct tally tally;
    weir_queue *queue;

    const char *keys[ENGINE_KEYS_MAX];
    unsigned keys_n;
    bool has_key[ENGINE_KEYS_MAX]; /* a limit has it: of two candidates one suffices */
    int *key_limits;               /* of each set: the first limit with each key, or -1 */
    int *
        bindings; /* of each set: the limit that its head waited for when it was looked at, or -1 */
    int *limit_keys;            /* of each limit: its key, or -1 */
    int used[EVENT_VALUES_MAX]; /* of each amount: the value that is used, or -1 */
    bool keeps_nothing;         /* nothing that is released changes anything */

    struct slot *slots; /* requests that wait or hold something */
    uint64_t *values;   /* the amounts of each, as in events */
    uint32_t slots_n, unused, waiting_n;
    uint32_t last_waiter;              /* with waiting_n: that began to wait last */
    uint32_t prefetched, prefetched_n; /* the last waiter that was, and how many are ahead */
    bool is_in_order;     /* a request that waits behind others is decided after them */
    bool knows_due;       /* by `due_ns` */
    uint64_t due_ns;      /* when the library has something to decide, or earlier */
    uint64_t wait_ns_max; /* no request waits for longer; WEIR_FOREVER: for ever */
    uint32_t unlooked_n;  /* waiters since the engine has looked at what they wait for */
    struct release_heap releases;
    uint32_t *finished; /* slots that are only to be freed */
    uint32_t finished_n;
};

/* Opens an engine for an open candidate, as of its time. Returns 0, or a negative errno after a
 * message. */
int engine_open(struct engine *ret, struct candidate *candidate,
                const struct engine_options *options);
void engine_close(struct engine *engine);

/* Makes the next request. Returns 0, or a negative errno after a message. */
int engine_feed(struct engine *engine, const struct event *event);

/* Lets time pass until all requests are decided and released. Returns 0, or a negative errno after
 * a message. */
int engine_finish(struct engine *engine);

#endif

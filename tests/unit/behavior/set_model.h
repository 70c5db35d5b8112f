/* SPDX-License-Identifier: MIT */
/*
 * A set as the contract describes it, in the plainest way: limits by their formulas in the contract
 * over whole numbers of 1/C ns and 1/W units, a list of waiters, nothing shared with the library.
 * One thread, one instant at a time.
 */
#ifndef WEIR_TESTS_SET_MODEL_H
#define WEIR_TESTS_SET_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/weir.h>

__extension__ typedef __int128 i128;

#define MODEL_LIMITS  5
#define MODEL_LOG     64 /* grants that one window can hold */
#define MODEL_ASKERS  64 /* acquisitions at a time */
#define MODEL_BLOCKED (UINT64_MAX - 1)

enum model_algorithm {
    MODEL_BUCKET,
    MODEL_GCRA,
    MODEL_LEAKY,
    MODEL_SLIDING,
    MODEL_FIXED,
    MODEL_RESOURCE,
    MODEL_ALGORITHMS
};

struct model_state {
    i128 level; /* bucket: units·W; gcra: TAT·C; leaky: units·W; resource: units held */
    uint64_t last;
    uint64_t start, count; /* fixed window */
    bool started;
    unsigned log_n; /* sliding window */
    struct {
        uint64_t at, n;
    } log[MODEL_LOG];
};

struct model_limit {
    enum model_algorithm algorithm;
    enum weir_limit_type type;
    uint64_t capacity, window, burst;
    bool refunds, charges;
    bool strict;     /* its refunds */
    uint64_t shadow; /* percent of the requests that it does not refuse */
    struct model_state state;
    uint64_t granted, would_refuse, refused, refunded, overused;
};

enum model_phase { MODEL_WAITING, MODEL_HELD, MODEL_ENDED };

struct model_asker {
    weir_acquisition *real;
    weir *w; /* it is of this instance */
    enum model_phase phase;
    int result;
    bool pended;    /* it has waited */
    bool reserved;  /* it was granted in advance */
    bool seen;      /* the caller looked and knows of the grant */
    bool listening; /* it has a descriptor, which tells it */
    bool nested;
    struct model_asker *within; /* what it is nested in, unless that has given back everything */
    uint64_t amounts[MODEL_LIMITS], used[MODEL_LIMITS];
    uint64_t counted[MODEL_LIMITS]; /* of the amounts: not in shadow */
    uint64_t number;                /* of the request */
    bool untaken;                   /* those in shadow were not taken */
    bool updated[MODEL_LIMITS];
    uint64_t since, granted_at, deadline;
    int deadline_result;
    uint64_t max_wait_ends; /* not before the deadline */

    /* Submitted to the queue. */
    bool queued;        /* and not reaped yet */
    bool handle;        /* the program has its acquisition */
    uint64_t user_data; /* not always its own */
    uint64_t listed;    /* the how many-th submission it was */
    uint64_t decided;   /* when its completion was due, in steps; 0: not yet */
};

struct model {
    struct model_limit limits[MODEL_LIMITS];
    unsigned limits_n;
    uint64_t tick_ns; /* what time is counted in */
    uint64_t now;
    uint64_t reserved; /* the instant of the latest reservation */
    bool fair, per_limit;
    uint64_t max_waiters;
    uint64_t number; /* of the request that is made now, from 0 to 99 */
    bool nested;     /* the same; and in what */
    struct model_asker *within;
    struct model_asker *line[MODEL_ASKERS];
    unsigned line_n;
    struct weir_set_stats stats;
};

/* When `n` would be granted by this limit if nothing else happened. */
uint64_t model_limit_ready(const struct model_limit *limit, const struct model_state *state,
                           uint64_t now, uint64_t n);
uint64_t model_available(const struct model_limit *limit, uint64_t now);
/* What an acquisition holds of a limit, or waits for. */
uint64_t model_part(const struct model_asker *asker, unsigned limit);
/* The instant that counts for the limits: now, or that of the latest reservation. */
uint64_t model_instant(const struct model *model);
/* When all would be; resources included or counted as available. */
uint64_t model_ready(const struct model *model, const uint64_t *amounts, bool with_resources);
/* The forecast for a request that joins now, made from the whole wait queue. */
uint64_t model_forecast(const struct model *model, const uint64_t *amounts);

/* What the calls come to. A grant or a place in the wait queue fills `asker`; a take has none. */
int model_try(struct model *model, const uint64_t *amounts, struct model_asker *asker);
/* Without the decision about max_wait, which is the caller's. 0, 1, -ENOBUFS, -EDEADLK. */
int model_submit(struct model *model, const uint64_t *amounts, struct model_asker *asker);
void model_join(struct model *model, const uint64_t *amounts, struct model_asker *asker);
/* As model_try(), or granted as of `*ret_at`. -EAGAIN: with `*ret_busy` a request waits; otherwise
 * the grant would be more than `max_wait` from now. */
int model_reserve(struct model *model, const uint64_t *amounts, uint64_t max_wait,
                  struct model_asker *asker, uint64_t *ret_at, bool *ret_busy);
int model_update(struct model *model, struct model_asker *asker, unsigned limit, uint64_t used);
int model_return(struct model *model, struct model_asker *asker, unsigned limit, uint64_t n);
int model_cancel(struct model *model, struct model_asker *asker);
int model_release(struct model *model, struct model_asker *asker);

/* A waiter leaves with its deadline's result. */
void model_expire(struct model *model, struct model_asker *asker);
/* The first waiter that can be granted now, or NULL; and granting it. */
struct model_asker *model_ready_waiter(const struct model *model);
void model_grant(struct model *model, struct model_asker *asker);
/* Grants to waiters while any can be. */
void model_serve(struct model *model);
/* Whether the request that is made now would wait, and for ever. */
bool model_deadlocks(const struct model *model, const uint64_t *amounts);
/* The next instant at which something is due, or UINT64_MAX. */
uint64_t model_next(const struct model *model);

#endif

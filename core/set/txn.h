/* SPDX-License-Identifier: MIT */
/*
 * One attempt to change a set: what was read, what is to be published, and what has to be done once
 * that has happened. Made of parts that each edit the private version: serve the head, project the
 * line, add effects. set_*.c puts them together.
 */
#ifndef WEIR_CORE_SET_TXN_H
#define WEIR_CORE_SET_TXN_H

#include "set/set.h"

/* How often an estimate walks a line that does not stand still before it leaves the line out. */
#define FORECAST_WALKS_MAX 16u
#define FORECAST_QUEUE_MAX 64u

struct notification {
    uint32_t record;
    uint64_t word; /* what its word has become */
};

struct txn {
    struct thread_ctx *ctx;
    weir_set *set;
    struct version version;
    uint64_t now_ns;        /* the clock */
    struct weir_instant at; /* when limits are asked about: ahead of it if somebody reserved */
    unsigned
        forecast_walks; /* of the line for an estimate that came to nothing; zeroed by whoever asks */

    /* Once published: */
    struct notification notifications[2];
    uint32_t notifications_n;
    uint64_t recheck_ns; /* the keeper of `arm` is to look at it then; WEIR_FOREVER: no change */
    struct notification recheck;
    uint64_t head_ready_ns;  /* when the head can be granted by time alone; WEIR_FOREVER: not */
    bool grant_again;        /* the new head can be granted too */
    uint32_t granted_record; /* the record that was granted, or 0 */
    uint64_t waited_ns;      /* and how long it had waited */
};

/* Reads the set; everything after is of this version or will not be published. */
void txn_begin(struct txn *txn, struct thread_ctx *ctx, weir_set *set);

/* Whether what was read, links and records included, is still current. */
bool txn_is_current(const struct txn *txn);

/* Publishes; false: somebody was faster, read again. On success wakes and arms what is due. */
bool txn_commit(struct txn *txn);

/* The same for what asks no algorithm: without a line, the instant is that of the version. */
void txn_begin_untimed(struct txn *txn, struct thread_ctx *ctx, weir_set *set);

/* Boxes a set that has such a word, which owes nothing, and leaves it boxed until whoever asks for
 * that has published something. False: somebody was faster. */
bool txn_inflate(struct txn *txn, struct thread_ctx *ctx, weir_set *set, uint64_t word);

static inline uint64_t *txn_states(const struct txn *txn)
{
    return txn->version.content + CONTENT_STATES;
}

/*
 * Whether what can be granted at `ready` can be granted now. Never while a reservation is ahead of
 * the clock: nothing is ready before the instant that limits are asked about.
 */
static inline bool txn_is_ready(const struct txn *txn, uint64_t ready)
{
    return ready <= txn->now_ns;
}

/* Whether a record that waits is in line. If it is not, either the set has changed since it was read,
 * or it is shared, and broken from now on. */
bool txn_has_waiter(const struct txn *txn, uint32_t record);

/* The amounts of a record, copied to `ret`. */
static inline void txn_amounts(const struct txn *txn, uint32_t record, uint64_t *ret)
{
    const struct acq_record *r = record_at(txn->set->region, record);

    for (uint32_t i = 0; i < txn->set->limits.n; i++)
        ret[i] = atomic_load_explicit(&r->amounts[i], memory_order_relaxed);
}

/* When the head can be granted, as things are in the private version; WEIR_NEVER without a head. */
uint64_t txn_head_ready(const struct txn *txn);

/* Who looks at the head already, for when time alone will do. */
enum head_watch {
    HEAD_WATCH_NONE,
    HEAD_WATCH_BY_CALLER, /* whenever that is */
    HEAD_WATCH_AS_READ    /* somebody, for when it was by the states that txn_save_states() saw */
};

/* Keeps the states as they are, as far as txn_grant_waiters() is to know of them. */
void txn_save_states(const struct txn *txn);

/*
 * Grants to the head if it can be granted now. Otherwise, or for the head after it: if time alone
 * will do, sees to it that somebody looks then, unless somebody does.
 */
void txn_grant_waiters(struct txn *txn, enum head_watch watch);

/* forecast.c: the projection, the state as it will be when everybody in line has been served. */

/* Whether it foresees when everybody in line is served. */
bool forecast_is_valid(const struct txn *txn);
/* Extends the projection, if it is valid or the line is empty, by a request that joins the line.
 * False: it is not, because the request can never be granted. */
bool forecast_append(struct txn *txn, const uint64_t *amounts);
/* The same of a valid one whose words are elsewhere. */
bool forecast_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                     const uint64_t *amounts);
/* It no longer holds: somebody left the line, or something was given back. */
static inline void forecast_invalidate(struct txn *txn)
{
    uint32_t flags = version_flags(&txn->version);

    version_set_flags(&txn->version, flags & ~(uint32_t)CONTENT_FORECAST);
}
/* The first instant at which `amounts` would be granted to somebody who joins now; false: the set
 * has changed meanwhile. */
bool forecast_compute(struct txn *txn, const uint64_t *amounts, struct decision *ret);

#endif

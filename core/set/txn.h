/* SPDX-License-Identifier: MIT */
/*
 * Transactions: one attempt to change a set on the slow path. A transaction copies the current
 * version, edits the copy (grants to the head, extends the forecast, defers writes), and commits it
 * by one CAS, as in Herlihy's copy-and-CAS (TOPLAS 1993). Notifications follow the commit. set_*.c
 * composes these parts.
 */
#ifndef WEIR_CORE_SET_TXN_H
#define WEIR_CORE_SET_TXN_H

#include "set/fairness.h"

/* A forecast ignores the waiters after so many failed walks; and the limit of
 * FORECAST_SHORT_QUEUE. */
#define FORECAST_WALKS_MAX 16u
#define FORECAST_QUEUE_MAX 64u

struct notification {
    uint32_t record;
    uint64_t word; /* its new word */
};

struct txn {
    struct thread_ctx *ctx;
    weir_set *set;
    struct version version;
    uint64_t now_ns;         /* clock reading */
    struct weir_instant at;  /* for limits; later than now_ns if reserved */
    unsigned forecast_walks; /* failed walks for a forecast; reset by the caller */
    unsigned settled_n;      /* calls of set_settle_heads(); reset by the caller */
    uint32_t within;         /* of the request, as in struct acquire_op; set by the caller */
    const uint64_t *asked;   /* of a set with limits in shadow: all amounts of the request */
    uint64_t shadow_number;  /* of the request (shadow.h) */
    const struct limit *shadow_limiting; /* of the grant: it would have refused; or NULL */
    uint32_t wait_class;

    /* For after the commit: */
    struct notification notifications[2];
    uint32_t notifications_n;
    uint64_t recheck_ns; /* time for the wait timer to check `recheck`; WEIR_FOREVER: none */
    struct notification recheck;
    uint64_t next_ready_ns;  /* the next waiter is ready by time alone; WEIR_FOREVER: not */
    bool grant_again;        /* more waiters are ready, or may be */
    uint32_t granted_record; /* 0: none */
    uint64_t waited_ns;      /* wait of that record */
    bool ends_impossible;    /* a waiter ends that can never be granted by this definition */
    uint32_t left_class;     /* of a set with classes: of the waiter that was removed last */
};

/* Reads the set. All that is read later belongs to this version, or the commit fails. */
void txn_begin(struct txn *txn, struct thread_ctx *ctx, weir_set *set);

/* Returns true if all that was read, links and records included, is still current. */
bool txn_is_current(const struct txn *txn);

/* Returns whether the records of the wait queue are as this version says: of a set that has moved
 * they change with its successor. */
bool txn_is_queue_current(const struct txn *txn);

/* Publishes the version, then sends notifications and schedules the recheck. False: another thread
 * committed first; begin again. */
bool txn_commit(struct txn *txn);

/* Returns whether an inline state word can be, else marks the set broken. */
bool inline_word_is_valid(const weir_set *set, uint64_t word);

/* Inflates a set that is inline, so that a request can be enqueued, unless it has changed. Returns
 * 0 or -ENOMEM. */
int set_inflate(struct thread_ctx *ctx, weir_set *set, uint64_t word);

static inline uint64_t *txn_states(const struct txn *txn)
{
    return waitq_states(&txn->version);
}

/* Returns true if a request that is ready at `ready` can be granted now. False while a reservation
 * is ahead of the clock: no limit is ready before the reserved time. */
static inline bool txn_is_ready(const struct txn *txn, uint64_t ready)
{
    return ready <= txn->now_ns;
}

/* Removes a waiter from any place of the wait queue. The caller changes its word. */
void txn_remove_waiter(struct txn *txn, uint32_t record);

/* Returns true if a WAITING record is in the wait queue. False: the set has changed since it was
 * read, or it is shared and now marked broken. */
bool txn_has_waiter(const struct txn *txn, uint32_t record);

static inline void txn_amounts(const struct txn *txn, uint32_t record, uint64_t *ret)
{
    fairness_amounts(txn->set, record, ret);
}

/* As fairness_first_ahead() of the transaction's request, fairness_next() and
 * fairness_last_nested(). */
static inline uint32_t txn_first_ahead(const struct txn *txn, const uint64_t *amounts)
{
    const struct newcomer newcomer = {amounts, txn->within, txn->wait_class};

    return fairness_first_ahead(txn->set, &txn->version, &newcomer);
}

static inline uint32_t txn_next_by(const struct txn *txn, const uint64_t *states,
                                   uint64_t *ret_ready)
{
    return fairness_next(txn->set, &txn->version, &txn->at, states, ret_ready);
}

static inline uint32_t txn_next(const struct txn *txn, uint64_t *ret_ready)
{
    return txn_next_by(txn, txn_states(txn), ret_ready);
}

/* Returns when the next waiter is ready, by the private version; WEIR_NEVER without waiters. */
uint64_t txn_next_ready(const struct txn *txn);

/* Returns true if the next waiter, ready at `ready`, can never be granted, but by an earlier
 * definition of the set. */
static inline bool txn_is_impossible(const struct txn *txn, uint32_t record, uint64_t ready)
{
    return ready == WEIR_NEVER && record &&
           set_may_be_impossible(txn->set, set_record(txn->set, record));
}

/* Returns true if the next waiter is ready, or can never be, or the deadline of one that others
 * wait for has passed. Only txn_is_current() says whether that is so. */
bool txn_is_unsettled(const struct txn *txn);

/* Which thread checks the next waiter at the time it becomes ready. */
enum head_watch {
    HEAD_WATCH_NONE,
    HEAD_WATCH_BY_CALLER, /* the caller, at any time */
    HEAD_WATCH_AS_READ    /* a thread, when ready by the saved states */
};

/* Saves the states of the version that was read, for HEAD_WATCH_AS_READ. */
void txn_save_states(const struct txn *txn);

/* Grants to the next waiter (fairness.h) if it is ready. If that one, or the one after it, becomes
 * ready by time alone, makes sure that it is checked then. */
void txn_grant_waiters(struct txn *txn, enum head_watch watch);

/* shadow.c: what limits in shadow grant. */

/* Takes the covered ones of `asked` for the grant of a transaction, adds what was taken to
 * ctx->granted_amounts, and returns `granted_ns` for the record. `waiter` 0: a new request. */
uint64_t shadow_take(struct txn *txn, uint32_t waiter, const uint64_t *asked, uint64_t number);
/* Takes those that a waiter has asked for. */
uint64_t shadow_take_waiter(struct txn *txn, uint32_t record);
/* Counts a grant that a limit in shadow would have refused. */
void shadow_count(const struct txn *txn);

/* forecast.c: the forecast holds the states as of the grant of the last waiter. */

/* Words of a forecast: its time, then its states. */
enum { FORECAST_AT_NS = 0, FORECAST_STATES = 1 };

static inline bool forecast_is_valid(const struct txn *txn)
{
    return (version_flags(&txn->version) & CONTENT_FORECAST) != 0;
}

/* Starts a forecast in the private copy: nothing was granted yet. Rates or calls only. */
void forecast_init(const struct txn *txn);
/* Extends a valid forecast by the transaction's request, or starts one if the wait queue is empty;
 * drops it if that one overtakes others. False: the request can never be granted. */
bool forecast_append(struct txn *txn, const uint64_t *amounts);
static inline uint64_t *forecast_words(const struct txn *txn)
{
    return txn_states(txn) + txn->set->limits.state_words;
}

/* Extends a valid forecast that is in `words`. False: the request can never be granted. */
bool forecast_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                     const uint64_t *amounts);
/* Invalidates the forecast: a waiter has left out of turn, or units were returned. */
static inline void forecast_invalidate(struct txn *txn)
{
    uint32_t flags = version_flags(&txn->version);

    version_set_flags(&txn->version, flags & ~(uint32_t)CONTENT_FORECAST);
}
/* Invalidates a forecast that was made before the wall clock stepped. Its states belong to windows
 * that begin and end at other instants now. */
static inline void forecast_check_wall(struct txn *txn)
{
    if (!forecast_is_valid(txn))
        return;
    if (forecast_words(txn)[set_forecast_words(txn->set) - 1] != (uint64_t)txn->at.wall_offset_ns)
        forecast_invalidate(txn);
}
/* Forecasts when `amounts` would be granted to a new waiter. False: the set has changed. */
bool forecast_compute(struct txn *txn, const uint64_t *amounts, struct decision *ret);

#endif

/* SPDX-License-Identifier: MIT */
/* Acquiring: one operation from the caller's request to the set's decision, and the slow paths of
 * the acquiring calls. fast_path.c tries the fast path first. */
#ifndef WEIR_CORE_API_ACQUIRE_H
#define WEIR_CORE_API_ACQUIRE_H

#include "api/acquisition.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include <errno.h>

struct pool_choice;

/* ---- acquire_op.c ---- */

/* Finds the set of a pool with an only one, resolves the request to amounts and finds the thread's
 * context. Returns 0 or an error of the request or of the instance. A refusal of a key is counted
 * and stored in `retref`. */
int acquire_op_prepare(struct acquire_op *op, weir_pool *pool, const struct weir_request *request,
                       enum purpose purpose, struct weir_refusal *retref);

/* Finds the set for the request in a pool, or for the member of one: that of what the request is
 * nested in, else the only set. */
void acquire_within_pick(struct acquire_op *op, weir_pool *pool);
/* Finds what the request is nested in: fills in op->within. Returns 0, -EINVAL or -EUCLEAN. */
int acquire_within_find(struct acquire_op *op);

/* Fills a FREE record for this request, with a blocked thread (futex) as wait target. */
void acquire_op_fill_record(const struct acquire_op *op, uint32_t record);

/* Notes in a new acquisition what the request says of it. */
void acquire_op_describe(struct acquire_op *op, weir_acquisition *acquisition);

/* Submits the operation and fills the caller's refusal, but not after -EAGAIN from a probe: its
 * caller comes back to wait. */
int acquire_op_execute(struct acquire_op *op, uint32_t record, enum wait_mode mode);
/* Counts the grant of a request that asks for nothing. */
void acquire_op_count_empty(const struct acquire_op *op, bool is_taken);
/* Asks the set, as set_ops.acquire specifies, and has its holders watched if there is a max_hold:
 * that returns besides why they cannot be. */
int acquire_op_ask_watched(struct acquire_op *op, uint32_t record, enum wait_mode mode);
static inline int acquire_op_ask(struct acquire_op *op, uint32_t record, enum wait_mode mode)
{
    if (op->set->limits.has_max_hold)
        return acquire_op_ask_watched(op, record, mode);
    return op->set->ops->acquire(op, record, mode, request_max_wait(op->set, op->request));
}

/* Turns the times of a decision, which are of the set's clock, into those of the instance's. */
static inline void acquire_op_use_instance_time(struct acquire_op *op)
{
    if (!(op->set->limits.clock_needs & CLOCK_NEEDS_BOOTTIME))
        return;
    op->decision.now_ns = set_to_instance_ns(op->set, op->decision.now_ns);
    op->decision.forecast_ns = set_to_instance_ns(op->set, op->decision.forecast_ns);
}

/*
 * Makes an acquisition and submits the operation: MODE_TRY, MODE_PROBE or MODE_RESERVE. Returns 0
 * and the acquisition if it is granted. After -EAGAIN from a probe `*ret` is the acquisition to
 * wait with; every other failure frees it.
 */
int acquire_op_try(struct acquire_op *op, enum wait_mode mode, weir_acquisition **ret);

/* Schedules the checks of a waiter of a shared set. Its record was enqueued and became `word`.
 * Stalled or dead peers cannot hold it up from here on. */
void acquire_op_schedule(struct acquire_op *op, uint32_t waiter, uint64_t word);

/* Publishes when the wait of a record ends, before the record is enqueued in a shared set. Peers
 * end the wait if this process is stopped. */
void acquire_op_publish_deadline(const struct acquire_op *op, uint32_t record, uint32_t timer);

/* Fills the refusal from a decision if the result is one of the set: -EAGAIN, -ENOBUFS, -ERANGE or
 * -ETIMEDOUT. With others there may be no decision. `ret` may be NULL. */
void acquire_op_fill_refusal(struct weir_refusal *ret, const weir_set *set, int result,
                             const struct decision *decision);

/* Forecasts the decision on the amounts of a record, which it copies to `op`. */
void acquire_op_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk);

/* Returns when a wait that begins at `now` ends, and the record's state from then on: at the
 * earlier of timeout and max_wait. If both pass at once, the wait times out. */
uint64_t acquire_op_deadline(const struct acquire_op *op, uint64_t now,
                             enum record_state *ret_state);

/* Return whether the set, or what a pool chooses by, is another one since a call was made. */
bool acquire_set_has_changed(weir_pool *pool);
bool acquire_pool_has_changed(weir_pool *pool, const struct pool_choice *choice);

/* Returns whether a call that returned `r` has to be made again, which was made by this choice, or
 * by the only set (NULL): that set, or the pool, has got a new definition. -ESTALE remains if the
 * set or the pool was removed. */
static inline bool acquire_is_outdated(weir_pool *pool, const struct pool_choice *choice, int r)
{
    return r == -ESTALE && acquire_pool_has_changed(pool, choice);
}

/* ---- acquire.c: the slow paths, for any set ---- */

/* Prepares the operation and asks the set, of a pool with an only one. `heeds_token`: a canceled
 * token of the request refuses it. Returns 0 and the acquisition if it is granted; -EAGAIN and the
 * acquisition to wait with; or an error. */
int acquire_probe(struct acquire_op *op, weir_pool *pool, const struct weir_request *request,
                  bool heeds_token, weir_acquisition **ret, struct weir_refusal *retref);

/* Enqueues the acquisition that a probe has made, with the instance's wait timer or of a thread
 * that keeps the time. Returns 0 (granted), 1 (waiting) or a refusal; a refusal frees the
 * acquisition. */
int acquire_enqueue(struct acquire_op *op, weir_acquisition *acquisition, bool with_timer);

/* Any of the slow paths below that make an acquisition. */
typedef int slow_path_fn(weir_pool *pool, const struct weir_request *request,
                         weir_acquisition **ret, struct weir_refusal *retref);

/* The contracts are those of weir_take, weir_try_acquire, weir_submit and weir_acquire. */
int acquire_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref);
int acquire_try(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref);
int acquire_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref);
int acquire_and_wait(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref);

#endif

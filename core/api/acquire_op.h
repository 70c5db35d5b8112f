/* SPDX-License-Identifier: MIT */
/* One call that asks for something, from the caller's request to the set's answer. */
#ifndef WEIR_CORE_API_ACQUIRE_OP_H
#define WEIR_CORE_API_ACQUIRE_OP_H

#include "api/acquisition.h"
#include "api/request.h"
#include "set/set_op.h"

/*
 * Picks a set, turns keys into amounts, and finds the thread's actor: 0. Otherwise an error of the
 * request or of the instance, counted, and told to `retref` if a key is to blame.
 */
int acquire_op_prepare(struct acquire_op *op, weir_pool *pool, const struct weir_request *request,
                       enum purpose purpose, struct weir_refusal *retref);

/* Fills a free record for this request, as one that a blocked thread waits on. */
void acquire_op_fill_record(const struct acquire_op *op, uint32_t record);

/* acquire_op_submit() of a keyed set. */
int acquire_op_submit_keyed(struct acquire_op *op, uint32_t record, enum wait_mode entry,
                            uint64_t max_wait_ns);

/* As set_acquire(), with all that was asked for; of a keyed set `set` may be another afterwards. */
static inline int acquire_op_submit(struct acquire_op *op, uint32_t record, enum wait_mode entry,
                                    uint64_t max_wait_ns)
{
    if (op->set->keyed)
        return acquire_op_submit_keyed(op, record, entry, max_wait_ns);
    return set_acquire(op->ctx, op->set, op->amounts, record, entry, max_wait_ns, &op->verdict);
}

/* Asks the set; a refusal is told to the caller, except after a probe, who comes back to wait. */
int acquire_op_execute(struct acquire_op *op, uint32_t record, enum wait_mode entry);

/*
 * A new acquisition that holds what was asked for if that can be had at once, or in advance: 0.
 * Otherwise, as `entry` says: -EAGAIN after a probe leaves `*ret`, every other failure frees it.
 */
int acquire_op_try(struct acquire_op *op, enum wait_mode entry, weir_acquisition **ret);

/*
 * The record, kept as `kept`, has joined the line and become `word`. Of a set that processes share
 * it is looked after from here on, whatever they do.
 */
void acquire_op_schedule(struct acquire_op *op, uint32_t waiter, uint64_t word);

/*
 * The record is about to join a line: of a set that processes share others see when its wait is to
 * end, should this process be stopped.
 */
void acquire_op_publish_deadline(const struct acquire_op *op, uint32_t record);

/* Tells a refusal to `ret`, which may be NULL. */
void acquire_op_fill_refusal(struct weir_refusal *ret, const weir_set *set,
                             const struct decision *decision);

/* When a wait that begins at the verdict ends, and what the record becomes then. */
uint64_t acquire_op_deadline(const struct acquire_op *op, enum record_state *ret_state);

#endif

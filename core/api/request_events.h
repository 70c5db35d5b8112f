/* SPDX-License-Identifier: MIT */
/* Events of requests and acquisitions: which call tells what (weir/event.h). */
#ifndef WEIR_CORE_API_REQUEST_EVENTS_H
#define WEIR_CORE_API_REQUEST_EVENTS_H

#include "set/events.h"
#include "wait/acquisition_handle.h"

/* Tells a request that was resolved, and fills in op->tag; or its refusal, if `r` is negative, for
 * the key of `key`. Sets op->is_observed, by which all that follows goes. */
void acquire_op_tell_request(struct acquire_op *op, int r, const char *key);

/* Tells what became of a request: granted (0), waiting (1), or refused. `acquisition` NULL: it has
 * none. */
void acquire_op_tell_result(const struct acquire_op *op, const weir_acquisition *acquisition,
                            int r);
/* Tells that a request ends before its set was asked, and returns `r`, which says why. */
int acquire_op_tell_failure(const struct acquire_op *op, int r);
/* Tells that a submission without an acquisition, or one that another thread may reap by now, has
 * entered a wait queue. */
void acquire_op_tell_wait(const struct acquire_op *op, uint32_t record, uint64_t enqueued_ns);

/* Keeps what the request says of itself for later events. Without memory they lack it. */
void acquisition_keep_tag(const struct acquire_op *op, weir_acquisition *acquisition);

/* Tells the decision of an acquisition that has waited, once; `key` of the limit that refused, or
 * NULL. */
void acquisition_tell_decision(weir_acquisition *acquisition, int result, const char *key);
/* Tells that an acquisition was canceled. */
void acquisition_tell_cancel(weir_acquisition *acquisition);
/* Tells what ends with an acquisition that is about to be released: a grant, or a wait.
 * `is_unused`: the program does not know of the grant. */
void acquisition_tell_release(weir_acquisition *acquisition, enum record_state state,
                              bool is_unused);

#endif

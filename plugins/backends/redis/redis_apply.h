/* SPDX-License-Identifier: MIT */
/* Has a server go on with another definition of a set, without a request. */
#ifndef WEIR_REDIS_APPLY_H
#define WEIR_REDIS_APPLY_H

#include "redis_connection.h"
#include "redis_reply.h"

/* See backend.h. Any thread, without the lock. */
int redis_apply(void *set, const struct weir_backend_apply *how, struct weir_reason *reterr);
/* Answers the thread that waits for the reply to `weir_redefine`; `code` -EAGAIN: it asks again.
 * `reply` may be NULL, or an error. The caller has the connection's lock. */
void redis_apply_answer(const struct redis_call *call, int code, const struct redis_reply *reply);

#endif

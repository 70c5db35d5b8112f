/* SPDX-License-Identifier: MIT */
/* What a snapshot tells: the reply to `weir_snapshot`, and where nodes decide limits the text. */
#ifndef WEIR_REDIS_SNAPSHOTS_H
#define WEIR_REDIS_SNAPSHOTS_H

#include "redis_connection.h"
#include "redis_reply.h"

/* Takes what a reply to one of the calls says, or NULL and a code. Answers the thread that waits
 * for them after the last one. The caller has the connection's lock. */
void redis_snapshots_answer(const struct redis_call *call, int code,
                            const struct redis_reply *reply);

#endif

/* SPDX-License-Identifier: MIT */
/* What becomes of a call by its reply, or by the loss of the link. The caller of each function has
 * the connection's lock. */
#ifndef WEIR_REDIS_ANSWERS_H
#define WEIR_REDIS_ANSWERS_H

#include "redis_connection.h"

void redis_answers_take(struct redis_server *server, const struct redis_call *call,
                        const struct redis_reply *reply);
/* The reply will never come. */
void redis_answers_lose(const struct redis_call *call);

#endif

/* SPDX-License-Identifier: MIT */
/* What becomes of a call that the server answers with an error. */
#ifndef WEIR_REDIS_ERRORS_H
#define WEIR_REDIS_ERRORS_H

#include "redis_connection.h"

/* The caller has the connection's lock. */
void redis_errors_take(struct redis_server *server, const struct redis_call *call,
                       const struct redis_reply *reply);

#endif

/* SPDX-License-Identifier: MIT */
/* What becomes of a message from an inbox: the server has done something for a session by itself.
 */
#ifndef WEIR_REDIS_MESSAGES_H
#define WEIR_REDIS_MESSAGES_H

#include "redis_connection.h"

/* Acts on a message from the inbox of a server, with the connection's lock. */
void redis_messages_take(struct redis_server *server, const char *text, size_t size);

#endif

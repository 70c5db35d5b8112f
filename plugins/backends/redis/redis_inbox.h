/* SPDX-License-Identifier: MIT */
/*
 * The inbox of this process: a list on each server, to which functions push what threads wait for.
 * A link of its own reads it, by several BLPOP at a time: so many messages take one round trip.
 *
 * In the thread of `run`. The caller has the connection's lock.
 */
#ifndef WEIR_REDIS_INBOX_H
#define WEIR_REDIS_INBOX_H

#include "redis_connection.h"

/* Names the inbox, once the process has a name. */
void redis_inbox_name(struct redis_server *server);
/* Asks for messages. Returns 0, or an error of the link. */
int redis_inbox_ask(struct redis_server *server);
/* Acts on what has come. Returns 0, or an error of the link. */
int redis_inbox_serve(struct redis_server *server);
/* Returns when the link is to be given up if nothing is heard. */
uint64_t redis_inbox_end_ns(const struct redis_server *server);

#endif

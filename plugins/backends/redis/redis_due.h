/* SPDX-License-Identifier: MIT */
/*
 * When sessions have something to do: a heap of all sessions of a connection. The instant of a
 * session is not later than that: it may be looked at in vain, and then gets its next instant.
 * So the thread of `run` looks at those that are due, and not at all others each time it wakes up.
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_DUE_H
#define WEIR_REDIS_DUE_H

#include "redis_connection.h"

/* Adds a session, which is not due. Returns 0, or -ENOMEM. */
int redis_due_add(struct redis_session *session);
void redis_due_remove(struct redis_session *session);

/* Has a session be due at this instant at the latest. Wakes the thread of `run` for it. */
void redis_due_by(struct redis_session *session, uint64_t at_ns);
/* Has all sessions of a server be due now: what they may do has changed. */
void redis_due_all(const struct redis_server *server);
/* Has a session be due at this instant, which may be later than before. */
void redis_due_set(struct redis_session *session, uint64_t at_ns);
/* Returns the session that is due first, or NULL if there is none. */
struct redis_session *redis_due_first(const struct redis_connection *connection);

#endif

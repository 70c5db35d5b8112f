/* SPDX-License-Identifier: MIT */
/*
 * Limits of algorithms that the server does not have: this process decides them, by the core. Their
 * states are one text at the server, with a version. A round decides all that has come up in a
 * session, by the text and the instant of the last reply, and commits what follows in one call.
 *
 *     known ──► decide ──► commit ──► granted: all of it has taken effect
 *       ▲          │          ├─────► conflict: decide again by the text of the reply, after a
 * while │          ▼          └─────► refused: without that one fetch ◄── a refusal that nothing
 * proves
 *
 * One call is on its way at a time, so requests that come meanwhile are decided together. A grant
 * is proved by its commit. A refusal is proved by a reply to a call that was sent after the request
 * had come. Releases of such limits are committed as well, since they change the text. A request
 * that has to wait is queued at the server, which tells when it is at the head (`redis_decisions_
 * wake`).
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_DECISIONS_H
#define WEIR_REDIS_DECISIONS_H

#include "redis_connection.h"
#include "redis_reply.h"

/* Returns 1 if what has to be done for the ticket next is a matter of rounds. */
int redis_decisions_have(const struct redis_ticket *ticket);
/* Has a round do it. Returns 0, or -ENOMEM. */
int redis_decisions_add(struct redis_ticket *ticket);
/* Takes the ticket out of what is to be decided. */
void redis_decisions_drop(struct redis_ticket *ticket);
/* Has the ticket be known as a waiter of the server. */
void redis_decisions_queue(struct redis_ticket *ticket);

/* Begins a round, if there is something to be decided and nothing on its way. */
void redis_decisions_go(struct redis_session *session);
/* The server says that the head of its wait queue is to be decided, or its timer has run out.
 * Returns 0 if the head is none of this kind. */
int redis_decisions_wake(struct redis_session *session);
/* The text is not known any more. */
void redis_decisions_forget(struct redis_session *session);
/* The server is another one than before, or has lost data. */
void redis_decisions_restart(struct redis_session *session);
/* Goes on after a pause. Returns when to look again. */
uint64_t redis_decisions_tick(struct redis_session *session, uint64_t now_ns);
void redis_decisions_free(struct redis_session *session);

/* Acts on the reply to a call, which is not an error. Returns 0, or -EPROTO: it is not understood,
 * and the call is still on its way. */
int redis_decisions_take(const struct redis_call *call, const struct redis_reply *reply);
/* The call was not carried out: it is done anew. */
void redis_decisions_repeat(const struct redis_call *call);
/* The server has refused the call: so are requests. */
void redis_decisions_fail(const struct redis_call *call, int code);
/* The call may have been carried out. */
void redis_decisions_lose(const struct redis_call *call);

/* Fills what a snapshot tells of these limits, by the reply to `weir_fetch`, or as of a new set:
 * NULL. Returns 0 or an error. */
int redis_decisions_look(const struct redis_set *set, const struct redis_reply *reply,
                         struct weir_backend_snapshot *ret);

#endif

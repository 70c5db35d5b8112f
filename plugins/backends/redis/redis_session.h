/* SPDX-License-Identifier: MIT */
/*
 * Sessions: what keeps the tickets of this process alive in a key, and finds out which they are.
 *
 * A session is counted from the moment at which the heartbeat was sent that the server answered, by
 * CLOCK_BOOTTIME, less a margin. Then it is lost, even if nothing is heard: another one, of another
 * name, is opened when it is needed.
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_SESSION_H
#define WEIR_REDIS_SESSION_H

#include "redis_connection.h"

/* Returns the session in the key of the set, or of a subject; NULL if there is no memory. */
struct redis_session *redis_session_get(struct redis_set *set, const void *subject, size_t size);
/* Returns the session in a key, or NULL. */
struct redis_session *redis_session_of_key(const struct redis_connection *connection,
                                           const char *key, size_t size);
/* Returns 1 if nothing is left of a session. */
int redis_session_is_unused(const struct redis_session *session);
/* Notes whether the session has something that could not be sent yet. */
void redis_session_set_unsent(struct redis_session *session, int is_unsent);
/* Gives up a session with all its tickets. No call names them any more. */
void redis_session_free(struct redis_session *session);

/* Has a session, for the call that comes next. Returns 0, or -ENOMEM. */
int redis_session_open(struct redis_session *session);
/* Ends a session: on the server too, if it can be reached. */
void redis_session_leave(struct redis_session *session);
/* The session has ended. What was held is lost; what is asked is asked again. */
void redis_session_lose(struct redis_session *session);
/* The server has confirmed the session by the reply to a call that was sent at this time. */
void redis_session_renew(struct redis_session *session, uint64_t sent_ns);
/* Returns 1 if the session has not run out. If it has, it is lost. */
int redis_session_is_alive(struct redis_session *session);

/* Returns 1 if calls about the session can be sent now. */
int redis_session_can_send(const struct redis_session *session);
/* Has it go on at a server, be it the same, once nothing is on its way; `asks`: as one with a slot
 * that is on its way there. Not before `resume_ns` of the session, if that is not 0. */
void redis_session_move(struct redis_session *session, struct redis_server *target, int asks);
/* Ends a move, if there is one and nothing is on its way. */
void redis_session_arrive(struct redis_session *session);
/* Sends the heartbeat again, preceded by ASKING. */
void redis_session_beat_asking(struct redis_session *session);
/* A request of the session may wait: messages have to come. */
void redis_session_want_inbox(struct redis_session *session);

/* Tells the core whether the server can be asked, if the session is that of a whole set. */
void redis_session_tell_away(const struct redis_session *session);
/* Goes on over a new link: tells the server what is held, and sends what it may not have. */
void redis_session_resume(struct redis_session *session);
/* Asks the server what it has of this session. */
void redis_session_list(struct redis_session *session, int64_t cursor);
#define REDIS_AT_ONCE 1 /* us. By 0 a server says that this node has to decide the head */
/* Keeps the timer of the waiter at the head: us from now, -1: none. */
void redis_session_set_timer(struct redis_session *session, int64_t us);
/* Does what is due now. Returns when there will be something again. */
uint64_t redis_session_tick(struct redis_session *session, uint64_t now_ns);

#endif

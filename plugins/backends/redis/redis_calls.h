/* SPDX-License-Identifier: MIT */
/*
 * Calls on their way to the server and back, over one link for each server, by all threads of the
 * process.
 *
 *     redis_call_begin(session, "weir_pump", 0);
 *     r = redis_call_end(server, &(struct redis_call){.kind = …});     redis_calls_flush(…);
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_CALLS_H
#define WEIR_REDIS_CALLS_H

#include "redis_connection.h"

/* Returns 1 if nothing more should be sent for now. */
int redis_calls_are_full(const struct redis_server *server);
/* Begins a call about the session's key, with so many arguments after those that all calls have.
 * They are added to the outbox of its server. */
void redis_call_begin(struct redis_session *session, const char *function, size_t arguments_n);
/* Ends it, and counts it as sent now. Returns 0; or -ENOMEM: it was not made. */
int redis_call_end(struct redis_server *server, const struct redis_call *call);

/* Returns 1 for a call of a thread that looks at a set. */
static inline int redis_call_is_snapshot(const struct redis_call *call)
{
    return call->kind == REDIS_CALL_SNAPSHOT || call->kind == REDIS_CALL_LOOK;
}

/* Sends what is in the outbox, as far as the link takes it. Lets the lock go meanwhile. */
void redis_calls_flush(struct redis_server *server);
/* Reads replies of the server at which the waiter's session is, and acts on them, until the waiter
 * is answered, or `until_ns` by CLOCK_MONOTONIC. Returns 1 if it is answered. */
int redis_calls_wait(struct redis_waiter *waiter, uint64_t until_ns);
/* Sleeps until the session may be able to send. Returns 0 if the time is over. */
int redis_calls_wait_to_send(struct redis_waiter *waiter, uint64_t until_ns);
/* Has the threads that wait look where they have to wait. */
void redis_calls_wake_waiters(struct redis_server *server);
/* Answers a waiter. */
void redis_calls_answer(struct redis_waiter *waiter);
/* In the thread of `run`: reads what has come, if no thread is in that role; sends what was held
 * up. `events`: what epoll says of the link. */
void redis_calls_serve(struct redis_server *server, uint32_t events);

/* Has the thread of `run` wake up by this instant. */
void redis_calls_wake_by(struct redis_connection *connection, uint64_t at_ns);
/* Gives the link up; the thread of `run` makes another one. `what` is logged, NULL: nothing. */
void redis_calls_break(struct redis_server *server, const char *what);
/* Forgets the calls on their way, of a link that was given up and has no thread on it. */
void redis_calls_forget(struct redis_server *server);
/* Forgets the sessions of a set that is closed: replies about them are dropped. */
void redis_calls_forget_set(const struct redis_set *set);

/* Forgets a thread that waits no more. */
void redis_calls_forget_waiter(struct redis_server *server, const struct redis_waiter *waiter);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Tickets: requests and grants of this process, by token, by hold, and by slot and serial number.
 *
 *     ASKING ──► QUEUED ──► HELD ──► RELEASING ──► ENDED
 *        └──────────┴──► CANCELING ──────┘
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_TICKETS_H
#define WEIR_REDIS_TICKETS_H

#include "redis_connection.h"

/* Makes a ticket for a request. Returns 0, -ENOMEM, or -ENOBUFS: there are 2^20 of them. */
int redis_ticket_new(struct redis_session *session, const struct weir_backend_ask *ask,
                     struct redis_ticket **ret);
/* Returns the ticket of a token that is not decided, or NULL. */
struct redis_ticket *redis_ticket_of_token(const struct redis_set *set, uint64_t token);
/* Returns the ticket of a hold, while it is held, or NULL. */
struct redis_ticket *redis_ticket_of_hold(const struct redis_set *set, uint64_t hold);
/* Returns the ticket of a call, if that is about what the ticket is now; or NULL. */
struct redis_ticket *redis_ticket_of_call(const struct redis_call *call);
/* Returns the ticket in a slot with this serial number, or NULL. */
struct redis_ticket *redis_ticket_at(const struct redis_session *session, int64_t slot,
                                     int64_t serial);

/* Sends the next call of a ticket; if that cannot be, it is left to the thread of `run`. */
void redis_ticket_send(struct redis_ticket *ticket);
void redis_ticket_set_unsent(struct redis_ticket *ticket);
/* Has it sent once more after a while: the server has refused the call for now. */
void redis_ticket_send_later(struct redis_ticket *ticket);
/* Changes the state, and what it is counted as. */
void redis_ticket_become(struct redis_ticket *ticket, enum redis_ticket_state state);
/* Ends a ticket, of which nothing is left to be sent. It is freed once no call names it. */
void redis_ticket_end(struct redis_ticket *ticket);
/* Frees a ticket that has ended, once no call names it. */
void redis_ticket_settle(struct redis_ticket *ticket);

/* The decision: granted, or not for this code. `us`: the delay, or the time until it is worth
 * asking again, -1: not known. */
void redis_ticket_grant(struct redis_ticket *ticket, uint64_t fence, uint64_t at_us, uint64_t us);
void redis_ticket_refuse(struct redis_ticket *ticket, int code, int64_t limit, int64_t us);
/* Decides that it cannot be asked. If the server may have it, it is canceled there. */
void redis_ticket_fail(struct redis_ticket *ticket, int code);
/* Withdraws a request; nothing is reported any more. */
void redis_ticket_cancel(struct redis_ticket *ticket);
/* The session has ended, and what was granted in it. */
void redis_ticket_lose(struct redis_ticket *ticket);
/* Asks again, with a new serial number. */
void redis_ticket_ask_again(struct redis_ticket *ticket);
/* Gives it a new serial number, as it is put into a call. */
void redis_ticket_name(struct redis_ticket *ticket);
/* Has the server queue it: it was decided that it has to wait. */
void redis_ticket_enqueue(struct redis_ticket *ticket);
/* The server has ended its wait: with a deadline it is refused then, and asked again before, as the
 * clock of the server may leap, and counts while this machine is suspended. */
void redis_ticket_end_wait(struct redis_ticket *ticket, int code);
/* The server has queued it. */
void redis_ticket_queue(struct redis_ticket *ticket);

#endif

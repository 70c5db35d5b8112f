/* SPDX-License-Identifier: MIT */
/* What becomes of a call by its reply. */
#include "redis_answers.h"

#include "redis_apply.h"
#include "redis_batches.h"
#include "redis_calls.h"
#include "redis_decisions.h"
#include "redis_errors.h"
#include "redis_session.h"
#include "redis_snapshots.h"
#include "redis_tickets.h"

#include <errno.h>
#include <weir/error.h>

enum { STATUS_GRANTED, STATUS_WAITING, STATUS_REFUSED, STATUS_GONE };
enum { REASON_TOO_LONG = 5 };
enum {
    SESSION_NOW,
    SESSION_GRACE,
    SESSION_HELD,
    SESSION_HELD_SUM,
    SESSION_WAITS,
    SESSION_WAITS_SUM,
    SESSION_TIMER,
    SESSION_NODES
};

/* Returns what the core is told for a reason of a refusal. */
static int answers_reason(int64_t reason)
{
    switch (reason) {
    case 2:
        return -ERANGE;
    case 3:
        return -ENOBUFS;
    default:
        return -EAGAIN;
    }
}

static void answers_malformed(struct redis_server *server)
{
    redis_calls_break(server, "the server does not keep to the protocol");
}

static void answers_granted(struct redis_ticket *ticket, const struct redis_reply *reply)
{
    int64_t fence = redis_reply_integer(reply, 1, 0), at = redis_reply_integer(reply, 2, 0);
    int64_t now = redis_reply_integer(reply, 3, 0);
    if (fence < 0 || at < 0 || now < 0) {
        answers_malformed(ticket->session->server);
    } else if (ticket->mode == WEIR_BACKEND_TAKE || redis_session_is_alive(ticket->session)) {
        redis_ticket_grant(ticket, (uint64_t)fence, (uint64_t)at,
                           at > now ? (uint64_t)(at - now) : 0);
    }
}

static void answers_refused(struct redis_ticket *ticket, const struct redis_reply *reply)
{
    int64_t reason = redis_reply_integer(reply, 1, 1), limit = redis_reply_integer(reply, 2, -1);
    int64_t us = redis_reply_integer(reply, 3, -1);
    if (ticket->queues && ticket->ready_us < REDIS_NEVER && us < (int64_t)ticket->ready_us)
        us = (int64_t)ticket->ready_us; /* the server knows nothing of what it does not decide */
    if (reason < 0 || limit < -1 || us < -1 || limit >= ticket->session->set->limits_n)
        answers_malformed(ticket->session->server);
    else {
        ticket->is_too_late = reason == REASON_TOO_LONG;
        redis_ticket_refuse(ticket, answers_reason(reason), limit, us);
    }
}

static void answers_acquire(struct redis_server *server, const struct redis_call *call,
                            const struct redis_reply *reply)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    int64_t status = redis_reply_integer(reply, 0, 0);
    if (status < 0 || status > STATUS_GONE)
        answers_malformed(server);
    if (!ticket || ticket->state != REDIS_ASKING)
        return; /* it was canceled, lost, or granted by a message */
    if (status == STATUS_GRANTED) {
        answers_granted(ticket, reply);
    } else if (status == STATUS_WAITING && ticket->mode == WEIR_BACKEND_WAIT) {
        redis_ticket_queue(ticket);
        redis_session_set_timer(ticket->session, redis_reply_integer(reply, 1, 0));
    } else if (status == STATUS_REFUSED) {
        answers_refused(ticket, reply);
    } else if (status == STATUS_GONE && ticket->mode != WEIR_BACKEND_TAKE) {
        redis_ticket_ask_again(ticket);
    } else {
        answers_malformed(server);
    }
}

static void answers_cancel(struct redis_server *server, const struct redis_call *call,
                           const struct redis_reply *reply)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    int64_t status = redis_reply_integer(reply, 0, 0);
    int64_t at = status == STATUS_GRANTED ? redis_reply_integer(reply, 2, 0) : 0;
    if (status < 0 || at < 0)
        answers_malformed(server);
    if (!ticket || ticket->state != REDIS_CANCELING || status < 0 || at < 0)
        return;
    if (status == STATUS_GRANTED) {
        ticket->at_us = (uint64_t)at; /* it is undone as of then */
        ticket->undo = 1;
        redis_ticket_become(ticket, REDIS_RELEASING);
        redis_ticket_send(ticket);
        return;
    }
    redis_ticket_end(ticket);
    redis_session_set_timer(call->session, redis_reply_integer(reply, 1, 0));
}

/* A commit with the ticket was lost. It has what the ticket asks for, or that is decided once more.
 */
static void answers_resolve(struct redis_server *server, const struct redis_call *call,
                            const struct redis_reply *reply)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    int64_t status = redis_reply_integer(reply, 0, 0);
    if (status < 0)
        answers_malformed(server);
    int is_asking = ticket && (ticket->state == REDIS_ASKING || ticket->state == REDIS_QUEUED);
    if (!ticket || !ticket->unsure || status < 0 ||
        (!is_asking && ticket->state != REDIS_RELEASING))
        return;
    if (is_asking && status == STATUS_GRANTED) {
        answers_granted(ticket, reply);
    } else if (is_asking) {
        redis_ticket_ask_again(ticket);
    } else if (status == STATUS_GRANTED) {
        ticket->unsure = 0;
        redis_ticket_send(ticket);
    } else {
        redis_ticket_end(ticket);
    }
}

static void answers_release(struct redis_server *server, const struct redis_call *call,
                            const struct redis_reply *reply)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    if (redis_reply_integer(reply, 0, 0) < 0) {
        answers_malformed(server);
        return;
    }
    if (ticket && call->kind == REDIS_CALL_RETURN)
        ticket->returns = 0;
    else if (ticket && ticket->state == REDIS_RELEASING)
        redis_ticket_end(ticket);
    redis_session_set_timer(call->session, redis_reply_integer(reply, 1, 0));
}

/* Compares what the server has of the session with what is known here, if nothing was on its way.
 */
static void answers_compare(struct redis_session *session, const struct redis_call *call,
                            const struct redis_reply *reply)
{
    int fits = redis_reply_integer(reply, SESSION_HELD, 0) == session->held_n &&
               redis_reply_integer(reply, SESSION_HELD_SUM, 0) == (int64_t)session->held_sum &&
               redis_reply_integer(reply, SESSION_WAITS, 0) == session->waits_n &&
               redis_reply_integer(reply, SESSION_WAITS_SUM, 0) == (int64_t)session->waits_sum;
    if (call->version != session->version || session->calls_n > 0 || session->unsent ||
        session->list)
        return;
    session->mismatches = fits ? 0 : session->mismatches + 1;
    if (session->mismatches < 2)
        return;
    session->mismatches = 0;
    redis_session_list(session, 0);
}

/* Tells the core how many nodes have a session. */
static void answers_nodes(const struct redis_set *set, int64_t nodes)
{
    const struct weir_backend_host *host = set->connection->host;
    if (set->only && nodes > 0)
        host->nodes(host->context, set->context, nodes < UINT32_MAX ? (uint32_t)nodes : UINT32_MAX);
}

static void answers_session(struct redis_server *server, const struct redis_call *call,
                            const struct redis_reply *reply)
{
    if (redis_reply_integer(reply, SESSION_NOW, 0) < 0 ||
        redis_reply_integer(reply, SESSION_TIMER, -1) < -1) {
        answers_malformed(server);
        return;
    }
    redis_session_renew(call->session, call->sent_ns);
    if (call->kind == REDIS_CALL_HEARTBEAT)
        redis_decisions_forget(call->session); /* a message that it has changed may be lost */
    redis_session_set_timer(call->session, redis_reply_integer(reply, SESSION_TIMER, 0));
    answers_nodes(call->session->set, redis_reply_integer(reply, SESSION_NODES, 0));
    if (call->kind == REDIS_CALL_HEARTBEAT)
        answers_compare(call->session, call, reply);
}

static void answers_assert(struct redis_server *server, const struct redis_call *call,
                           const struct redis_reply *reply)
{
    if (reply->type != REDIS_ARRAY || reply->elements_n != 2 ||
        reply->elements[1].type != REDIS_ARRAY) {
        answers_malformed(server);
        return;
    }
    answers_session(server, call, &reply->elements[0]);
    for (uint32_t i = 0; i + 1 < reply->elements[1].elements_n; i += 2) {
        const struct redis_ticket *ticket =
            redis_ticket_at(call->session, redis_reply_integer(&reply->elements[1], i, 0),
                            redis_reply_integer(&reply->elements[1], i + 1, 0));
        if (ticket && ticket->state == REDIS_HELD) {
            redis_session_lose(call->session);
            return;
        }
    }
}

/* Ends a ticket that the server has, and this process does not know. */
static void answers_end_orphan(struct redis_session *session, int64_t slot, int64_t serial,
                               int is_held)
{
    const struct redis_set *set = session->set;
    struct redis_buffer *outbox = &session->server->outbox;
    if (!redis_session_can_send(session))
        return; /* the next list has it again */
    if (is_held)
        redis_call_begin(session, "weir_release", 3 + set->limits_n);
    else
        redis_call_begin(session, "weir_cancel", 2);
    redis_buffer_number(outbox, slot);
    redis_buffer_number(outbox, serial);
    if (is_held) {
        redis_buffer_text(outbox, "undo");
        for (uint32_t i = 0; i < set->limits_n; i++)
            redis_buffer_number(outbox, 0);
    }
    (void)redis_call_end(session->server, /* or the next list has it again */
                         &(struct redis_call){.kind = REDIS_CALL_ORPHAN, .session = session});
}

/* One ticket of the server's list. */
static void answers_listed(struct redis_session *session, const struct redis_reply *entry)
{
    int64_t slot = redis_reply_integer(entry, 0, 0), serial = redis_reply_integer(entry, 1, 1);
    int64_t status = redis_reply_integer(entry, 2, 0), fence = redis_reply_integer(entry, 3, 0);
    int64_t at = redis_reply_integer(entry, 4, 0);
    struct redis_ticket *ticket = redis_ticket_at(session, slot, serial);
    if (slot < 0 || serial < 0 || status < 0 || fence < 0 || at < 0) {
        answers_malformed(session->server);
        return;
    }
    if (!ticket) {
        if (slot >= session->slots_n || !session->slots[slot])
            answers_end_orphan(session, slot, serial, status == STATUS_GRANTED);
        return;
    }
    if (status != STATUS_WAITING || ticket->state != REDIS_HELD)
        ticket->listed = session->list; /* otherwise it is not held there, unless that is new */
    if (status == STATUS_GRANTED && ticket->state == REDIS_QUEUED)
        redis_ticket_grant(ticket, (uint64_t)fence, (uint64_t)at, 0);
}

/* The whole list has come: gives up what was not in it, if it has not changed meanwhile. */
static void answers_miss(struct redis_session *session)
{
    struct redis_ticket *last = session->last, *ticket = session->first, *next;
    uint64_t list = session->list;
    session->list = 0;
    for (; ticket; ticket = next) {
        next = ticket != last ? ticket->next : NULL;
        if (ticket->listed == list || ticket->calls_n > 0 ||
            ticket->version > session->list_version)
            continue;
        if (ticket->state == REDIS_HELD) {
            redis_session_lose(session);
            return;
        }
        if (ticket->state == REDIS_QUEUED)
            redis_ticket_ask_again(ticket);
    }
}

static void answers_list(struct redis_server *server, const struct redis_call *call,
                         const struct redis_reply *reply)
{
    int64_t cursor = redis_reply_integer(reply, 0, -1);
    if (cursor < -1 || reply->elements_n != 2 || reply->elements[1].type != REDIS_ARRAY) {
        answers_malformed(server);
        return;
    }
    if (!call->session->list)
        return;
    for (uint32_t i = 0; i < reply->elements[1].elements_n && server->ready; i++)
        answers_listed(call->session, &reply->elements[1].elements[i]);
    if (!server->ready)
        return;
    if (cursor >= 0)
        redis_session_list(call->session, cursor);
    else
        answers_miss(call->session);
}

static void answers_result(struct redis_server *server, const struct redis_call *call,
                           const struct redis_reply *reply)
{
    server->failures = 0;
    call->session->redirects = 0;
    call->session->asks &= call->asks; /* the slot has arrived */
    switch (call->kind) {
    case REDIS_CALL_OPEN:
    case REDIS_CALL_HEARTBEAT:
        answers_session(server, call, reply);
        break;
    case REDIS_CALL_ACQUIRE:
        answers_acquire(server, call, reply);
        break;
    case REDIS_CALL_CANCEL:
        answers_cancel(server, call, reply);
        break;
    case REDIS_CALL_RESOLVE:
        answers_resolve(server, call, reply);
        break;
    case REDIS_CALL_RELEASE:
    case REDIS_CALL_RETURN:
        answers_release(server, call, reply);
        break;
    case REDIS_CALL_PUMP:
        redis_session_set_timer(call->session, redis_reply_integer(reply, 1, 0));
        break;
    case REDIS_CALL_ASSERT:
        answers_assert(server, call, reply);
        break;
    case REDIS_CALL_LIST:
        answers_list(server, call, reply);
        break;
    default: /* nothing follows from it */
        break;
    }
}

/* The ticket of a call lives at least until here. */
static void answers_let_go(const struct redis_call *call)
{
    if (!call->ticket)
        return;
    call->ticket->calls_n--;
    redis_ticket_settle(call->ticket);
}

void redis_answers_lose(const struct redis_call *call)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    if (call->session && redis_call_is_snapshot(call))
        redis_snapshots_answer(call, -ENOTCONN, NULL);
    if (call->session && call->kind == REDIS_CALL_REDEFINE)
        redis_apply_answer(call, -EAGAIN, NULL);
    if (call->session && (call->kind == REDIS_CALL_FETCH || call->kind == REDIS_CALL_COMMIT))
        redis_decisions_lose(call);
    if (call->session && (call->kind == REDIS_CALL_OPEN || call->kind == REDIS_CALL_ASSERT))
        call->session->inbox = 0; /* the server may not know it */
    if (call->session && call->kind == REDIS_CALL_BATCH)
        redis_batches_refuse(call, -ECONNRESET, UINT64_MAX);
    if (ticket && call->kind == REDIS_CALL_ACQUIRE && ticket->mode == WEIR_BACKEND_TAKE &&
        ticket->state == REDIS_ASKING)
        redis_ticket_fail(ticket, -ECONNRESET);
    else if (ticket && ticket->state != REDIS_ENDED)
        redis_ticket_set_unsent(ticket);
    answers_let_go(call);
}

static void answers_batch(struct redis_server *server, const struct redis_call *call,
                          const struct redis_reply *reply)
{
    server->failures = 0;
    if (redis_batches_take(call, reply) < 0)
        answers_malformed(server);
}

static void answers_round(struct redis_server *server, const struct redis_call *call,
                          const struct redis_reply *reply)
{
    server->failures = 0;
    call->session->redirects = 0;
    call->session->asks &= call->asks; /* the slot has arrived */
    if (redis_decisions_take(call, reply) < 0)
        answers_malformed(server);
}

void redis_answers_take(struct redis_server *server, const struct redis_call *call,
                        const struct redis_reply *reply)
{
    int was_ready = server->ready;
    int is_late = call->session && call->incarnation != call->session->incarnation;
    int has_session = call->session && call->session->state != REDIS_CLOSED;
    if (!call->session)
        return; /* the set was closed meanwhile */
    if (call->kind == REDIS_CALL_BATCH && reply->type != REDIS_ERROR) {
        answers_batch(server, call, reply);
        return;
    }
    if (call->kind == REDIS_CALL_REDEFINE && reply->type != REDIS_ERROR)
        redis_apply_answer(call, 0, reply);
    else if (redis_call_is_snapshot(call) &&
             (reply->type != REDIS_ERROR || redis_reply_is_error(reply, "NOSET")))
        redis_snapshots_answer(call, 0, reply);
    else if (reply->type == REDIS_ERROR)
        redis_errors_take(server, call, reply);
    else if (call->kind == REDIS_CALL_FETCH || call->kind == REDIS_CALL_COMMIT)
        answers_round(server, call, reply);
    else if (call->ticket || (has_session && !is_late))
        answers_result(server, call, reply);
    if (was_ready && !server->ready && reply->type != REDIS_ERROR)
        redis_answers_lose(call); /* the reply could not be understood */
    else
        answers_let_go(call);
}

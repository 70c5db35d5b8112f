/* SPDX-License-Identifier: MIT */
/* What becomes of a call that the server answers with an error. */
#include "redis_errors.h"

#include "redis_apply.h"
#include "redis_batches.h"
#include "redis_calls.h"
#include "redis_cluster.h"
#include "redis_decisions.h"
#include "redis_revision.h"
#include "redis_session.h"
#include "redis_snapshots.h"
#include "redis_tickets.h"

#include <errno.h>
#include <string.h>
#include <weir/error.h>

/* Errors after which the connection is made anew: the server cannot answer for now, or is another
 * one. What was asked is asked again. */
static const char *const errors_transient[] = {
    "STALERUN",   "LOADING", "BUSY",      "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
    "NOREPLICAS", "MISCONF", "UNBLOCKED", "MOVED",    "ASK",        "NOAUTH"};

static const struct {
    const char *error;
    int code;
} errors_codes[] = {
    {"MISMATCH", -EEXIST},   {"BADDEF", -EINVAL},   {"BADARG", -EINVAL},
    {"WRONGTYPE", -EUCLEAN}, {"CORRUPT", -EUCLEAN}, {"FORMAT", -EUCLEAN},
    {"NOPERM", -EACCES},     {"OOM", -ENOMEM},      {"NOSET", -ENOENT},
};

static int errors_code(const struct redis_reply *reply)
{
    for (size_t i = 0; i < sizeof(errors_codes) / sizeof(*errors_codes); i++) {
        if (redis_reply_is_error(reply, errors_codes[i].error))
            return errors_codes[i].code;
    }
    return -EPROTO;
}

/* What follows for a round from an error. */
static void errors_failed_round(const struct redis_call *call, int code)
{
    if (call->kind != REDIS_CALL_FETCH && call->kind != REDIS_CALL_COMMIT)
        return;
    if (code < 0)
        redis_decisions_fail(call, code);
    else
        redis_decisions_repeat(call);
}

/* A call of the session failed: another one of its kind may follow. */
static void errors_let_follow(struct redis_session *session, uint32_t kind)
{
    switch (kind) {
    case REDIS_CALL_OPEN:
        if (session->state == REDIS_OPENING)
            session->state = REDIS_CLOSED;
        break;
    case REDIS_CALL_HEARTBEAT:
        session->beating = 0;
        break;
    case REDIS_CALL_LIST:
        session->list = 0;
        break;
    case REDIS_CALL_PUMP:
        session->pump_ns = session->heartbeat_ns;
        break;
    default: /* it is repeated for its ticket, or not at all */
        break;
    }
}

/* A call that ends a ticket, or a part of it, failed. What the server has of it is to be ended as
 * the program has ended it, and not as an orphan, unless it never can be. */
static void errors_failed_end(struct redis_ticket *ticket, uint32_t kind, int code)
{
    int is_for_good = code == -EEXIST || code == -EINVAL || code == -EUCLEAN;
    if (!is_for_good)
        redis_ticket_send_later(ticket);
    else if (kind == REDIS_CALL_RETURN)
        ticket->returns = 0;
    else
        redis_ticket_end(ticket);
}

/* Logs once why the server refuses calls of a session. */
static void errors_complain(struct redis_server *server, struct redis_session *session, int code,
                            const struct redis_reply *reply)
{
    char words[256];
    const char *text = reply->text;
    if (session->complained == code)
        return;
    session->complained = code;
    if (redis_reply_is_error(reply, "MISMATCH")) {
        text = strchr(reply->text, ' ');
        redis_revision_explain(session->set->definition, text ? text + 1 : "", words,
                               sizeof(words));
        text = words;
    }
    redis_log(server, WEIR_LOG_ERROR, "set %.*s: %.200s", (int)session->key_size, session->key,
              text);
}

/* The server has refused the call. */
static void errors_failed(struct redis_server *server, const struct redis_call *call,
                          const struct redis_reply *reply)
{
    struct redis_ticket *ticket = redis_ticket_of_call(call);
    int code = errors_code(reply);
    errors_complain(server, call->session, code, reply);
    if (call->incarnation == call->session->incarnation)
        errors_let_follow(call->session, call->kind);
    errors_failed_round(call, code);
    if (!ticket || ticket->state == REDIS_ENDED)
        return;
    if (call->kind == REDIS_CALL_RESOLVE && ticket->state == REDIS_QUEUED)
        redis_ticket_ask_again(ticket);
    else if (call->kind != REDIS_CALL_ACQUIRE && ticket->state != REDIS_ASKING)
        errors_failed_end(ticket, call->kind, code);
    else if (ticket->state == REDIS_ASKING)
        redis_ticket_refuse(ticket, code, -1, -1);
}

static int errors_is_transient(const struct redis_reply *reply)
{
    for (size_t i = 0; i < sizeof(errors_transient) / sizeof(*errors_transient); i++) {
        if (redis_reply_is_error(reply, errors_transient[i]))
            return 1;
    }
    return 0;
}

void redis_errors_take(struct redis_server *server, const struct redis_call *call,
                       const struct redis_reply *reply)
{
    struct redis_session *session = call->session;
    if (redis_cluster_redirect(server, call, reply)) {
        errors_failed_round(call, 0);
        if (redis_call_is_snapshot(call))
            redis_snapshots_answer(call, -EAGAIN, NULL);
        if (call->kind == REDIS_CALL_REDEFINE)
            redis_apply_answer(call, -EAGAIN, NULL);
        if (call->kind == REDIS_CALL_BATCH)
            redis_batches_refuse(call, -ENOTCONN, UINT64_MAX);
        if (call->ticket && call->ticket->state != REDIS_ENDED)
            redis_ticket_set_unsent(call->ticket);
        return;
    }
    session->asks &= call->asks; /* the slot has arrived */
    int is_missing = !strncmp(reply->text, "ERR Function not found", 22);
    /* A library that lacks only that call is an earlier one, which other nodes use. */
    int is_earlier = is_missing && call->kind == REDIS_CALL_REDEFINE;
    int is_transient = (is_missing && !is_earlier) || errors_is_transient(reply);
    if (redis_call_is_snapshot(call))
        redis_snapshots_answer(call, is_transient ? -ENOTCONN : errors_code(reply), NULL);
    if (call->kind == REDIS_CALL_BATCH)
        redis_batches_refuse(call, is_transient ? -ENOTCONN : errors_code(reply), UINT64_MAX);
    if (call->kind == REDIS_CALL_REDEFINE)
        redis_apply_answer(call,
                           is_earlier     ? -EOPNOTSUPP
                           : is_transient ? -EAGAIN
                                          : errors_code(reply),
                           reply);
    if (is_transient) {
        errors_failed_round(call, 0);
        server->needs_library |= is_missing;
        redis_calls_break(server, is_missing ? NULL : reply->text);
        if (call->ticket && call->ticket->state != REDIS_ENDED)
            redis_ticket_set_unsent(call->ticket);
    } else if (call->kind == REDIS_CALL_REDEFINE) {
        return; /* what follows is the caller's */
    } else if (!redis_reply_is_error(reply, "NOSESSION") && !redis_reply_is_error(reply, "NOSET")) {
        errors_failed(server, call, reply);
    } else {
        errors_failed_round(call, 0);
        if (session->incarnation == call->incarnation && session->state != REDIS_CLOSED)
            redis_session_lose(session); /* what was asked in it is asked anew */
        if (redis_ticket_of_call(call) && call->ticket->state == REDIS_ASKING)
            redis_ticket_refuse(call->ticket, -EPROTO, -1, -1); /* it needs none, or has none */
        redis_decisions_go(session);
    }
}

/* SPDX-License-Identifier: MIT */
/* What becomes of a round by the reply to its call. */
#include "redis_calls.h"
#include "redis_decisions.h"
#include "redis_due.h"
#include "redis_round.h"
#include "redis_session.h"
#include "redis_tickets.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define BACKOFF_STEPS 6
#define BACKOFF_MAX   UINT64_C(50000000)
#define BACKOFF_LEAST UINT64_C(20000) /* a shorter one is none */

enum { STATUS_GRANTED, STATUS_CONFLICT, STATUS_REFUSED, STATUS_GONE };
enum { REASON_RANGE = 2 };
enum { COMMIT_TIMER = 4, COMMIT_FENCES };
enum { FETCH_WAITING = 4 };

static const struct redis_states_place place_fetched = {0, 1, 2, 5, 6};
static const struct redis_states_place place_conflict = {1, 2, 3, 5, 6};

/* The call has its outcome; what was in it can be decided again. */
static void decisions_end_call(struct redis_decisions *decisions)
{
    uint32_t n = decisions->call == REDIS_CALL_COMMIT ? decisions->operations_n : 0;
    decisions->call = 0;
    decisions->operations_n = 0;
    decisions->head_is_due |= decisions->head_is_sent; /* it was not granted */
    decisions->head_is_sent = 0;
    for (uint32_t i = 0; i < n; i++) {
        decisions->operations[i].ticket->calls_n--;
        redis_ticket_settle(decisions->operations[i].ticket);
    }
}

/* Returns 1 if an operation is about what its ticket is now. */
static int operation_is_current(const struct redis_operation *operation)
{
    const struct redis_ticket *ticket = operation->ticket;
    if (ticket->serial != operation->serial)
        return 0;
    switch (operation->kind) {
    case REDIS_OPERATION_GRANT:
        return ticket->state == REDIS_ASKING || ticket->state == REDIS_QUEUED;
    case REDIS_OPERATION_TAKE:
        return ticket->state == REDIS_ASKING;
    case REDIS_OPERATION_END:
        return ticket->state == REDIS_RELEASING;
    default:
        return ticket->state == REDIS_RELEASING || ticket->state == REDIS_HELD;
    }
}

/* The server has what is left. */
static void operation_returned(const struct redis_operation *operation)
{
    struct redis_ticket *ticket = operation->ticket;
    uint32_t n = ticket->session->set->limits_n;
    memcpy(ticket->before, ticket->before + n, n * sizeof(*ticket->before));
    ticket->returns = memcmp(ticket->before, ticket->amounts, n * sizeof(*ticket->before)) != 0;
    if (!ticket->returns && ticket->state == REDIS_HELD)
        redis_decisions_drop(ticket);
}

/* `at_us`: the instant by which it was decided. */
static void operation_granted(const struct redis_operation *operation, uint64_t fence,
                              uint64_t at_us)
{
    struct redis_ticket *ticket = operation->ticket;
    if (!operation_is_current(operation))
        return;
    if (operation->kind == REDIS_OPERATION_END) {
        redis_ticket_end(operation->ticket);
    } else if (operation->kind == REDIS_OPERATION_RETURN) {
        operation_returned(operation);
    } else if (operation->kind == REDIS_OPERATION_TAKE || redis_session_is_alive(ticket->session)) {
        redis_decisions_drop(ticket);
        redis_ticket_grant(ticket, fence, at_us, 0);
    }
}

static int decisions_granted(struct redis_decisions *decisions, const struct redis_call *call,
                             const struct redis_reply *reply)
{
    struct redis_states *states = decisions->states;
    int64_t version = redis_reply_integer(reply, 1, 1), now = redis_reply_integer(reply, 2, 0);
    int64_t clock = redis_reply_integer(reply, 3, 0);
    if (version < 0 || now < (int64_t)states->at_us || clock < 0 ||
        now > (int64_t)(WEIR_CLOCK_MAX / REDIS_US) || reply->elements_n <= COMMIT_FENCES ||
        reply->elements[COMMIT_FENCES].elements_n != decisions->operations_n)
        return -EPROTO;
    for (uint32_t i = 0; i < decisions->operations_n; i++)
        if (redis_reply_integer(&reply->elements[COMMIT_FENCES], i, 0) < 0)
            return -EPROTO;
    redis_states_keep(states);
    redis_round_set_within(decisions, (uint64_t)now - states->at_us);
    decisions->within_us = 0;
    states->version = (uint64_t)version;
    states->now_us = (uint64_t)now;
    states->clock_us = (uint64_t)clock;
    states->received_ns = redis_boot_ns();
    decisions->head_is_sent = 0;
    decisions->knows_waiters = 0;
    decisions->version = call->version;
    for (uint32_t i = 0; i < decisions->operations_n; i++)
        operation_granted(&decisions->operations[i],
                          (uint64_t)redis_reply_integer(&reply->elements[COMMIT_FENCES], i, 0),
                          states->at_us);
    redis_round_prove_refusals(decisions);
    states->is_exact = 1;
    return 0;
}

/* After the second conflict in a row there is a pause at random, so that nodes do not meet again
 * and again. An instant that was ahead of the server's, or behind for too long, is no conflict. */
static void decisions_back_off(struct redis_decisions *decisions, const struct redis_call *call,
                               uint64_t version)
{
    if (version == decisions->states->version) {
        decisions->conflicts = 0;
        return;
    }
    uint32_t steps = decisions->conflicts++;
    if (steps == 0)
        return;
    uint64_t most = (redis_boot_ns() - call->sent_ns)
                    << (steps < BACKOFF_STEPS ? steps : BACKOFF_STEPS);
    most = most < BACKOFF_MAX ? most : BACKOFF_MAX;
    decisions->random ^= decisions->random << 13;
    decisions->random ^= decisions->random >> 7;
    decisions->random ^= decisions->random << 17;
    uint64_t ns = most > 0 ? decisions->random % most : 0;
    if (ns < BACKOFF_LEAST)
        return;
    decisions->states->is_exact = 0;
    redis_round_pause(decisions, ns);
}

static int decisions_conflict(struct redis_decisions *decisions, const struct redis_call *call,
                              const struct redis_reply *reply)
{
    struct redis_states *states = decisions->states;
    uint64_t version = states->version, at_us = states->at_us;
    int r = redis_states_read(states, reply, &place_conflict);
    if (r == -EPROTO)
        return r;
    if (r < 0)
        redis_round_give_up(decisions);
    /* It was too late, by a slow link or a stop. How late does not count: stops may be long. */
    if (version == states->version && states->now_us > at_us + decisions->within_us) {
        redis_round_set_within(decisions, decisions->within_us);
        decisions->within_us = decisions->session->server->within_us;
    }
    decisions->version = call->version;
    decisions->knows_waiters = 0;
    decisions_back_off(decisions, call, version);
    return 0;
}

/* The head is not granted by the server, or is not the head: it says when to look again. */
static void decisions_refused_head(struct redis_decisions *decisions, int64_t us)
{
    struct redis_session *session = decisions->session;
    decisions->head_is_sent = 0;
    if (us < 0)
        return;
    session->pump_ns = redis_boot_ns() + (uint64_t)us * REDIS_US;
    redis_due_by(session, session->pump_ns);
}

/* Returns 1 if a request stands before an operation of the commit. */
static int decisions_grant_before(const struct redis_decisions *decisions, int64_t index)
{
    for (int64_t i = 0; i < index; i++)
        if (decisions->operations[i].kind == REDIS_OPERATION_GRANT ||
            decisions->operations[i].kind == REDIS_OPERATION_TAKE)
            return 1;
    return 0;
}

/* The server's limits, or its wait queue, refuse an operation. If that may be for what those before
 * it take, which they have not got yet, they are committed first. Requests behind it that want as
 * much of the same are refused as well: what comes before is the same for them, or less. */
static int decisions_refused(struct redis_decisions *decisions, const struct redis_reply *reply)
{
    int64_t reason = redis_reply_integer(reply, 1, 1), limit = redis_reply_integer(reply, 2, -1);
    int64_t us = redis_reply_integer(reply, 3, -1), index = redis_reply_integer(reply, 4, 0);
    uint32_t n = decisions->operations_n;
    if (reason < 0 || limit < -1 || us < -1 || index < 0 || index >= n ||
        limit >= decisions->session->set->limits_n)
        return -EPROTO;
    const struct redis_operation *first = &decisions->operations[index];
    int code = reason == REASON_RANGE ? -ERANGE : -EAGAIN;
    if (first->kind != REDIS_OPERATION_GRANT && first->kind != REDIS_OPERATION_TAKE)
        return -EPROTO;
    if (first->is_head) {
        decisions_refused_head(decisions, us);
        return 0;
    }
    if (reason != REASON_RANGE && decisions_grant_before(decisions, index)) {
        decisions->most = (uint32_t)index;
        return 0;
    }
    uint64_t amount = limit >= 0 ? first->ticket->amounts[limit] : 0;
    for (uint32_t i = (uint32_t)index; i < n && (i == index || reason != REASON_RANGE); i++) {
        const struct redis_operation *operation = &decisions->operations[i];
        if (!operation_is_current(operation) || operation->ticket->state != REDIS_ASKING ||
            (limit >= 0 && operation->ticket->amounts[limit] < amount))
            continue;
        if (operation->ticket->mode == WEIR_BACKEND_WAIT && code == -EAGAIN) {
            operation->ticket->ready_us = REDIS_NEVER;
            redis_ticket_enqueue(operation->ticket);
            continue;
        }
        redis_decisions_drop(operation->ticket);
        redis_ticket_refuse(operation->ticket, code, limit, us);
    }
    return 0;
}

/* The ticket of an operation has ended at the server; or it was granted already, by a commit with a
 * reply that was lost. */
static int decisions_gone(struct redis_decisions *decisions, const struct redis_reply *reply)
{
    int64_t index = redis_reply_integer(reply, 1, 0);
    if (index < 0 || index >= decisions->operations_n)
        return -EPROTO;
    const struct redis_operation *operation = &decisions->operations[index];
    struct redis_ticket *ticket = operation->ticket;
    if (operation->kind == REDIS_OPERATION_TAKE)
        return -EPROTO;
    if (!operation_is_current(operation))
        return 0;
    if (operation->kind == REDIS_OPERATION_END) {
        redis_ticket_end(operation->ticket);
    } else if (operation->kind == REDIS_OPERATION_RETURN) {
        operation_returned(operation);
    } else {
        if (ticket->state == REDIS_ASKING)
            redis_decisions_drop(ticket);
        ticket->unsure = 1;
        redis_ticket_set_unsent(ticket);
    }
    return 0;
}

static int decisions_committed(struct redis_decisions *decisions, const struct redis_call *call,
                               const struct redis_reply *reply)
{
    int64_t status = redis_reply_integer(reply, 0, 0);
    if (status != STATUS_CONFLICT)
        decisions->conflicts = 0; /* the text was the one that is there */
    switch (status) {
    case STATUS_GRANTED:
        return decisions_granted(decisions, call, reply);
    case STATUS_CONFLICT:
        return decisions_conflict(decisions, call, reply);
    case STATUS_REFUSED:
        return decisions_refused(decisions, reply);
    case STATUS_GONE:
        return decisions_gone(decisions, reply);
    default:
        return -EPROTO;
    }
}

static int decisions_fetched(struct redis_decisions *decisions, const struct redis_call *call,
                             const struct redis_reply *reply)
{
    int64_t waiting = redis_reply_integer(reply, FETCH_WAITING, 0);
    int r = waiting < 0 ? -EPROTO : redis_states_read(decisions->states, reply, &place_fetched);
    if (r == -EPROTO)
        return r;
    if (r < 0)
        redis_round_give_up(decisions);
    decisions->version = call->version;
    decisions->has_waiters = waiting > 0;
    decisions->is_full = (uint64_t)waiting >= decisions->session->set->max_waiters;
    decisions->knows_waiters = 1;
    return 0;
}

/* A head that is due is decided by the text of this very reply. */
static void decisions_set_timer(struct redis_session *session, int64_t us)
{
    if (us != 0 || session->state != REDIS_OPEN || !redis_decisions_wake(session))
        redis_session_set_timer(session, us);
}

int redis_decisions_take(const struct redis_call *call, const struct redis_reply *reply)
{
    struct redis_session *session = call->session;
    struct redis_decisions *decisions = session->decisions;
    decisions->is_busy = 1;
    decisions->most = 0;
    int r = call->kind == REDIS_CALL_FETCH ? decisions_fetched(decisions, call, reply)
                                           : decisions_committed(decisions, call, reply);
    if (r == 0)
        decisions_end_call(decisions);
    if (call->incarnation != session->incarnation)
        redis_decisions_forget(session);
    decisions->is_busy = 0;
    if (r == 0 && call->kind == REDIS_CALL_COMMIT && call->incarnation == session->incarnation &&
        redis_reply_integer(reply, 0, 0) <= STATUS_CONFLICT)
        decisions_set_timer(session, redis_reply_integer(reply, COMMIT_TIMER, 0));
    redis_decisions_go(session);
    decisions->states->is_exact = 0; /* what comes later is decided by a later instant */
    return r;
}

void redis_decisions_repeat(const struct redis_call *call)
{
    decisions_end_call(call->session->decisions);
    redis_decisions_forget(call->session);
}

void redis_decisions_fail(const struct redis_call *call, int code)
{
    struct redis_decisions *decisions = call->session->decisions;
    struct redis_ticket *ticket, *next = decisions->asks.first;
    decisions->is_busy = 1;
    redis_decisions_repeat(call);
    for (struct redis_ticket *last = decisions->asks.last; (ticket = next);) {
        next = ticket != last ? ticket->list_next : NULL;
        redis_decisions_drop(ticket);
        redis_ticket_refuse(ticket, code, -1, -1);
    }
    while ((ticket = decisions->ends.first)) {
        redis_decisions_drop(ticket);
        ticket->is_plain = 1;
        redis_ticket_send_later(ticket);
    }
    decisions->head_is_due = decisions->head_is_sent = 0; /* until the next heartbeat */
    decisions->is_busy = 0;
}

void redis_decisions_lose(const struct redis_call *call)
{
    struct redis_decisions *decisions = call->session->decisions;
    uint32_t n = decisions->call == REDIS_CALL_COMMIT ? decisions->operations_n : 0;
    decisions->is_busy = 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct redis_operation *operation = &decisions->operations[i];
        struct redis_ticket *ticket = operation->ticket;
        if (!operation_is_current(operation) || ticket->state == REDIS_QUEUED)
            continue; /* if it was granted, the next commit says that its ticket is gone */
        redis_decisions_drop(ticket);
        if (operation->kind == REDIS_OPERATION_RETURN)
            ticket->is_plain = 1; /* what is left can be said again, but not what went back */
        ticket->unsure = !ticket->is_plain;
        if (operation->kind == REDIS_OPERATION_TAKE)
            redis_ticket_fail(ticket, -ECONNRESET);
        else
            redis_ticket_set_unsent(ticket);
    }
    redis_decisions_repeat(call);
    decisions->is_busy = 0;
}

/* ---- snapshots ---- */

int redis_decisions_look(const struct redis_set *set, const struct redis_reply *reply,
                         struct weir_backend_snapshot *ret)
{
    struct redis_states *states = redis_states_new(set);
    struct timespec now;
    int r = -ENOMEM;
    if (states && reply) {
        r = redis_states_read(states, reply, &place_fetched);
    } else if (states) {
        clock_gettime(CLOCK_REALTIME, &now);
        r = redis_states_renew(states, (uint64_t)now.tv_sec * 1000000);
    }
    if (r == 0)
        r = redis_states_look(states, ret->limits);
    redis_states_free(states);
    return r;
}

/* SPDX-License-Identifier: MIT */
/* Sessions: what keeps the tickets of this process alive in a key. */
#include "redis_session.h"

#include "redis_calls.h"
#include "redis_cluster.h"
#include "redis_decisions.h"
#include "redis_due.h"
#include "redis_key.h"
#include "redis_server.h"
#include "redis_tickets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/error.h>

#define MARGIN        10  /* part of a session: how long before the server it is given up here */
#define HEARTBEATS    4   /* in a session */
#define ASSERT_MAX    100 /* tickets in a call */
#define PUMP_LEAST_US 1000

struct redis_session *redis_session_of_key(const struct redis_connection *connection,
                                           const char *key, size_t size)
{
    struct redis_entry *entry = redis_table_first(&connection->keys, redis_hash_bytes(key, size));
    for (; entry; entry = redis_table_next(entry)) {
        struct redis_session *session =
            (void *)((char *)entry - offsetof(struct redis_session, by_key));
        if (session->key_size == size && !memcmp(session->key, key, size))
            return session;
    }
    return NULL;
}

/* Returns for how long a session of a subject is kept that nothing is left of, at most. */
static uint64_t redis_session_idle_ns(const struct redis_connection *connection)
{
    return connection->options.session_ns / HEARTBEATS;
}

int redis_session_is_unused(const struct redis_session *session)
{
    return session->state == REDIS_CLOSED && session->tickets_n == 0 && session->calls_n == 0;
}

static struct redis_session *redis_session_new(struct redis_set *set, const char *key, size_t size)
{
    struct redis_session *session = calloc(1, sizeof(*session) + size);
    if (!session)
        return NULL;
    session->set = set;
    session->cluster_slot = redis_slot(key, size);
    session->server = redis_cluster_route(set->connection, session->cluster_slot);
    session->key_size = size;
    memcpy(session->key, key, size);
    session->heartbeat_ns = session->expires_ns = session->pump_ns = REDIS_NEVER;
    if (redis_due_add(session) < 0) {
        free(session);
        return NULL;
    }
    if (redis_table_add(&set->connection->keys, &session->by_key, redis_hash_bytes(key, size)) <
        0) {
        redis_due_remove(session);
        free(session);
        return NULL;
    }
    if (set->has_subjects)
        redis_due_by(session, redis_boot_ns() + redis_session_idle_ns(set->connection));
    session->server->sessions_n++;
    session->next = set->sessions;
    if (session->next)
        session->next->previous = session;
    set->sessions = session;
    return session;
}

struct redis_session *redis_session_get(struct redis_set *set, const void *subject, size_t size)
{
    char small[512];
    if (set->only)
        return set->only;
    size_t n = set->key_size, room = n + REDIS_KEY_SUBJECT_ROOM(size);
    char *key = room <= sizeof(small) ? small : malloc(room);
    if (!key)
        return NULL;
    memcpy(key, set->key, n);
    n += set->has_subjects ? redis_key_end_subject(key + n, subject, size) : redis_key_end(key + n);
    struct redis_session *session = redis_session_of_key(set->connection, key, n);
    if (!session || session->set != set)
        session = redis_session_new(set, key, n);
    if (key != small)
        free(key);
    return session;
}

void redis_session_free(struct redis_session *session)
{
    struct redis_set *set = session->set;
    for (struct redis_ticket *ticket = session->first, *next; ticket; ticket = next) {
        next = ticket->next;
        if (ticket->named)
            redis_table_remove(&set->tokens, &ticket->by_token);
        redis_decisions_drop(ticket);
        free(ticket);
    }
    redis_decisions_free(session);
    redis_table_remove(&set->connection->keys, &session->by_key);
    redis_due_remove(session);
    redis_session_set_unsent(session, 0);
    session->server->sessions_n--;
    if (session->target)
        session->target->sessions_n--;
    if (session->next)
        session->next->previous = session->previous;
    if (session->previous)
        session->previous->next = session->next;
    else
        set->sessions = session->next;
    free(session->slots);
    free(session->free_slots);
    free(session);
}

static int redis_session_call(struct redis_session *session, enum redis_call_kind kind)
{
    return redis_call_end(session->server, &(struct redis_call){.kind = kind,
                                                                .session = session,
                                                                .version = session->version,
                                                                .is_urgent = 1});
}

static int redis_session_call_open(struct redis_session *session)
{
    struct redis_buffer *outbox = &session->server->outbox;
    redis_call_begin(session, "weir_open", 2);
    redis_buffer_text(outbox, session->server->inbox_key);
    redis_buffer_text(outbox, session->known ? "1" : "0");
    session->inbox = session->server->inbox_n;
    return redis_session_call(session, REDIS_CALL_OPEN);
}

int redis_session_open(struct redis_session *session)
{
    struct redis_connection *connection = session->set->connection;
    if (session->state != REDIS_CLOSED)
        return 0;
    snprintf(session->node, sizeof(session->node), "%s-%" PRIu64, connection->name,
             ++connection->sessions_n);
    session->incarnation++;
    session->run = session->server->run;
    int r = redis_session_call_open(session);
    if (r == 0)
        session->state = REDIS_OPENING;
    return r;
}

void redis_session_leave(struct redis_session *session)
{
    if (session->state != REDIS_CLOSED && redis_session_can_send(session)) {
        redis_call_begin(session, "weir_leave", 0);
        (void)redis_session_call(session, REDIS_CALL_LEAVE); /* otherwise it runs out */
    }
    session->state = REDIS_CLOSED;
    redis_decisions_forget(session);
    session->known = 1;
    session->heartbeat_ns = session->expires_ns = session->pump_ns = REDIS_NEVER;
    session->list = 0;
    session->mismatches = session->beating = 0;
}

void redis_session_lose(struct redis_session *session)
{
    struct redis_ticket *last = session->last, *ticket = session->first, *next;
    if (session->state == REDIS_CLOSED)
        return;
    redis_session_leave(session);
    for (; ticket; ticket = next) {
        next = ticket != last ? ticket->next : NULL;
        if (ticket->mode == WEIR_BACKEND_TAKE)
            continue;
        if (ticket->state == REDIS_ASKING || ticket->state == REDIS_QUEUED)
            redis_ticket_ask_again(ticket);
        else
            redis_ticket_lose(ticket);
    }
}

void redis_session_renew(struct redis_session *session, uint64_t sent_ns)
{
    struct redis_connection *connection = session->set->connection;
    uint64_t length = connection->options.session_ns;
    session->state = REDIS_OPEN;
    session->run = session->server->run;
    session->expires_ns = sent_ns + length - length / MARGIN;
    session->heartbeat_ns = sent_ns + length / HEARTBEATS;
    session->beating = 0;
    redis_due_by(session, session->heartbeat_ns);
}

int redis_session_is_alive(struct redis_session *session)
{
    if (redis_boot_ns() < session->expires_ns)
        return 1;
    redis_session_lose(session);
    return 0;
}

/* Sends a heartbeat: without ASKING it finds out whether the slot has arrived. */
static int redis_session_call_heartbeat(struct redis_session *session, int asks)
{
    uint8_t before = session->asks;
    session->asks &= (uint8_t)asks;
    redis_call_begin(session, "weir_heartbeat", 0);
    int r = redis_session_call(session, REDIS_CALL_HEARTBEAT);
    session->asks = before;
    session->beating = r == 0;
    return r;
}

void redis_session_beat_asking(struct redis_session *session)
{
    session->beating = 0;
    if (session->state == REDIS_OPEN && redis_session_can_send(session))
        (void)redis_session_call_heartbeat(session, 1); /* otherwise the next one is due soon */
}

/* Tells the server about up to ASSERT_MAX grants, from this one on. Returns the one after them. */
static struct redis_ticket *redis_session_assert(struct redis_session *session,
                                                 struct redis_ticket *from)
{
    const struct redis_set *set = session->set;
    struct redis_buffer *outbox = &session->server->outbox;
    struct redis_ticket *ticket = from;
    size_t n = 0;
    for (; ticket && n < ASSERT_MAX; ticket = ticket->next)
        n += ticket->state == REDIS_HELD;
    redis_call_begin(session, "weir_assert", 1 + n * (4 + set->limits_n));
    redis_buffer_text(outbox, session->server->inbox_key);
    session->inbox = session->server->inbox_n;
    for (; from != ticket; from = from->next) {
        if (from->state != REDIS_HELD)
            continue;
        redis_buffer_number(outbox, from->slot);
        redis_buffer_number(outbox, (int64_t)from->serial);
        redis_buffer_number(outbox, (int64_t)from->fence);
        redis_buffer_number(outbox, (int64_t)from->at_us);
        for (uint32_t i = 0; i < set->limits_n; i++)
            redis_buffer_number(outbox, (int64_t)from->amounts[i]);
    }
    if (redis_session_call(session, REDIS_CALL_ASSERT) < 0)
        redis_calls_break(session->server, "there is no memory");
    return ticket;
}

void redis_session_list(struct redis_session *session, int64_t cursor)
{
    if (!redis_session_can_send(session)) {
        session->list = 0;
        return;
    }
    if (cursor == 0) {
        session->list = ++session->lists_n;
        session->list_version = session->version;
    }
    redis_call_begin(session, "weir_list", 1);
    redis_buffer_number(&session->server->outbox, cursor);
    if (redis_session_call(session, REDIS_CALL_LIST) < 0)
        session->list = 0; /* the next heartbeats see that something does not fit */
}

void redis_session_set_unsent(struct redis_session *session, int is_unsent)
{
    struct redis_connection *connection = session->set->connection;
    connection->unsent_n += (uint32_t)(is_unsent - session->unsent);
    session->unsent = is_unsent != 0;
}

static void redis_session_send_unsent(struct redis_session *session)
{
    struct redis_ticket *last = session->last, *ticket = session->first, *next;
    redis_session_set_unsent(session, 0);
    for (; ticket && redis_session_can_send(session); ticket = next) {
        next = ticket != last ? ticket->next : NULL;
        if (ticket->unsent)
            redis_ticket_send(ticket);
        if (ticket->unsent)
            return;
    }
}

/* Tells the server all that is held, and asks what it has. */
static void redis_session_tell(struct redis_session *session)
{
    struct redis_ticket *ticket = session->first;
    do {
        ticket = redis_session_assert(session, ticket);
    } while (ticket);
    redis_session_list(session, 0);
}

int redis_session_can_send(const struct redis_session *session)
{
    return session->server->ready && !session->target && session->resume_ns == 0;
}

void redis_session_want_inbox(struct redis_session *session)
{
    session->waits = 1;
    redis_due_by(session, 0);
    session->server->inbox_wanted = 1;
}

void redis_session_move(struct redis_session *session, struct redis_server *target, int asks)
{
    if (session->target)
        session->target->sessions_n--;
    session->target = target;
    session->target_asks = asks != 0;
    target->sessions_n++;
    redis_session_arrive(session);
}

void redis_session_tell_away(const struct redis_session *session)
{
    const struct weir_backend_host *host = session->set->connection->host;
    if (session->set->only == session)
        host->away(host->context, session->set->context,
                   session->server->down && redis_server_refusal(session->server) == -ENOTCONN);
}

/* What the server has of the session is not known: so its inbox is named again. */
void redis_session_arrive(struct redis_session *session)
{
    struct redis_server *from = session->server;
    if (!session->target || session->calls_n > 0)
        return;
    session->server = session->target;
    redis_session_tell_away(session);
    session->asks = session->target_asks;
    session->target = NULL;
    session->inbox = 0;
    session->beating = 0;
    from->sessions_n--;
    redis_calls_wake_waiters(from);
    if (session->waits)
        redis_session_want_inbox(session);
    if (redis_session_can_send(session))
        redis_session_resume(session);
    redis_due_by(session, 0);
}

void redis_session_resume(struct redis_session *session)
{
    int r = 0;
    redis_decisions_forget(session);
    session->list = 0;
    session->mismatches = session->beating = 0;
    if (session->state == REDIS_OPEN && session->run != session->server->run)
        redis_decisions_restart(session);
    if (session->state == REDIS_OPENING)
        r = redis_session_call_open(session);
    else if (session->state == REDIS_OPEN && session->run == session->server->run &&
             session->inbox == session->server->inbox_n)
        r = redis_session_call_heartbeat(session, 0);
    else if (session->state == REDIS_OPEN)
        redis_session_tell(session);
    if (r < 0)
        redis_calls_break(session->server, "there is no memory");
    redis_session_send_unsent(session);
    redis_decisions_go(session);
}

void redis_session_set_timer(struct redis_session *session, int64_t us)
{
    session->pump_ns = REDIS_NEVER;
    if (us < 0 || session->state != REDIS_OPEN)
        return;
    if (us == 0) {
        redis_decisions_forget(session); /* others may have changed what the head waits for */
        if (redis_decisions_wake(session))
            return;
        us = session->set->states_size > 0 ? PUMP_LEAST_US : 0; /* the head is not known here yet */
    }
    session->pump_ns = redis_boot_ns() + (uint64_t)us * REDIS_US;
    redis_due_by(session, session->pump_ns);
}

/* Decides the requests that have not been answered for too long, as there is no link. Returns when
 * to look again. */
static uint64_t redis_session_expire(struct redis_session *session, uint64_t now_ns)
{
    const struct redis_connection *connection = session->set->connection;
    uint64_t next_ns = REDIS_NEVER;
    int code = redis_server_refusal(session->server);
    struct redis_ticket *last = session->last, *ticket = session->first, *next;
    for (; ticket; ticket = next) {
        uint64_t end_ns = ticket->asked_ns + connection->options.timeout_ns;
        next = ticket != last ? ticket->next : NULL;
        if (session->server->down && ticket->mode != WEIR_BACKEND_WAIT)
            end_ns = 0;
        if (ticket->patient && code == -ENOTCONN)
            end_ns = REDIS_NEVER;
        if (ticket->state == REDIS_ASKING && end_ns <= now_ns)
            redis_ticket_fail(ticket, code);
        else if (ticket->state == REDIS_ASKING && end_ns < next_ns)
            next_ns = end_ns;
    }
    return next_ns;
}

static void redis_session_beat(struct redis_session *session, uint64_t now_ns)
{
    struct redis_connection *connection = session->set->connection;
    if (session->heartbeat_ns <= now_ns && session->tickets_n == 0 && session->set->has_subjects) {
        redis_session_leave(session);
        return;
    }
    if (session->heartbeat_ns <= now_ns && !session->beating)
        (void)redis_session_call_heartbeat(session, 0); /* otherwise the next one */
    if (session->heartbeat_ns <= now_ns)
        session->heartbeat_ns = now_ns + connection->options.session_ns / HEARTBEATS;
    if (session->pump_ns <= now_ns && redis_decisions_wake(session))
        return;
    if (session->pump_ns <= now_ns) {
        redis_call_begin(session, "weir_pump", 0);
        if (redis_session_call(session, REDIS_CALL_PUMP) == 0)
            session->pump_ns = REDIS_NEVER;
        else
            session->pump_ns = session->heartbeat_ns;
    }
}

static uint64_t redis_session_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Sends what is due. Returns when there will be something again. */
static uint64_t redis_session_send(struct redis_session *session, uint64_t now_ns)
{
    if (session->unsent)
        redis_session_send_unsent(session);
    uint64_t next_ns = redis_decisions_tick(session, now_ns);
    if (session->state != REDIS_OPEN)
        return next_ns;
    if (session->waits && session->inbox != session->server->inbox_n)
        redis_session_tell(session);
    redis_session_beat(session, now_ns);
    next_ns = redis_session_earlier(next_ns, session->heartbeat_ns);
    return redis_session_earlier(next_ns, session->pump_ns);
}

uint64_t redis_session_tick(struct redis_session *session, uint64_t now_ns)
{
    uint64_t next_ns = session->resume_ns ? session->resume_ns : REDIS_NEVER;
    if (session->expires_ns <= now_ns)
        redis_session_lose(session);
    if (session->resume_ns && session->resume_ns <= now_ns) {
        session->resume_ns = 0;
        redis_calls_wake_waiters(session->server);
        if (redis_session_can_send(session))
            redis_session_resume(session);
    }
    if (redis_session_can_send(session))
        next_ns = redis_session_send(session, now_ns);
    else
        next_ns = redis_session_earlier(next_ns, redis_session_expire(session, now_ns));
    if (session->state == REDIS_CLOSED && session->set->has_subjects)
        next_ns = redis_session_earlier(next_ns,
                                        now_ns + redis_session_idle_ns(session->set->connection));
    return redis_session_earlier(next_ns, session->expires_ns);
}

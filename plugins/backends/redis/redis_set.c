/* SPDX-License-Identifier: MIT */
/* Operations on sets, for the core. */
#include "redis_set.h"

#include "redis_calls.h"
#include "redis_due.h"
#include "redis_key.h"
#include "redis_revision.h"
#include "redis_server.h"
#include "redis_session.h"
#include "redis_tickets.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than this is no greater debt: an amount and a burst have at most 2^49 units. */
#define USED_MAX (UINT64_C(1) << 51)
/* Bytes of a text of the protocol. */
#define STATES_MAX (1u << 20)

static void set_free(struct redis_set *set)
{
    redis_table_free(&set->tokens);
    free(set->tickets);
    free(set->free_tickets);
    free(set->initial);
    free(set->spare_ns);
    free(set->holds);
    free(set->foreign);
    free(set->returns);
    free(set->definition);
    free(set->key);
    free(set);
}

/* Copies what is needed of the limits, and of the name. Returns 0, or -ENOMEM. */
static int set_copy(struct redis_set *set, const struct weir_backend_set *from)
{
    const char *prefix = set->connection->options.prefix;
    set->initial = calloc(from->limits_n, sizeof(*set->initial));
    set->spare_ns = calloc(from->limits_n, sizeof(*set->spare_ns));
    set->holds = calloc(from->limits_n, sizeof(*set->holds));
    set->foreign = calloc(from->limits_n, sizeof(*set->foreign));
    set->returns = calloc(from->limits_n, sizeof(*set->returns));
    set->definition = malloc(REDIS_DEFINITION_MAX + 1);
    set->key = malloc(REDIS_KEY_NAME_ROOM(strlen(prefix), strlen(from->name)));
    if (!set->initial || !set->spare_ns || !set->holds || !set->foreign || !set->returns ||
        !set->definition || !set->key)
        return -ENOMEM;
    set->key_size = redis_key_begin(set->key, prefix, from->name);
    set->limits_n = from->limits_n;
    set->has_subjects = from->has_subjects;
    set->counts_nodes = from->counts_nodes;
    set->is_fair = from->fair != 0;
    set->max_waiters = redis_definition_waiters(from);
    set->revision = from->revision;
    set->shape = redis_definition_shape(from);
    set->context = from->context;
    for (uint32_t i = 0; i < from->limits_n; i++) {
        const struct weir_backend_limit *limit =
            (const void *)((const char *)from->limits + i * from->limits->size);
        set->initial[i] = redis_definition_initial(limit);
        set->holds[i] = limit->algorithm == NULL;
        set->spare_ns[i] = REDIS_NEVER;
    }
    return 0;
}

/* Has the core decide the limits that the server does not have. Returns 0, or -EINVAL with the
 * reason. */
static int set_give_over(struct redis_set *set, const struct weir_backend_set *from,
                         struct weir_reason *reterr)
{
    for (uint32_t i = 0; i < from->limits_n; i++) {
        const struct weir_backend_limit *limit =
            (const void *)((const char *)from->limits + i * from->limits->size);
        if (!redis_definition_is_foreign(limit))
            continue;
        *limit->ret_is_decided = 1;
        set->foreign[i] = 1;
        set->returns[i] = limit->type == WEIR_LIMIT_RESOURCE;
        if (limit->state_size > STATES_MAX - set->states_size) {
            snprintf(reterr->message, sizeof(reterr->message),
                     "limit `%s`: states of algorithms that a Redis server does not have take at "
                     "most %u bytes together",
                     limit->key, STATES_MAX);
            return -EINVAL;
        }
        set->states_size += limit->state_size;
    }
    return 0;
}

/* Less can be granted at once of a limit that is leased, from the beginning. */
static void set_lease(struct redis_set *set, const struct weir_backend_set *from)
{
    for (uint32_t i = 0; i < from->limits_n; i++) {
        const struct weir_backend_limit *limit =
            (const void *)((const char *)from->limits + i * from->limits->size);
        if (limit->lease_for_ns > 0 && set->initial[i] > *limit->ret_capacity)
            set->initial[i] = *limit->ret_capacity;
    }
}

/* Adds the set to the connection. Returns 0, or -ENOMEM. */
static int set_link(struct redis_connection *connection, struct redis_set *set)
{
    int r = 0;
    pthread_mutex_lock(&connection->lock);
    if (!set->has_subjects) {
        set->only = redis_session_get(set, NULL, 0);
        r = set->only ? 0 : -ENOMEM;
    }
    if (r == 0) {
        set->next = connection->sets;
        if (set->next)
            set->next->previous = set;
        connection->sets = set;
    }
    pthread_mutex_unlock(&connection->lock);
    return r;
}

/* Returns the set that is to get this definition, or NULL: it is one of its own. */
static const struct redis_set *set_before(const struct weir_backend_set *from)
{
    const size_t with_before = offsetof(struct weir_backend_set, before) + sizeof(from->before);
    return from->size >= with_before ? from->before : NULL;
}

/* Sees whether a set can get a definition. Returns 0, or -EOPNOTSUPP with the reason. */
static int set_check_next(const struct redis_set *before, const struct redis_set *next,
                          struct weir_reason *reterr)
{
    char words[2 * REDIS_REVISION_WORDS];
    const char *why = before->has_subjects == next->has_subjects
                          ? redis_revision_refusal(before, next, words)
                          : "it would have other states, by `subjects`: rename the set";
    if (!why)
        return 0;
    snprintf(reterr->message, sizeof(reterr->message), "%.250s", why);
    return -EOPNOTSUPP;
}

int redis_set_open(void *to, const struct weir_backend_set *from, void **ret_set,
                   struct weir_reason *reterr)
{
    const struct redis_set *before = set_before(from);
    struct redis_connection *connection = to;
    struct redis_set *set = calloc(1, sizeof(*set));
    int r = set ? 0 : -ENOMEM;
    if (r == 0) {
        set->connection = connection;
        r = set_copy(set, from);
    }
    if (r == 0)
        r = redis_definition_write(from, &connection->options.definition, set->definition, reterr);
    if (r >= 0) {
        set->definition_size = (size_t)r;
        r = set_give_over(set, from, reterr);
    }
    if (r == 0) {
        set_lease(set, from);
        set->is_next = before != NULL;
        r = before ? set_check_next(before, set, reterr) : set_link(connection, set);
    }
    if (r < 0) {
        if (set)
            set_free(set);
        return r;
    }
    *ret_set = set;
    return 0;
}

/* Moves what a definition says. All else belongs to what is held and waits. */
static void set_adopt(struct redis_set *set, struct redis_set *next)
{
    free(set->definition);
    free(set->initial);
    set->definition = next->definition;
    set->definition_size = next->definition_size;
    set->initial = next->initial;
    next->definition = NULL;
    next->initial = NULL;
    set->revision = next->revision;
    set->max_waiters = next->max_waiters;
    set->is_fair = next->is_fair;
    set->counts_nodes = next->counts_nodes;
    set->context = next->context;
}

/* The server learns of it at once where requests may wait: there may be more to be granted. */
void redis_set_redefine(void *of, void *with)
{
    struct redis_set *set = of, *next = with;
    pthread_mutex_lock(&set->connection->lock);
    set_adopt(set, next);
    for (struct redis_session *session = set->sessions; session; session = session->next) {
        session->complained = 0;
        if (session == set->only || session->waits_n > 0)
            redis_session_set_timer(session, REDIS_AT_ONCE);
    }
    if (set->only)
        redis_session_tell_away(set->only);
    pthread_mutex_unlock(&set->connection->lock);
    set_free(next);
}

void redis_set_close(void *of)
{
    struct redis_set *set = of;
    struct redis_connection *connection = set->connection;
    if (set->is_next) {
        set_free(set);
        return;
    }
    pthread_mutex_lock(&connection->lock);
    for (struct redis_session *session = set->sessions; session; session = session->next)
        redis_session_leave(session);
    for (struct redis_server *server = connection->servers; server; server = server->next)
        redis_calls_flush(server);
    redis_calls_forget_set(set);
    while (set->sessions)
        redis_session_free(set->sessions);
    if (set->next)
        set->next->previous = set->previous;
    if (set->previous)
        set->previous->next = set->next;
    else
        connection->sets = set->next;
    pthread_mutex_unlock(&connection->lock);
    set_free(set);
}

/* Returns the first limit that more is asked of than the protocol has numbers for; `limits_n`:
 * there is none. The core refuses what is more than a capacity, and those of the server's
 * algorithms are less. */
static uint32_t set_too_large(const struct redis_set *set, const uint64_t *amounts)
{
    uint32_t i = 0;
    while (i < set->limits_n && amounts[i] <= REDIS_AMOUNT_MAX)
        i++;
    return i;
}

/* With the lock. Returns 0, and the session, or a code. */
static int set_ask(struct redis_set *set, const struct weir_backend_ask *ask,
                   struct redis_session **ret_session)
{
    struct redis_connection *connection = set->connection;
    struct redis_session *session = redis_session_get(set, ask->subject, ask->subject_size);
    struct redis_ticket *ticket;
    if (!session)
        return -ENOMEM;
    struct redis_server *server = session->server;
    if (redis_calls_are_full(server))
        return -ENOBUFS;
    int r = redis_ticket_new(session, ask, &ticket);
    if (r < 0)
        return r;
    uint32_t too_large = set_too_large(set, ask->amounts);
    if (ask->mode == WEIR_BACKEND_WAIT && !session->waits)
        redis_session_want_inbox(session);
    if (too_large < set->limits_n) {
        redis_ticket_refuse(ticket, -ERANGE, too_large, -1);
    } else if (server->down && ask->mode != WEIR_BACKEND_WAIT) {
        redis_ticket_fail(ticket, redis_server_refusal(server));
    } else if (session->unsent || !redis_session_can_send(session)) {
        redis_ticket_set_unsent(ticket); /* after those that are to be sent before it */
        if (!server->link)
            redis_calls_wake_by(connection, server->retry_ns);
    } else {
        redis_ticket_send(ticket);
    }
    *ret_session = session;
    return 0;
}

int redis_set_ask(void *of, const struct weir_backend_ask *ask)
{
    struct redis_set *set = of;
    struct redis_session *session;
    pthread_mutex_lock(&set->connection->lock);
    int r = set_ask(set, ask, &session);
    if (r == 0)
        redis_calls_flush(session->server);
    pthread_mutex_unlock(&set->connection->lock);
    return r;
}

int redis_set_wait(void *of, uint64_t token, uint64_t until_ns)
{
    struct redis_set *set = of;
    struct redis_waiter waiter = {0};
    int r = 1;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_ticket *ticket = redis_ticket_of_token(set, token);
    if (ticket && ticket->state == REDIS_ASKING) {
        waiter.session = ticket->session;
        ticket->waiter = &waiter;
        r = redis_calls_wait(&waiter, until_ns);
        ticket = r ? NULL : redis_ticket_of_token(set, token);
        if (ticket)
            ticket->waiter = NULL;
    }
    pthread_mutex_unlock(&set->connection->lock);
    return r;
}

void redis_set_cancel(void *of, uint64_t token)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_ticket *ticket = redis_ticket_of_token(set, token);
    if (ticket) {
        struct redis_server *server = ticket->session->server;
        redis_ticket_cancel(ticket);
        redis_calls_flush(server);
    }
    pthread_mutex_unlock(&set->connection->lock);
}

void redis_set_release(void *of, const struct weir_backend_release *how)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_ticket *ticket = redis_ticket_of_hold(set, how->hold);
    if (ticket) {
        for (uint32_t i = 0; i < set->limits_n; i++)
            ticket->used[i] = how->used[i] < USED_MAX ? how->used[i] : USED_MAX;
        ticket->undo = how->undo != 0;
        ticket->outcome = how->outcome;
        ticket->latency_ns = how->latency_ns;
        redis_ticket_become(ticket, REDIS_RELEASING);
        redis_ticket_send(ticket);
        redis_calls_flush(ticket->session->server);
    }
    pthread_mutex_unlock(&set->connection->lock);
}

void redis_set_return_part(void *of, uint64_t hold, const uint64_t *left)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_ticket *ticket = redis_ticket_of_hold(set, hold);
    if (ticket) {
        memcpy(ticket->amounts, left, set->limits_n * sizeof(*left));
        ticket->returns = 1;
        ticket->version = ++ticket->session->version;
        redis_ticket_send(ticket);
        redis_calls_flush(ticket->session->server);
    }
    pthread_mutex_unlock(&set->connection->lock);
}

int redis_set_is_held(void *of, uint64_t hold)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    const struct redis_ticket *ticket = redis_ticket_of_hold(set, hold);
    int r = ticket && redis_session_is_alive(ticket->session);
    pthread_mutex_unlock(&set->connection->lock);
    return r;
}

/* A session may end while a thread waits to send: so it is looked for each time. */
int redis_set_call(struct redis_set *set, const void *subject, size_t subject_size,
                   struct redis_waiter *waiter, uint64_t until_ns,
                   int (*call)(struct redis_waiter *waiter, uint64_t until_ns))
{
    int r = -EAGAIN;
    while (r == -EAGAIN) {
        waiter->session = redis_session_get(set, subject, subject_size);
        if (!waiter->session)
            r = -ENOMEM;
        else if (redis_session_can_send(waiter->session))
            r = call(waiter, until_ns);
        else if (waiter->session->server->down)
            r = redis_server_refusal(waiter->session->server);
        else if (!redis_calls_wait_to_send(waiter, until_ns))
            r = -ETIMEDOUT;
    }
    return r;
}

int redis_set_await(struct redis_waiter *waiter, uint64_t until_ns)
{
    waiter->answered = 0;
    waiter->result = -ETIMEDOUT;
    redis_calls_flush(waiter->session->server);
    if (redis_calls_wait(waiter, until_ns))
        return waiter->result;
    redis_calls_forget_waiter(waiter->session->server, waiter);
    return -ETIMEDOUT; /* one of two replies may have come */
}

/* Asks for a snapshot, and waits for it. Returns 0, -EAGAIN: ask again, or another code. With the
 * lock. */
static int set_call_snapshot(struct redis_waiter *waiter, uint64_t until_ns)
{
    struct redis_session *session = waiter->session;
    redis_call_begin(session, "weir_snapshot", 0);
    int r = redis_call_end(session->server, &(struct redis_call){.kind = REDIS_CALL_SNAPSHOT,
                                                                 .session = session,
                                                                 .waiter = waiter,
                                                                 .is_urgent = 1});
    if (r == 0 && session->set->states_size > 0) {
        redis_call_begin(session, "weir_fetch", 0);
        r = redis_call_end(session->server, &(struct redis_call){.kind = REDIS_CALL_LOOK,
                                                                 .session = session,
                                                                 .waiter = waiter,
                                                                 .is_urgent = 1});
        if (r < 0)
            redis_calls_forget_waiter(session->server, waiter);
    }
    return r < 0 ? r : redis_set_await(waiter, until_ns);
}

int redis_set_snapshot(void *of, const void *subject, size_t subject_size, uint64_t until_ns,
                       struct weir_backend_snapshot *ret)
{
    struct redis_set *set = of;
    struct redis_waiter waiter = {.snapshot = ret};
    pthread_mutex_lock(&set->connection->lock);
    int r = redis_set_call(set, subject, subject_size, &waiter, until_ns, set_call_snapshot);
    pthread_mutex_unlock(&set->connection->lock);
    return r;
}

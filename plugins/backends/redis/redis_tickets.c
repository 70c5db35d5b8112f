/* SPDX-License-Identifier: MIT */
/* Tickets: requests and grants of this process. */
#include "redis_tickets.h"

#include "redis_calls.h"
#include "redis_decisions.h"
#include "redis_due.h"
#include "redis_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BITS  20
#define SUM_MODULUS (UINT64_C(1) << 32)
#define ROOM_FIRST  16
#define ATTEMPTS    4                 /* in a session, to have a call permitted */
#define PAUSE_NS    UINT64_C(1000000) /* before a ticket that could not be sent is tried again */

/* A number that is free, of a pool that grows: slots of a session, indices of a set. */
static int redis_ticket_number(struct redis_ticket ***things, uint32_t **free_numbers,
                               uint32_t *things_n, uint32_t *room, uint32_t *free_n, uint32_t *ret)
{
    if (*free_n == 0 && *things_n == *room) {
        uint32_t more = *room ? 2 * *room : ROOM_FIRST;
        if (more > REDIS_SLOTS_MAX)
            return -ENOBUFS;
        struct redis_ticket **larger = realloc(*things, more * sizeof(**things));
        if (!larger)
            return -ENOMEM;
        *things = larger;
        uint32_t *numbers = realloc(*free_numbers, more * sizeof(*numbers));
        if (!numbers)
            return -ENOMEM;
        *free_numbers = numbers;
        *room = more;
    }
    *ret = *free_n > 0 ? (*free_numbers)[--*free_n] : (*things_n)++;
    (*things)[*ret] = NULL;
    return 0;
}

static void redis_ticket_link(struct redis_ticket *ticket)
{
    struct redis_session *session = ticket->session;
    ticket->previous = session->last;
    ticket->next = NULL;
    if (session->last)
        session->last->next = ticket;
    else
        session->first = ticket;
    session->last = ticket;
}

static void redis_ticket_unlink(struct redis_ticket *ticket)
{
    struct redis_session *session = ticket->session;
    if (ticket->previous)
        ticket->previous->next = ticket->next;
    else
        session->first = ticket->next;
    if (ticket->next)
        ticket->next->previous = ticket->previous;
    else
        session->last = ticket->previous;
}

static void redis_ticket_free(struct redis_ticket *ticket)
{
    struct redis_session *session = ticket->session;
    struct redis_set *set = session->set;
    redis_decisions_drop(ticket);
    redis_ticket_unlink(ticket);
    session->tickets_n--;
    if (ticket->slot != REDIS_NO_SLOT) {
        session->slots[ticket->slot] = NULL;
        session->free_slots[session->free_n++] = ticket->slot;
    }
    set->tickets[ticket->index] = NULL;
    set->free_tickets[set->free_n++] = ticket->index;
    free(ticket);
}

int redis_ticket_new(struct redis_session *session, const struct weir_backend_ask *ask,
                     struct redis_ticket **ret)
{
    struct redis_set *set = session->set;
    size_t amounts_size = set->limits_n * sizeof(uint64_t);
    size_t arrays_n = set->states_size > 0 ? 4 : 2;
    struct redis_ticket *ticket = calloc(1, sizeof(*ticket) + arrays_n * amounts_size);
    if (!ticket)
        return -ENOMEM;
    *ticket = (struct redis_ticket){.session = session,
                                    .token = ask->token,
                                    .mode = ask->mode,
                                    .state = REDIS_ASKING,
                                    .slot = REDIS_NO_SLOT,
                                    .asked_ns = redis_boot_ns(),
                                    .max_wait_ns = ask->max_wait_ns,
                                    .patient = ask->mode == WEIR_BACKEND_WAIT &&
                                               ask->flags & WEIR_BACKEND_PATIENT};
    ticket->deadline_ns = REDIS_NEVER;
    if (ask->timeout_ns < REDIS_NEVER / 2)
        ticket->deadline_ns = redis_now_ns() + ask->timeout_ns;
    ticket->used = ticket->amounts + set->limits_n;
    memcpy(ticket->amounts, ask->amounts, amounts_size);
    if (set->states_size > 0) {
        ticket->before = ticket->used + set->limits_n;
        memcpy(ticket->before, ask->amounts, amounts_size);
    }
    for (uint32_t i = 0; i < set->limits_n; i++)
        ticket->is_foreign |= set->foreign[i] && ask->amounts[i] > 0;
    int r = redis_ticket_number(&set->tickets, &set->free_tickets, &set->tickets_n,
                                &set->tickets_room, &set->free_n, &ticket->index);
    if (r < 0) {
        free(ticket);
        return r;
    }
    set->tickets[ticket->index] = ticket;
    redis_ticket_link(ticket);
    session->tickets_n++;
    if (ticket->mode != WEIR_BACKEND_TAKE) {
        r = redis_ticket_number(&session->slots, &session->free_slots, &session->slots_n,
                                &session->slots_room, &session->free_n, &ticket->slot);
        if (r == 0)
            session->slots[ticket->slot] = ticket;
    }
    if (r == 0)
        r = redis_table_add(&set->tokens, &ticket->by_token, redis_hash_number(ticket->token));
    if (r < 0) {
        redis_ticket_free(ticket);
        return r;
    }
    ticket->named = 1;
    *ret = ticket;
    return 0;
}

struct redis_ticket *redis_ticket_of_token(const struct redis_set *set, uint64_t token)
{
    struct redis_entry *entry = redis_table_first(&set->tokens, redis_hash_number(token));
    for (; entry; entry = redis_table_next(entry)) {
        struct redis_ticket *ticket =
            (void *)((char *)entry - offsetof(struct redis_ticket, by_token));
        if (ticket->token == token)
            return ticket;
    }
    return NULL;
}

static uint64_t redis_ticket_hold(const struct redis_ticket *ticket)
{
    return ticket->serial << INDEX_BITS | ticket->index;
}

struct redis_ticket *redis_ticket_of_hold(const struct redis_set *set, uint64_t hold)
{
    uint64_t index = hold & ((UINT64_C(1) << INDEX_BITS) - 1);
    struct redis_ticket *ticket = index < set->tickets_n ? set->tickets[index] : NULL;
    return ticket && ticket->state == REDIS_HELD && ticket->serial == hold >> INDEX_BITS ? ticket
                                                                                         : NULL;
}

struct redis_ticket *redis_ticket_of_call(const struct redis_call *call)
{
    struct redis_ticket *ticket = call->ticket;
    return ticket && ticket->serial == call->serial && ticket->serial > 0 ? ticket : NULL;
}

struct redis_ticket *redis_ticket_at(const struct redis_session *session, int64_t slot,
                                     int64_t serial)
{
    if (slot < 0 || slot >= session->slots_n || serial <= 0)
        return NULL;
    struct redis_ticket *ticket = session->slots[slot];
    return ticket && ticket->serial == (uint64_t)serial ? ticket : NULL;
}

/* Counts a ticket as held or waiting, or no more. */
static void redis_ticket_count(struct redis_ticket *ticket, int sign)
{
    struct redis_session *session = ticket->session;
    uint64_t serial = sign > 0 ? ticket->serial : SUM_MODULUS - ticket->serial % SUM_MODULUS;
    if (ticket->state == REDIS_HELD) {
        session->held_n += (uint32_t)sign;
        session->held_sum = (session->held_sum + serial) % SUM_MODULUS;
    } else if (ticket->state == REDIS_QUEUED) {
        session->waits_n += (uint32_t)sign;
        session->waits_sum = (session->waits_sum + serial) % SUM_MODULUS;
    }
}

void redis_ticket_become(struct redis_ticket *ticket, enum redis_ticket_state state)
{
    redis_decisions_drop(ticket);
    redis_ticket_count(ticket, -1);
    ticket->state = state;
    redis_ticket_count(ticket, 1);
    ticket->version = ++ticket->session->version;
    if (state == REDIS_QUEUED)
        redis_decisions_queue(ticket);
}

void redis_ticket_settle(struct redis_ticket *ticket)
{
    if (ticket->state == REDIS_ENDED && ticket->calls_n == 0)
        redis_ticket_free(ticket);
}

void redis_ticket_end(struct redis_ticket *ticket)
{
    ticket->unsent = 0;
    redis_ticket_become(ticket, REDIS_ENDED);
}

/* Ends a ticket, and frees it unless a call names it. */
static void redis_ticket_end_now(struct redis_ticket *ticket)
{
    redis_ticket_end(ticket);
    redis_ticket_settle(ticket);
}

void redis_ticket_lose(struct redis_ticket *ticket)
{
    struct redis_set *set = ticket->session->set;
    const struct weir_backend_host *host = set->connection->host;
    if (ticket->state == REDIS_HELD)
        host->lost(host->context, set->context, ticket->token, redis_ticket_hold(ticket));
    redis_ticket_end_now(ticket);
}

/* Has the ticket be sent by this instant, if that can be by then. */
static void redis_ticket_send_by(struct redis_ticket *ticket, uint64_t at_ns)
{
    struct redis_session *session = ticket->session;
    int is_due = redis_session_can_send(session) || session->server->down;
    ticket->unsent = 1;
    redis_session_set_unsent(session, 1);
    redis_due_by(session,
                 is_due ? at_ns : ticket->asked_ns + session->set->connection->options.timeout_ns);
}

void redis_ticket_set_unsent(struct redis_ticket *ticket)
{
    redis_ticket_send_by(ticket, 0);
}

void redis_ticket_send_later(struct redis_ticket *ticket)
{
    uint64_t session_ns = ticket->session->set->connection->options.session_ns;
    redis_ticket_send_by(ticket, redis_boot_ns() + session_ns / ATTEMPTS);
}

static void redis_ticket_add_amounts(struct redis_ticket *ticket, const uint64_t *amounts)
{
    struct redis_set *set = ticket->session->set;
    for (uint32_t i = 0; i < set->limits_n; i++)
        redis_buffer_number(&ticket->session->server->outbox, (int64_t)amounts[i]);
}

/* Adds a duration: whole microseconds, or -1 for no end. */
static void redis_ticket_add_duration(struct redis_buffer *outbox, uint64_t ns, uint64_t round)
{
    uint64_t us = ns / REDIS_US + (ns % REDIS_US != 0 ? round : 0);
    redis_buffer_number(outbox, ns == REDIS_NEVER || us >> 52 ? -1 : (int64_t)us);
}

/* The arguments of a call: which ticket. */
static void redis_ticket_add_name(struct redis_ticket *ticket)
{
    struct redis_buffer *outbox = &ticket->session->server->outbox;
    redis_buffer_number(outbox, ticket->slot);
    redis_buffer_number(outbox, (int64_t)ticket->serial);
}

/* Returns how long the request may still wait; REDIS_NEVER: there is no end. */
static uint64_t redis_ticket_left(const struct redis_ticket *ticket)
{
    if (ticket->deadline_ns == REDIS_NEVER)
        return REDIS_NEVER;
    uint64_t now = redis_now_ns();
    return ticket->deadline_ns > now ? ticket->deadline_ns - now : 0;
}

static void redis_ticket_write_ask(struct redis_ticket *ticket)
{
    struct redis_set *set = ticket->session->set;
    struct redis_buffer *outbox = &ticket->session->server->outbox;
    if (ticket->mode == WEIR_BACKEND_TAKE) {
        redis_call_begin(ticket->session, "weir_take", set->limits_n);
    } else if (ticket->mode == WEIR_BACKEND_RESERVE) {
        redis_call_begin(ticket->session, "weir_reserve", 4 + set->limits_n);
        redis_buffer_word(outbox, "", 0);
        redis_ticket_add_name(ticket);
        redis_ticket_add_duration(outbox, ticket->max_wait_ns, 0);
    } else {
        int waits = ticket->mode == WEIR_BACKEND_WAIT;
        redis_call_begin(ticket->session, "weir_acquire", 6 + set->limits_n);
        redis_buffer_word(outbox, "", 0);
        redis_ticket_add_name(ticket);
        redis_buffer_text(outbox, waits ? "wait" : "try");
        redis_ticket_add_duration(outbox, redis_ticket_left(ticket), 1);
        redis_ticket_add_duration(outbox, ticket->max_wait_ns, 0);
    }
    redis_ticket_add_amounts(ticket, ticket->amounts);
}

static int redis_ticket_call(struct redis_ticket *ticket, enum redis_call_kind kind)
{
    struct redis_session *session = ticket->session;
    int is_lazy = kind == REDIS_CALL_RELEASE || kind == REDIS_CALL_RETURN;
    return redis_call_end(session->server,
                          &(struct redis_call){.kind = kind,
                                               .session = session,
                                               .ticket = ticket,
                                               .serial = ticket->serial,
                                               .is_urgent = !is_lazy || session->waits_n > 0});
}

/* A request gets its serial number as it is sent: so they are in the order of the calls. */
static int redis_ticket_call_ask(struct redis_ticket *ticket)
{
    if (ticket->serial == 0)
        ticket->serial = ++ticket->session->set->serials;
    redis_ticket_write_ask(ticket);
    return redis_ticket_call(ticket, REDIS_CALL_ACQUIRE);
}

static int redis_ticket_call_cancel(struct redis_ticket *ticket, enum redis_call_kind kind)
{
    redis_call_begin(ticket->session, "weir_cancel", 2);
    redis_ticket_add_name(ticket);
    return redis_ticket_call(ticket, kind);
}

static int redis_ticket_call_return(struct redis_ticket *ticket)
{
    redis_call_begin(ticket->session, "weir_return", 2 + ticket->session->set->limits_n);
    redis_ticket_add_name(ticket);
    redis_ticket_add_amounts(ticket, ticket->amounts);
    return redis_ticket_call(ticket, REDIS_CALL_RETURN);
}

static int redis_ticket_call_release(struct redis_ticket *ticket)
{
    redis_call_begin(ticket->session, "weir_release", 3 + ticket->session->set->limits_n);
    redis_ticket_add_name(ticket);
    redis_buffer_text(&ticket->session->server->outbox, ticket->undo ? "undo" : "end");
    redis_ticket_add_amounts(ticket, ticket->used);
    return redis_ticket_call(ticket, REDIS_CALL_RELEASE);
}

static int redis_ticket_call_next(struct redis_ticket *ticket)
{
    int r = 0;
    if (ticket->mode != WEIR_BACKEND_TAKE || ticket->session->set->counts_nodes)
        r = redis_session_open(ticket->session);
    if (r == 0 && redis_decisions_have(ticket))
        return redis_decisions_add(ticket);
    if (r == 0 && ticket->unsure && ticket->state != REDIS_CANCELING)
        return redis_ticket_call_cancel(ticket, REDIS_CALL_RESOLVE);
    if (r == 0 && ticket->returns &&
        (ticket->state == REDIS_HELD || ticket->state == REDIS_RELEASING))
        r = redis_ticket_call_return(ticket);
    if (r < 0)
        return r;
    switch (ticket->state) {
    case REDIS_ASKING:
        return redis_ticket_call_ask(ticket);
    case REDIS_CANCELING:
        return redis_ticket_call_cancel(ticket, REDIS_CALL_CANCEL);
    case REDIS_RELEASING:
        return redis_ticket_call_release(ticket);
    default:
        return 0;
    }
}

void redis_ticket_send(struct redis_ticket *ticket)
{
    const struct redis_session *session = ticket->session;
    if (!redis_session_can_send(session) || redis_calls_are_full(session->server) ||
        redis_ticket_call_next(ticket) < 0) /* too much is on its way, or there is no memory */
        redis_ticket_send_by(ticket, redis_boot_ns() + PAUSE_NS);
    else
        ticket->unsent = 0;
}

/* Answers the thread that waits, and takes the ticket's token away. */
static void redis_ticket_answer(struct redis_ticket *ticket, int is_decided)
{
    if (ticket->waiter)
        redis_calls_answer(ticket->waiter);
    ticket->waiter = NULL;
    if (is_decided && ticket->named)
        redis_table_remove(&ticket->session->set->tokens, &ticket->by_token);
    if (is_decided)
        ticket->named = 0;
}

/* Reports a verdict. Returns what the core says of it; 1 as well if it was canceled. */
static int redis_ticket_decide(struct redis_ticket *ticket,
                               const struct weir_backend_verdict *verdict)
{
    struct redis_set *set = ticket->session->set;
    const struct weir_backend_host *host = set->connection->host;
    if (!ticket->named)
        return 1;
    int r = host->decided(host->context, set->context, ticket->token, verdict);
    redis_ticket_answer(ticket, 1);
    return r;
}

void redis_ticket_grant(struct redis_ticket *ticket, uint64_t fence, uint64_t at_us, uint64_t us)
{
    int is_final = ticket->mode == WEIR_BACKEND_TAKE;
    struct weir_backend_verdict verdict = {.size = sizeof(verdict),
                                           .limit = UINT32_MAX,
                                           .hold = is_final ? 0 : redis_ticket_hold(ticket),
                                           .fence = is_final ? 0 : fence,
                                           .delay_ns = us * REDIS_US,
                                           .waited = ticket->state == REDIS_QUEUED};
    ticket->fence = fence;
    ticket->at_us = at_us;
    ticket->unsent = ticket->unsure = 0;
    if (is_final) {
        redis_ticket_decide(ticket, &verdict);
        redis_ticket_end_now(ticket);
        return;
    }
    redis_ticket_become(ticket, REDIS_HELD);
    if (redis_ticket_decide(ticket, &verdict)) {
        ticket->undo = 1;
        redis_ticket_become(ticket, REDIS_RELEASING);
        redis_ticket_send(ticket);
    }
}

void redis_ticket_refuse(struct redis_ticket *ticket, int code, int64_t limit, int64_t us)
{
    uint64_t ns = us >= 0 ? (uint64_t)us * REDIS_US : REDIS_NEVER;
    struct weir_backend_verdict verdict = {.size = sizeof(verdict),
                                           .result = code,
                                           .limit = limit >= 0 ? (uint32_t)limit : UINT32_MAX,
                                           .retry_after_ns = ns,
                                           .is_too_late = ticket->is_too_late};
    redis_ticket_decide(ticket, &verdict);
    redis_ticket_end_now(ticket);
}

void redis_ticket_fail(struct redis_ticket *ticket, int code)
{
    redis_ticket_decide(ticket,
                        &(struct weir_backend_verdict){.size = sizeof(struct weir_backend_verdict),
                                                       .result = code,
                                                       .limit = UINT32_MAX,
                                                       .retry_after_ns = REDIS_NEVER});
    redis_ticket_cancel(ticket);
}

void redis_ticket_cancel(struct redis_ticket *ticket)
{
    redis_ticket_answer(ticket, 1);
    if (ticket->serial == 0 || ticket->mode == WEIR_BACKEND_TAKE) {
        redis_ticket_end_now(ticket);
        return;
    }
    redis_ticket_become(ticket, REDIS_CANCELING);
    redis_ticket_send(ticket);
}

static void redis_ticket_unname(struct redis_ticket *ticket)
{
    ticket->serial = 0;
    ticket->unsure = 0;
    redis_ticket_unlink(ticket);
    redis_ticket_link(ticket);
}

void redis_ticket_ask_again(struct redis_ticket *ticket)
{
    redis_ticket_become(ticket, REDIS_ASKING);
    ticket->queues = 0;
    if (ticket->mode == WEIR_BACKEND_WAIT || ticket->session->state == REDIS_CLOSED)
        ticket->asked_ns = redis_boot_ns(); /* otherwise it ends in time */
    redis_ticket_unname(ticket);
    redis_ticket_set_unsent(ticket);
}

void redis_ticket_name(struct redis_ticket *ticket)
{
    redis_ticket_unname(ticket);
    ticket->serial = ++ticket->session->set->serials;
}

void redis_ticket_enqueue(struct redis_ticket *ticket)
{
    redis_decisions_drop(ticket);
    redis_ticket_unname(ticket);
    ticket->queues = 1;
    redis_ticket_send(ticket);
}

void redis_ticket_end_wait(struct redis_ticket *ticket, int code)
{
    uint64_t left = redis_ticket_left(ticket);
    if (left > 0 && left != REDIS_NEVER)
        redis_ticket_ask_again(ticket);
    else
        redis_ticket_refuse(ticket, left == 0 ? -ETIMEDOUT : code, -1, -1);
}

void redis_ticket_queue(struct redis_ticket *ticket)
{
    redis_ticket_become(ticket, REDIS_QUEUED);
    redis_ticket_answer(ticket, 0);
}

/* SPDX-License-Identifier: MIT */
/* What becomes of a message from an inbox. */
#include "redis_messages.h"

#include "redis_decisions.h"
#include "redis_session.h"
#include "redis_tickets.h"

#include <errno.h>
#include <stdlib.h>

enum { ENDED_TIMEOUT = 1, ENDED_RANGE = 3 };

/* Reads numbers from a message, each after a space. Returns what follows them, or NULL. */
static const char *messages_numbers(const char *text, int64_t *ret, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (*text != ' ' || text[1] < '0' || text[1] > '9')
            return NULL;
        ret[i] = strtoll(text + 1, &end, 10);
        text = end;
    }
    return *text == ' ' ? text + 1 : NULL;
}

static void messages_ended(struct redis_ticket *ticket, int64_t reason)
{
    if (ticket->state != REDIS_ASKING && ticket->state != REDIS_QUEUED)
        return;
    if (reason == ENDED_RANGE)
        redis_ticket_refuse(ticket, -ERANGE, -1, -1);
    else
        redis_ticket_end_wait(ticket, reason == ENDED_TIMEOUT ? -ETIMEDOUT : -EAGAIN);
}

/* The head is to be decided, by a text that another node has stored. */
static void messages_decide(struct redis_session *session)
{
    redis_decisions_forget(session);
    (void)redis_decisions_wake(session); /* or it waits no more */
}

void redis_messages_take(struct redis_server *server, const char *text, size_t size)
{
    size_t numbers = *text == 'G' ? 4 : *text == 'E' ? 3 : *text == 'T' ? 1 : 0;
    int64_t n[4] = {0};
    const char *key = numbers || *text == 'D' ? messages_numbers(text + 1, n, numbers) : NULL;
    if (!key)
        return;
    struct redis_session *session =
        redis_session_of_key(server->connection, key, size - (size_t)(key - text));
    if (session && session->server != server)
        session = NULL; /* it has gone on elsewhere */
    struct redis_ticket *ticket = session ? redis_ticket_at(session, n[0], n[1]) : NULL;
    if (session && *text == 'T')
        redis_session_set_timer(session, n[0]);
    else if (session && *text == 'D')
        messages_decide(session);
    else if (ticket && *text == 'E')
        messages_ended(ticket, n[2]);
    else if (ticket && (ticket->state == REDIS_ASKING || ticket->state == REDIS_QUEUED) &&
             redis_session_is_alive(session)) {
        redis_ticket_become(ticket, REDIS_QUEUED); /* it was, even if the reply is still to come */
        redis_ticket_grant(ticket, (uint64_t)n[2], (uint64_t)n[3], 0);
    }
}

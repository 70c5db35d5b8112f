/* SPDX-License-Identifier: MIT */
/* When sessions have something to do. */
#include "redis_due.h"

#include "redis_calls.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 16

static void due_place(struct redis_connection *connection, uint32_t i,
                      struct redis_session *session)
{
    connection->due[i] = session;
    session->due_i = i;
}

/* Moves a session to where it belongs, from a place where only it may be wrong. */
static void due_sift(struct redis_connection *connection, struct redis_session *session)
{
    struct redis_session **heap = connection->due;
    uint32_t i = session->due_i;
    while (i > 0 && heap[(i - 1) / 2]->due_ns > session->due_ns) {
        due_place(connection, i, heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (uint32_t child; (child = 2 * i + 1) < connection->due_n; i = child) {
        if (child + 1 < connection->due_n && heap[child + 1]->due_ns < heap[child]->due_ns)
            child++;
        if (heap[child]->due_ns >= session->due_ns)
            break;
        due_place(connection, i, heap[child]);
    }
    due_place(connection, i, session);
}

int redis_due_add(struct redis_session *session)
{
    struct redis_connection *connection = session->set->connection;
    if (connection->due_n == connection->due_room) {
        uint32_t room = connection->due_room ? 2 * connection->due_room : ROOM_FIRST;
        struct redis_session **larger =
            realloc(connection->due, room * sizeof(struct redis_session *));
        if (!larger)
            return -ENOMEM;
        connection->due = larger;
        connection->due_room = room;
    }
    session->due_ns = REDIS_NEVER;
    due_place(connection, connection->due_n++, session);
    return 0;
}

void redis_due_remove(struct redis_session *session)
{
    struct redis_connection *connection = session->set->connection;
    struct redis_session *last = connection->due[--connection->due_n];
    if (last == session)
        return;
    due_place(connection, session->due_i, last);
    due_sift(connection, last);
}

void redis_due_set(struct redis_session *session, uint64_t at_ns)
{
    session->due_ns = at_ns;
    due_sift(session->set->connection, session);
}

void redis_due_by(struct redis_session *session, uint64_t at_ns)
{
    if (at_ns >= session->due_ns)
        return;
    redis_due_set(session, at_ns);
    redis_calls_wake_by(session->set->connection, at_ns);
}

void redis_due_all(const struct redis_server *server)
{
    for (struct redis_set *set = server->connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next) {
            if (session->server == server)
                redis_due_by(session, 0);
        }
    }
}

struct redis_session *redis_due_first(const struct redis_connection *connection)
{
    return connection->due_n > 0 ? connection->due[0] : NULL;
}

/* SPDX-License-Identifier: MIT */
/* Batches: units that the core takes ahead of use. They need no session. */
#include "redis_batches.h"

#include "redis_calls.h"
#include "redis_due.h"
#include "redis_session.h"

#include <errno.h>

enum { STATUS_GRANTED = 0, STATUS_REFUSED = 2 };

static void batches_report(const struct redis_call *call, const struct weir_backend_batch *batch)
{
    struct redis_set *set = call->session->set;
    const struct weir_backend_host *host = set->connection->host;
    uint64_t due_ns = host->batched(host->context, set->context, batch);
    if (due_ns == UINT64_MAX)
        return;
    due_ns += redis_boot_ns();
    if (due_ns < set->spare_ns[batch->limit])
        set->spare_ns[batch->limit] = due_ns;
    redis_due_by(set->only, due_ns);
}

void redis_batches_refuse(const struct redis_call *call, int code, uint64_t retry_ns)
{
    batches_report(call, &(struct weir_backend_batch){.size = sizeof(struct weir_backend_batch),
                                                      .limit = call->limit,
                                                      .tag = call->tag,
                                                      .result = code,
                                                      .retry_after_ns = retry_ns});
}

/* The server counts whole microseconds: one that had begun at the grant is not used. */
int redis_batches_take(const struct redis_call *call, const struct redis_reply *reply)
{
    int64_t status = redis_reply_integer(reply, 0, -1), units = redis_reply_integer(reply, 1, -1);
    int64_t us = redis_reply_integer(reply, status == STATUS_GRANTED ? 2 : 3, -1);
    int64_t at = redis_reply_integer(reply, 3, -1);
    if (status == STATUS_REFUSED) {
        redis_batches_refuse(call, -EAGAIN, us < 0 ? UINT64_MAX : (uint64_t)us * REDIS_US);
        return 0;
    }
    if (status != STATUS_GRANTED || units < 1 || us < 0 || at < 0) {
        redis_batches_refuse(call, -EPROTO, UINT64_MAX);
        return -EPROTO;
    }
    batches_report(call,
                   &(struct weir_backend_batch){.size = sizeof(struct weir_backend_batch),
                                                .limit = call->limit,
                                                .tag = call->tag,
                                                .units = (uint64_t)units,
                                                .valid_ns = us ? (uint64_t)(us - 1) * REDIS_US : 0,
                                                .at = (uint64_t)at});
    return 0;
}

/* With the lock. */
static int batches_ask(struct redis_session *session, uint32_t limit, uint64_t wanted, uint64_t tag)
{
    struct redis_server *server = session->server;
    struct redis_call call = {
        .kind = REDIS_CALL_BATCH, .session = session, .tag = tag, .limit = limit, .is_urgent = 1};
    if (!redis_session_can_send(session)) {
        redis_batches_refuse(&call, -ENOTCONN, UINT64_MAX);
        return 0;
    }
    if (redis_calls_are_full(server))
        return -ENOBUFS;
    redis_call_begin(session, "weir_batch", 2);
    redis_buffer_number(&server->outbox, limit);
    redis_buffer_number(&server->outbox, (int64_t)wanted);
    return redis_call_end(server, &call);
}

int redis_batches_ask(void *of, uint32_t limit, uint64_t wanted, uint64_t tag)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_session *session = redis_session_get(set, NULL, 0);
    int r = session ? batches_ask(session, limit, wanted, tag) : -ENOMEM;
    if (r == 0)
        redis_calls_flush(session->server);
    pthread_mutex_unlock(&set->connection->lock);
    return r;
}

/* With the lock. */
static void batches_give_back(struct redis_session *session, uint32_t limit, uint64_t units,
                              uint64_t at)
{
    struct redis_server *server = session->server;
    if (!redis_session_can_send(session) || redis_calls_are_full(server))
        return;
    redis_call_begin(session, "weir_unbatch", 3);
    redis_buffer_number(&server->outbox, limit);
    redis_buffer_number(&server->outbox, (int64_t)units);
    redis_buffer_number(&server->outbox, (int64_t)at);
    (void)redis_call_end(server, /* otherwise they count as used */
                         &(struct redis_call){.kind = REDIS_CALL_UNBATCH, .session = session});
}

void redis_batches_give_back(void *of, uint32_t limit, uint64_t units, uint64_t at)
{
    struct redis_set *set = of;
    pthread_mutex_lock(&set->connection->lock);
    struct redis_session *session = redis_session_get(set, NULL, 0);
    if (session) {
        batches_give_back(session, limit, units, at);
        redis_calls_flush(session->server);
    }
    pthread_mutex_unlock(&set->connection->lock);
}

uint64_t redis_batches_tick(struct redis_set *set, uint64_t now_ns)
{
    const struct weir_backend_host *host = set->connection->host;
    uint64_t next_ns = REDIS_NEVER;
    for (uint32_t i = 0; i < set->limits_n; i++) {
        while (set->spare_ns[i] <= now_ns) {
            struct weir_backend_batch rest = {.size = sizeof(rest)};
            uint64_t due_ns = host->spare(host->context, set->context, i, &rest);
            set->spare_ns[i] = due_ns < REDIS_NEVER - now_ns ? now_ns + due_ns : REDIS_NEVER;
            if (rest.units > 0)
                batches_give_back(set->only, i, rest.units, rest.at);
        }
        if (set->spare_ns[i] < next_ns)
            next_ns = set->spare_ns[i];
    }
    return next_ns;
}

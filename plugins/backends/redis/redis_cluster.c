/* SPDX-License-Identifier: MIT */
/* Redis Cluster. */
#include "redis_cluster.h"

#include "redis_calls.h"
#include "redis_inbox.h"
#include "redis_job.h"
#include "redis_server.h"
#include "redis_session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/error.h>

#define ATTEMPTS_SOON  8 /* to read the table while all servers are there */
#define LATER          (30 * SECOND)
#define SECOND         UINT64_C(1000000000)
#define SERVERS_MAX    1024           /* that a cluster may name */
#define REDIRECTS_FREE 2              /* that are followed at once */
#define REDIRECTS_ODD  5              /* so many in a row are worth a message */
#define JOB_PAUSE      (SECOND / 100) /* before another job is tried, when there are too many */

struct redis_server *redis_cluster_route(const struct redis_connection *connection, uint16_t slot)
{
    struct redis_server *server = connection->slots ? connection->slots[slot] : NULL;
    return server ? server : connection->home;
}

int redis_cluster_begin(struct redis_connection *connection)
{
    if (connection->is_cluster)
        return 0;
    connection->slots = calloc(REDIS_SLOTS, sizeof(struct redis_server *));
    if (!connection->slots)
        return -ENOMEM;
    connection->is_cluster = 1;
    connection->describe_ns = 0;
    return 0;
}

/* Has the table read soon: at most once a second. */
static void cluster_describe_soon(struct redis_connection *connection)
{
    uint64_t at_ns = connection->described_ns + SECOND;
    if (!connection->is_cluster || connection->describe_ns <= at_ns)
        return;
    connection->describe_ns = at_ns;
    redis_calls_wake_by(connection, at_ns);
}

void redis_cluster_miss(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    if (!connection->is_cluster || connection->describe_ns != REDIS_NEVER)
        return;
    connection->describe_ns = 0;
    redis_calls_wake_by(connection, 0);
}

/* Returns the server of an address that `by` has named; empty: its own host. NULL: it is nonsense,
 * or there is no memory. */
static struct redis_server *cluster_server(struct redis_server *by, const char *host, size_t size,
                                           uint64_t port)
{
    struct redis_connection *connection = by->connection;
    struct redis_url url = by->url;
    if (size == 0) {
        host = by->url.host;
        size = strlen(host);
    }
    if (redis_url_set_host(&url, host, size, port) < 0)
        return NULL;
    for (struct redis_server *server = connection->servers; server; server = server->next) {
        if (!strcmp(server->url.host, url.host) && !strcmp(server->url.port, url.port))
            return server;
    }
    return connection->servers_n < SERVERS_MAX ? redis_server_new(connection, &url) : NULL;
}

/* Reads SLOT HOST:PORT from a redirection. Returns the server, or NULL. */
static struct redis_server *cluster_read_address(struct redis_server *by,
                                                 const struct redis_reply *reply, uint64_t *ret)
{
    char *end;
    const char *slot = strchr(reply->text, ' ');
    const char *host = slot ? strchr(slot + 1, ' ') : NULL;
    const char *colon = host ? strrchr(host, ':') : NULL;
    if (!colon || slot[1] < '0' || slot[1] > '9' || colon[1] < '0' || colon[1] > '9')
        return NULL;
    *ret = strtoull(slot + 1, &end, 10);
    uint64_t port = strtoull(colon + 1, NULL, 10);
    if (end != host || *ret >= REDIS_SLOTS)
        return NULL;
    return cluster_server(by, host + 1, (size_t)(colon - host) - 1, port);
}

struct redis_server *redis_cluster_learn(struct redis_server *server,
                                         const struct redis_reply *reply)
{
    struct redis_connection *connection = server->connection;
    uint64_t slot = 0;
    struct redis_server *owner = cluster_read_address(server, reply, &slot);
    if (!owner)
        return NULL;
    connection->slots[slot] = owner;
    cluster_describe_soon(connection);
    return owner;
}

/* Sends a session to a server, or has it wait. */
static void cluster_send_on(struct redis_session *session, struct redis_server *target, int asks,
                            const struct redis_reply *reply)
{
    struct redis_connection *connection = session->set->connection;
    if (session->target)
        return; /* another of its calls had the same answer */
    if (++session->redirects == REDIRECTS_ODD)
        redis_log(session->server, WEIR_LOG_WARNING, "set %.*s: %.200s", (int)session->key_size,
                  session->key, reply->text);
    if (session->redirects > REDIRECTS_FREE)
        session->resume_ns =
            redis_server_retry_ns(connection, session->redirects - REDIRECTS_FREE + 1);
    redis_session_move(session, target, asks);
}

int redis_cluster_redirect(struct redis_server *server, const struct redis_call *call,
                           const struct redis_reply *reply)
{
    struct redis_session *session = call->session;
    struct redis_server *target = NULL;
    uint64_t slot = 0;
    int has_moved = redis_reply_is_error(reply, "MOVED"), asks = redis_reply_is_error(reply, "ASK");
    if (!server->connection->is_cluster)
        return 0;
    if (has_moved)
        target = redis_cluster_learn(server, reply);
    else if (asks)
        target = cluster_read_address(server, reply, &slot);
    else if (!redis_reply_is_error(reply, "TRYAGAIN") &&
             !redis_reply_is_error(reply, "CLUSTERDOWN"))
        return 0;
    if (has_moved && session->asks && !call->asks && !session->target) {
        redis_session_beat_asking(session); /* the slot is still on its way */
    } else if (!target || target == server) {
        session->redirects += session->redirects < REDIRECTS_FREE ? REDIRECTS_FREE : 0;
        cluster_send_on(session, server, session->asks, reply);
    } else {
        cluster_send_on(session, target, asks, reply);
    }
    return 1;
}

/* Reads HOST, PORT, … of a server in the table. Returns it, or NULL. */
static struct redis_server *cluster_read_server(struct redis_server *by,
                                                const struct redis_reply *reply)
{
    int64_t port = redis_reply_integer(reply, 1, 1);
    const struct redis_reply *host = port > 0 ? &reply->elements[0] : NULL;
    if (!host || (host->type != REDIS_TEXT && host->type != REDIS_NIL))
        return NULL;
    return cluster_server(by, host->type == REDIS_TEXT ? host->text : "", host->size,
                          (uint64_t)port);
}

/* Reads FROM, TO, MASTER, REPLICA, … */
static void cluster_read_range(struct redis_server *by, const struct redis_reply *reply)
{
    int64_t from = redis_reply_integer(reply, 0, 0), to = redis_reply_integer(reply, 1, 0);
    if (from < 0 || to >= REDIS_SLOTS)
        return;
    for (uint32_t i = 2; i < reply->elements_n; i++) {
        struct redis_server *server = cluster_read_server(by, &reply->elements[i]);
        if (!server)
            continue;
        server->is_known = 1;
        for (int64_t slot = from; i == 2 && slot <= to; slot++)
            by->connection->slots[slot] = server;
    }
}

/* Sends on the sessions that nothing keeps where they are: those that are closed, and those of
 * servers that cannot be reached. */
static void cluster_move_sessions(struct redis_connection *connection)
{
    for (struct redis_set *set = connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next) {
            struct redis_server *to = connection->slots[session->cluster_slot];
            int is_free =
                session->state == REDIS_CLOSED && session->tickets_n == 0 && session->calls_n == 0;
            if (to && to != session->server && !session->target &&
                (is_free || session->server->down))
                redis_session_move(session, to, 0);
        }
    }
}

/* Takes the description of the cluster. */
static void cluster_take(struct redis_server *by, const struct redis_reply *reply)
{
    struct redis_connection *connection = by->connection;
    memset(connection->slots, 0, REDIS_SLOTS * sizeof(*connection->slots));
    for (struct redis_server *server = connection->servers; server; server = server->next)
        server->is_known = server->ask_failed = 0;
    for (uint32_t i = 0; i < reply->elements_n; i++)
        cluster_read_range(by, &reply->elements[i]);
    for (struct redis_server *server = connection->servers; server; server = server->next)
        redis_inbox_name(server);
    cluster_move_sessions(connection);
}

/* Returns how little a server may be expected to describe the cluster. */
static int cluster_rank(const struct redis_server *server)
{
    return 4 * server->ask_failed + 2 * server->down + !server->ready;
}

/* Returns the server to be asked: of the best ones, the one that was not asked for the longest
 * time. */
static struct redis_server *cluster_choose(const struct redis_connection *connection)
{
    struct redis_server *best = connection->home;
    for (struct redis_server *server = connection->servers; server; server = server->next) {
        int rank = cluster_rank(server), best_rank = cluster_rank(best);
        if (rank < best_rank || (rank == best_rank && server->asked_ns < best->asked_ns))
            best = server;
    }
    return best;
}

/* Asks a server over a link of its own, in a thread of its own. */
static int cluster_ask(struct redis_job *job)
{
    struct redis_buffer buffer = {0};
    int r = redis_job_dial(job);
    if (r < 0)
        return r;
    r = redis_link_log_in(job->link, &job->how);
    if (r == 0) {
        redis_buffer_begin(&buffer, 2);
        redis_buffer_text(&buffer, "CLUSTER");
        redis_buffer_text(&buffer, "SLOTS");
        r = redis_link_ask(job->link, &job->how, &buffer, "CLUSTER SLOTS", &job->reply);
        redis_buffer_free(&buffer);
    }
    if (r < 0 || (job->reply->type == REDIS_ARRAY && job->reply->elements_n > 0))
        return r;
    snprintf(job->how.why, sizeof(job->how.why), "CLUSTER SLOTS: the server knows of none");
    return -EAGAIN;
}

/* Returns 0 if it has begun. */
static int cluster_describe(struct redis_connection *connection)
{
    struct redis_job *job = &connection->describe_job;
    struct redis_server *server = cluster_choose(connection);
    redis_job_prepare(job, server);
    job->keeps = 0;
    job->how.is_large = 1;
    server->asked_ns = redis_boot_ns();
    return redis_job_start(job, cluster_ask);
}

/* Returns 1 if the table was read. */
static int cluster_take_reply(struct redis_connection *connection)
{
    struct redis_job *job = &connection->describe_job;
    int r = job->result;
    job->server->ask_failed = r < 0;
    connection->described_ns = redis_boot_ns();
    if (r == 0)
        cluster_take(job->server, job->reply);
    else if (connection->describe_complained != r && r != -ECANCELED)
        redis_log(job->server, WEIR_LOG_WARNING, "it does not describe the cluster: %s",
                  job->how.why);
    connection->describe_complained = r;
    redis_link_close(job->link);
    return r == 0;
}

/* Returns 1 if a server that is needed cannot be reached. */
static int cluster_misses(const struct redis_connection *connection)
{
    for (const struct redis_server *server = connection->servers; server; server = server->next) {
        if (server->sessions_n > 0 && server->down)
            return 1;
    }
    return 0;
}

/* Frees the servers that no slot, session or link needs any more. */
static void cluster_prune(struct redis_connection *connection)
{
    for (size_t i = 0; i < REDIS_SLOTS; i++) {
        if (connection->slots[i])
            connection->slots[i]->is_known = 1;
    }
    for (struct redis_server *server = connection->servers, *next; server; server = next) {
        next = server->next;
        if (!server->is_known && !server->is_seed && redis_server_is_free(server))
            redis_server_free(server);
    }
}

/* Says when the table is to be read again, after it was, or was not. */
static void cluster_plan(struct redis_connection *connection, int is_described)
{
    int is_urgent = cluster_misses(connection);
    connection->describe_ns = REDIS_NEVER;
    if (!is_urgent && is_described)
        connection->describe_attempts = 0;
    else if (!is_urgent && connection->describe_attempts >= ATTEMPTS_SOON)
        connection->describe_ns = redis_boot_ns() + LATER;
    else
        connection->describe_ns =
            redis_server_retry_ns(connection, ++connection->describe_attempts);
}

uint64_t redis_cluster_keep(struct redis_connection *connection)
{
    struct redis_job *job = &connection->describe_job;
    if (redis_job_take(job)) {
        int is_described = cluster_take_reply(connection);
        cluster_prune(connection);
        cluster_plan(connection, is_described);
    }
    if (!connection->is_cluster || job->state != REDIS_JOB_IDLE)
        return REDIS_NEVER;
    if (connection->describe_ns > redis_boot_ns())
        return connection->describe_ns;
    if (cluster_describe(connection) < 0)
        connection->describe_ns = redis_boot_ns() + JOB_PAUSE;
    else
        connection->describe_ns = REDIS_NEVER;
    return connection->describe_ns;
}

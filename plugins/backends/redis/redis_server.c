/* SPDX-License-Identifier: MIT */
/* A server of a connection. */
#include "redis_server.h"

#include "redis_calls.h"
#include "redis_check.h"
#include "redis_cluster.h"
#include "redis_due.h"
#include "redis_inbox.h"
#include "redis_job.h"
#include "redis_library.h"
#include "redis_sentinel.h"
#include "redis_session.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weir/error.h>

#define SECOND        UINT64_C(1000000000)
#define BACKOFF_FIRST (SECOND / 50)
#define BACKOFF_LAST  SECOND
#define BACKOFF_GROWS 6              /* times that it doubles */
#define VERIFICATIONS 3              /* of the master, in a session */
#define JOB_PAUSE     (SECOND / 100) /* before another job is tried, when there are too many */

static uint64_t server_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct redis_server *redis_server_new(struct redis_connection *connection,
                                      const struct redis_url *url)
{
    struct redis_server *server = calloc(1, sizeof(*server)), **end = &connection->servers;
    if (!server)
        return NULL;
    server->connection = connection;
    server->url = *url;
    while (*end)
        end = &(*end)->next;
    *end = server;
    connection->servers_n++;
    return server;
}

/* A random number below n, for the jitter of retries: xorshift64. */
static uint64_t server_random(struct redis_connection *connection, uint64_t n)
{
    uint64_t x = connection->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    connection->random = x;
    return x % n;
}

uint64_t redis_server_retry_ns(struct redis_connection *connection, uint32_t attempts)
{
    uint64_t wait = BACKOFF_LAST, now = redis_boot_ns();
    if (attempts <= 1)
        return now;
    if (attempts < BACKOFF_GROWS)
        wait = BACKOFF_FIRST << attempts;
    wait = server_earlier(wait, BACKOFF_LAST);
    return now + wait / 2 + server_random(connection, wait / 2);
}

/* Returns 1 if there have to be links to the server. */
static int server_is_wanted(const struct redis_server *server)
{
    const struct redis_connection *connection = server->connection;
    return connection->is_cluster ? server->sessions_n > 0 : server == connection->home;
}

static void server_drop_inbox(struct redis_server *server)
{
    if (!server->inbox)
        return;
    redis_link_close(server->inbox);
    server->inbox = NULL;
    server->inbox_calls_n = 0;
    server->inbox_retry_ns = redis_server_retry_ns(server->connection, ++server->inbox_failures +
                                                                           server->inbox_refusals);
}

/* Gives the link up if the server does not answer. Returns when to look again. */
static uint64_t server_check_link(struct redis_server *server, uint64_t now_ns)
{
    uint64_t timeout = server->connection->options.timeout_ns;
    if (server->ready && server->calls_n > 0 && !server->reading &&
        server->calls[server->calls_first].sent_ns + timeout <= now_ns)
        redis_calls_serve(server, EPOLLIN); /* replies for which no thread waits */
    if (!server->ready || server->calls_n == 0)
        return REDIS_NEVER;
    uint64_t end_ns = server->calls[server->calls_first].sent_ns + timeout;
    if (end_ns > now_ns)
        return end_ns;
    redis_calls_break(server, "the server does not answer in time");
    return now_ns;
}

/* The server is away if there is no link in the time that connecting and greeting take: a name may
 * be looked up for longer. Returns when to look again. */
static uint64_t server_check_job(struct redis_server *server, uint64_t now_ns)
{
    uint64_t end_ns = server->link_job.began_ns + 2 * server->connection->options.timeout_ns;
    if (server->link_job.state != REDIS_JOB_BUSY || server->down)
        return REDIS_NEVER;
    if (end_ns > now_ns)
        return end_ns;
    redis_server_complain(server, "there is no link yet: its name is still looked up", -ETIMEDOUT);
    redis_server_set_down(server, 1);
    redis_calls_wake_waiters(server);
    return REDIS_NEVER;
}

uint64_t redis_server_tick(struct redis_server *server, uint64_t now_ns)
{
    uint64_t next_ns = server_check_link(server, now_ns);
    next_ns = server_earlier(next_ns, server_check_job(server, now_ns));
    if (server->inbox &&
        (redis_inbox_end_ns(server) <= now_ns || server->inbox_link_n != server->inbox_n))
        server_drop_inbox(server);
    return server->inbox ? server_earlier(next_ns, redis_inbox_end_ns(server)) : next_ns;
}

void redis_server_serve(struct redis_server *server, const struct epoll_event *event)
{
    if (server->inbox && event->data.ptr == server->inbox && redis_inbox_serve(server) < 0)
        server_drop_inbox(server);
    else if (server->link && event->data.ptr == server->link)
        redis_calls_serve(server, event->events);
}

static int server_has_session(const struct redis_server *server)
{
    for (const struct redis_set *set = server->connection->sets; set; set = set->next) {
        for (const struct redis_session *session = set->sessions; session;
             session = session->next) {
            if (session->server == server && session->state == REDIS_OPEN)
                return 1;
        }
    }
    return 0;
}

/* Calls a function without a key: if it is there, it refuses that. */
static int server_try_call(struct redis_link *link, struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply = NULL;
    redis_buffer_begin(&buffer, 3);
    redis_buffer_text(&buffer, "FCALL");
    redis_buffer_text(&buffer, "weir_snapshot");
    redis_buffer_text(&buffer, "0");
    int r = redis_link_ask(link, how, &buffer, "FCALL", &reply);
    redis_buffer_free(&buffer);
    if (r == 0 || !reply || reply->type != REDIS_ERROR)
        return r;
    if (redis_reply_is_error(reply, "BADARG"))
        return 0;
    return strncmp(reply->text, "ERR Function not found", 22) ? r : -ENOSYS;
}

/* Sees that the server is one that the configuration means. */
static int server_check_mode(const struct redis_connection *connection, struct redis_link_how *how)
{
    int is_alone = connection->options.urls_n == 1 || connection->options.sentinel;
    if (how->mode == REDIS_MODE_CLUSTER ? !connection->options.sentinel
                                        : how->mode == REDIS_MODE_ALONE && is_alone)
        return 0;
    snprintf(how->why, sizeof(how->why), "%s",
             how->mode == REDIS_MODE_SENTINEL
                 ? "this is a Sentinel: `sentinel` has to name the master"
             : how->mode == REDIS_MODE_CLUSTER
                 ? "a master of Sentinels cannot be one of a cluster"
                 : "the URL names several servers, and this one is in no cluster");
    return -EPROTOTYPE;
}

/* Logs in, and has the server know the functions. */
static int server_greet(const struct redis_connection *connection, struct redis_link *link,
                        struct redis_link_how *how)
{
    int r = redis_link_greet(link, how);
    if (r == 0)
        r = server_check_mode(connection, how);
    if (r == 0 && !how->library)
        r = server_try_call(link, how);
    if (r != -ENOSYS)
        return r;
    how->library = (const char *)redis_library;
    how->library_size = redis_library_size;
    return redis_link_greet(link, how);
}

/* Asks the Sentinels which one the server is. */
static int server_find(struct redis_job *job)
{
    struct redis_connection *connection = job->server->connection;
    struct redis_url url;
    int r = redis_sentinel_find(&connection->options, &connection->sentinels, &job->how, &url);
    if (r == 0)
        redis_job_set_url(job, &url);
    return r;
}

/* Makes a link to the server, in a thread of its own. */
static int server_make_link(struct redis_job *job)
{
    const struct redis_connection *connection = job->server->connection;
    int r = redis_job_dial(job);
    if (r < 0)
        return r;
    job->how.deadline_ns = redis_boot_ns() + connection->options.timeout_ns;
    r = server_greet(connection, job->link, &job->how);
    if (r == 0)
        return 0;
    redis_link_close(job->link);
    job->link = NULL;
    return r;
}

/* The same to the one that the Sentinels name. */
static int server_find_and_make_link(struct redis_job *job)
{
    int r = server_find(job);
    return r < 0 ? r : server_make_link(job);
}

int redis_server_refusal(const struct redis_server *server)
{
    return server->complained == -EACCES ? -EACCES : -ENOTCONN;
}

void redis_server_set_down(struct redis_server *server, int is_down)
{
    server->down = is_down != 0;
    for (struct redis_set *set = server->connection->sets; set; set = set->next) {
        if (set->only && set->only->server == server)
            redis_session_tell_away(set->only);
    }
    redis_due_all(server);
}

/* The server can be called again: goes on where the last link has ended. */
static void server_resume(struct redis_server *server, struct redis_link *link,
                          const struct redis_link_how *how)
{
    if (strcmp(server->run_id, how->run_id)) {
        server->run = ++server->connection->runs_n;
        memcpy(server->run_id, how->run_id, sizeof(server->run_id));
        server_drop_inbox(server); /* it may be at the server that was here before */
    }
    if (server->complained)
        redis_log(server, WEIR_LOG_INFO, "the server is there again");
    server->complained = 0;
    server->connection->find_ns =
        redis_boot_ns() + server->connection->options.session_ns / VERIFICATIONS;
    redis_inbox_name(server);
    server->link = link;
    server->ready = 1;
    server->broken = 0;
    server->watched = 0;
    redis_server_set_down(server, 0);
    for (struct redis_set *set = server->connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next) {
            if (session->server == server && redis_session_can_send(session))
                redis_session_resume(session);
        }
    }
    redis_calls_flush(server);
    redis_calls_wake_waiters(server);
}

void redis_server_complain(struct redis_server *server, const char *why, int code)
{
    if (server->complained != code && code != -ECANCELED)
        redis_log(server, WEIR_LOG_WARNING, "%s", why);
    server->complained = code;
}

/* While it is not known whether there is a cluster, the servers of the URL are tried in turn. */
static void server_give_way(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    struct redis_server *next = server->next ? server->next : connection->servers;
    if (connection->is_cluster || server != connection->home || server == next)
        return;
    connection->home = next;
    for (struct redis_set *set = connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next)
            redis_session_move(session, next, 0);
    }
}

/* Watches a new link. Returns it, or NULL with the code. */
static struct redis_link *server_watch(struct redis_server *server, struct redis_link *link,
                                       uint32_t events, int *reterr)
{
    struct epoll_event event = {.events = events, .data.ptr = link};
    if (!link || epoll_ctl(server->connection->epoll, EPOLL_CTL_ADD, link->fd, &event) == 0)
        return link;
    *reterr = -errno;
    redis_link_close(link);
    return NULL;
}

/* There is no link. */
static void server_miss(struct redis_server *server, const char *why, int code)
{
    redis_server_complain(server, why, code);
    redis_server_set_down(server, 1);
    redis_calls_wake_waiters(server);
    redis_cluster_miss(server);
    server_give_way(server);
}

/* Begins to make a link. The addresses of a server that was lost are looked up again if there is no
 * session: with one, it is tried where it was, lest the session ends meanwhile. */
static void server_connect_link(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    struct redis_job *job = &server->link_job;
    int has_sentinels = connection->options.sentinel != NULL;
    redis_job_prepare(job, server);
    job->keeps = !server->down || server_has_session(server);
    job->how.library = server->needs_library ? (const char *)redis_library : NULL;
    job->how.library_size = redis_library_size;
    server->retry_ns = redis_server_retry_ns(connection, server->failures + 1);
    int r = redis_job_start(job, has_sentinels ? server_find_and_make_link : server_make_link);
    if (r == -EAGAIN)
        server->retry_ns = redis_boot_ns() + JOB_PAUSE;
    else
        server->failures++;
    if (r < 0 && r != -EAGAIN)
        server_miss(server, "there is no thread to connect in", r);
}

static void server_take_link(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    struct redis_job *job = &server->link_job;
    int r = job->result;
    struct redis_link *link = server_watch(server, job->link, 0, &r);
    server->url = job->url;
    if (link && job->how.mode == REDIS_MODE_CLUSTER && (r = redis_cluster_begin(connection)) < 0)
        snprintf(job->how.why, sizeof(job->how.why), "there is no memory");
    if (link && r == 0) {
        server->needs_library &= !job->how.library;
        server_resume(server, link, &job->how);
        return;
    }
    redis_link_close(link);
    server_miss(server, job->how.why, r);
}

static void server_connect_inbox(struct redis_server *server)
{
    uint64_t retry_ns = redis_server_retry_ns(server->connection, server->inbox_failures + 1);
    redis_job_prepare(&server->inbox_job, server);
    server->inbox_job.keeps = 1;
    redis_inbox_name(server);
    int r = server->inbox_key[0] ? redis_job_start(&server->inbox_job, server_make_link) : 0;
    if (r == -EAGAIN)
        retry_ns = redis_boot_ns() + JOB_PAUSE;
    else
        server->inbox_failures++;
    server->inbox_retry_ns = retry_ns;
}

static void server_take_inbox(struct redis_server *server)
{
    int r = server->inbox_job.result;
    const struct redis_link_how *how = &server->inbox_job.how;
    struct redis_link *link = server_watch(server, server->inbox_job.link, EPOLLIN, &r);
    server->inbox = link;
    server->inbox_calls_n = 0;
    server->inbox_link_n = server->inbox_n;
    server->inbox_heard_ns = redis_boot_ns();
    if (link && (strcmp(how->run_id, server->run_id) || redis_inbox_ask(server) < 0))
        server_drop_inbox(server); /* it is at another server than the link, or was closed */
    else if (link)
        server->inbox_failures = 0;
}

/* Takes down a link that was given up, once no thread is on it. */
static void server_retire(struct redis_server *server)
{
    if (!server->broken || server->reading || server->writing)
        return;
    redis_calls_forget(server);
    redis_link_close(server->link);
    server->link = NULL;
    server->broken = 0;
}

/* Takes down the links of a server that no session has needed for as long as one lasts. Returns
 * when to look again. */
static uint64_t server_shut(struct redis_server *server)
{
    uint64_t now_ns = redis_boot_ns();
    if (server->unused_ns == 0)
        server->unused_ns = now_ns + server->connection->options.session_ns;
    if (!server->link && !server->inbox)
        return REDIS_NEVER;
    if (now_ns < server->unused_ns)
        return server->unused_ns;
    if (server->ready && server->calls_n == 0 && !server->waiters)
        redis_calls_break(server, NULL);
    server_retire(server);
    if (server->link) /* woken when the last reply has come, or the last thread leaves it */
        return REDIS_NEVER;
    server_drop_inbox(server);
    server->inbox_wanted = server->down = 0;
    server->failures = server->inbox_failures = 0;
    server->retry_ns = server->inbox_retry_ns = 0;
    return REDIS_NEVER;
}

/* Returns 1 if a link is to be made now. */
static int server_lacks_link(const struct redis_server *server)
{
    return !server->ready && !server->broken && server->link_job.state == REDIS_JOB_IDLE &&
           server->connection->find_job.state == REDIS_JOB_IDLE; /* it asks the same Sentinels */
}

static int server_lacks_inbox(const struct redis_server *server)
{
    return server->ready && server->inbox_wanted && !server->inbox &&
           server->inbox_job.state == REDIS_JOB_IDLE;
}

/* What is not known here wakes the thread: the last thread leaves a link, a job is done. */
uint64_t redis_server_keep(struct redis_server *server)
{
    if (redis_job_take(&server->link_job))
        server_take_link(server);
    if (redis_job_take(&server->inbox_job))
        server_take_inbox(server);
    if (!server_is_wanted(server))
        return server_shut(server);
    server->unused_ns = 0;
    server_retire(server);
    if (server_lacks_link(server) && server->retry_ns <= redis_boot_ns())
        server_connect_link(server);
    if (server_lacks_inbox(server) && server->inbox_retry_ns <= redis_boot_ns())
        server_connect_inbox(server);
    if (server_lacks_link(server))
        return server_is_wanted(server) ? server->retry_ns : REDIS_NEVER;
    return server_lacks_inbox(server) ? server->inbox_retry_ns : REDIS_NEVER;
}

int redis_server_is_free(const struct redis_server *server)
{
    return server->sessions_n == 0 && !server->link && !server->waiters &&
           server->link_job.state == REDIS_JOB_IDLE && server->inbox_job.state == REDIS_JOB_IDLE;
}

static void server_take_master(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    const struct redis_job *job = &connection->find_job;
    int r = job->result;
    if (r < 0 && r != -ECANCELED && r != connection->find_complained)
        redis_log(server, WEIR_LOG_WARNING, "the Sentinels cannot be asked: %s", job->how.why);
    connection->find_complained = r;
    if (r == 0 && server->ready &&
        (strcmp(job->url.host, server->url.host) || strcmp(job->url.port, server->url.port)))
        redis_calls_break(server, "the Sentinels name another master");
    connection->find_ns = redis_boot_ns() + connection->options.session_ns / VERIFICATIONS;
}

/* Another master grants nothing for a session: by its end all have left this one. */
uint64_t redis_server_verify(struct redis_server *server)
{
    struct redis_connection *connection = server->connection;
    struct redis_job *job = &connection->find_job;
    if (redis_job_take(job))
        server_take_master(server);
    if (!connection->options.sentinel || !server->ready || job->state != REDIS_JOB_IDLE)
        return REDIS_NEVER;
    if (connection->find_ns > redis_boot_ns())
        return connection->find_ns;
    redis_job_prepare(job, server);
    if (redis_job_start(job, server_find) < 0)
        connection->find_ns = redis_boot_ns() + JOB_PAUSE;
    return job->state == REDIS_JOB_IDLE ? connection->find_ns : REDIS_NEVER;
}

/* Has the server read all that was sent: a socket that is closed with replies unread may lose it.
 */
static void server_drain(struct redis_link *link)
{
    uint64_t end_ns = redis_boot_ns() + SECOND;
    struct pollfd poll_fd = {.fd = link->fd, .events = POLLIN};
    shutdown(link->fd, SHUT_WR);
    while (redis_boot_ns() < end_ns && poll(&poll_fd, 1, 100) >= 0) {
        char bytes[4096];
        ssize_t n = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

void redis_server_free(struct redis_server *server)
{
    struct redis_server **at = &server->connection->servers;
    while (*at != server)
        at = &(*at)->next;
    *at = server->next;
    server->connection->servers_n--;
    if (server->link && server->ready)
        server_drain(server->link);
    redis_link_close(server->link);
    redis_link_close(server->inbox);
    redis_job_free(&server->link_job);
    redis_job_free(&server->inbox_job);
    redis_buffer_free(&server->outbox);
    redis_buffer_free(&server->sending);
    free(server->calls);
    free(server);
}

int redis_server_check(struct redis_connection *connection, struct redis_link_how *how,
                       const struct redis_url *url)
{
    struct addrinfo *addresses = NULL;
    how->url = url;
    how->tls = connection->options.tls;
    how->password = connection->options.password;
    how->needs_master = connection->options.sentinel != NULL;
    int r = redis_link_resolve(how, &addresses, 1);
    how->addresses = addresses;
    struct redis_link *link = r == 0 ? redis_link_open(how, &r) : NULL;
    if (link)
        r = server_greet(connection, link, how);
    if (link && r == 0)
        r = redis_check_sets(connection, link, how);
    redis_link_close(link);
    if (addresses)
        freeaddrinfo(addresses);
    return r;
}

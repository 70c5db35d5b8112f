/* SPDX-License-Identifier: MIT */
/* A server of a connection. */
#include "redis_server.h"

#include "redis_calls.h"
#include "redis_inbox.h"
#include "redis_library.h"
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
#define BACKOFF_GROWS 6 /* times that it doubles */

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
    return server;
}

/* A random number below n, for the jitter of retries: xorshift64. */
static uint64_t server_random(struct redis_server *server, uint64_t n)
{
    uint64_t x = server->connection->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    server->connection->random = x;
    return x % n;
}

/* Returns when to try again after so many attempts: at once the first time. */
static uint64_t server_retry_ns(struct redis_server *server, uint32_t attempts)
{
    uint64_t wait = BACKOFF_LAST, now = redis_boot_ns();
    if (attempts <= 1)
        return now;
    if (attempts < BACKOFF_GROWS)
        wait = BACKOFF_FIRST << attempts;
    wait = server_earlier(wait, BACKOFF_LAST);
    return now + wait / 2 + server_random(server, wait / 2);
}

static void server_drop_inbox(struct redis_server *server)
{
    if (!server->inbox)
        return;
    redis_link_close(server->inbox);
    server->inbox = NULL;
    server->inbox_calls_n = 0;
    server->inbox_retry_ns = server_retry_ns(server, ++server->inbox_failures);
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

uint64_t redis_server_tick(struct redis_server *server, uint64_t now_ns)
{
    uint64_t next_ns = server_check_link(server, now_ns);
    if (server->inbox && redis_inbox_end_ns(server) <= now_ns)
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

/* Looks up the host's addresses: the first time, and after a failure while there is no session.
 * It may block for long, and nothing would see a session end meanwhile. */
static int server_resolve(struct redis_server *server, struct addrinfo **addresses,
                          struct redis_link_how *how)
{
    const struct redis_url *url = &server->url;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    pthread_mutex_lock(&server->connection->lock);
    int keep = *addresses && (!server->down || server_has_session(server));
    pthread_mutex_unlock(&server->connection->lock);
    if (url->is_unix || keep)
        return 0;
    int r = getaddrinfo(url->host, url->port, &hints, &found);
    if (r != 0 && !*addresses) {
        snprintf(how->why, sizeof(how->why), "cannot look up the host: %s", gai_strerror(r));
        return -EHOSTUNREACH;
    }
    if (r == 0 && *addresses)
        freeaddrinfo(*addresses);
    if (r == 0)
        *addresses = found;
    return 0;
}

/* Calls a function that changes nothing, about a set that is not there. */
static int server_try_call(struct redis_server *server, struct redis_link *link,
                           struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply = NULL;
    char key[300];
    snprintf(key, sizeof(key), "%.250s{}", server->connection->options.prefix);
    redis_buffer_begin(&buffer, 7);
    redis_buffer_text(&buffer, "FCALL");
    redis_buffer_text(&buffer, "weir_snapshot");
    redis_buffer_text(&buffer, "1");
    redis_buffer_text(&buffer, key);
    redis_buffer_text(&buffer, how->run_id);
    redis_buffer_text(&buffer, "0/-/0/10000/r,1");
    redis_buffer_text(&buffer, "");
    int r = redis_link_ask(link, how, &buffer, "FCALL", &reply);
    redis_buffer_free(&buffer);
    if (r == 0 || !reply || reply->type != REDIS_ERROR)
        return r;
    if (redis_reply_is_error(reply, "NOSET"))
        return 0;
    return strncmp(reply->text, "ERR Function not found", 22) ? r : -ENOSYS;
}

/* Logs in, and has the server know the functions. */
static int server_greet(struct redis_server *server, struct redis_link *link,
                        struct redis_link_how *how)
{
    int r = redis_link_greet(link, how);
    if (r == 0 && !how->library)
        r = server_try_call(server, link, how);
    if (r != -ENOSYS)
        return r;
    how->library = (const char *)redis_library;
    how->library_size = redis_library_size;
    return redis_link_greet(link, how);
}

/* Makes a link, without the lock. Returns it, or NULL with the code. */
static struct redis_link *server_connect(struct redis_server *server, struct redis_link_how *how,
                                         int *reterr)
{
    struct redis_link *link = NULL;
    int r = server_resolve(server, &server->addresses, how);
    how->addresses = server->addresses;
    how->deadline_ns = redis_boot_ns() + server->connection->options.timeout_ns;
    if (r == 0)
        link = redis_link_open(how, &r);
    if (link) {
        how->deadline_ns = redis_boot_ns() + server->connection->options.timeout_ns;
        r = server_greet(server, link, how);
    }
    if (r == 0)
        return link;
    redis_link_close(link);
    *reterr = r;
    return NULL;
}

static struct redis_link_how server_how(const struct redis_server *server, redis_link_wait wait)
{
    return (struct redis_link_how){.url = &server->url,
                                   .tls = server->connection->options.tls,
                                   .password = server->connection->options.password,
                                   .wait = wait,
                                   .context = server->connection};
}

/* The server can be called again: goes on where the last link has ended. */
static void server_resume(struct redis_server *server, struct redis_link *link,
                          const struct redis_link_how *how)
{
    if (strcmp(server->run_id, how->run_id)) {
        server->run = ++server->connection->runs_n;
        memcpy(server->run_id, how->run_id, sizeof(server->run_id));
    }
    if (server->complained)
        redis_log(server, WEIR_LOG_INFO, "the server is there again");
    server->complained = 0;
    redis_inbox_name(server);
    server->link = link;
    server->ready = 1;
    server->broken = server->down = 0;
    server->watched = 0;
    for (struct redis_set *set = server->connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next) {
            if (session->server == server)
                redis_session_resume(session);
        }
    }
    redis_calls_flush(server);
    if (server->waiters)
        pthread_cond_signal(&server->waiters->condition);
}

void redis_server_complain(struct redis_server *server, const char *why, int code)
{
    if (server->complained != code && code != -ECANCELED)
        redis_log(server, WEIR_LOG_WARNING, "%s", why);
    server->complained = code;
}

static void server_connect_link(struct redis_server *server, redis_link_wait wait)
{
    struct redis_link_how how = server_how(server, wait);
    int r = 0;
    how.library = server->needs_library ? (const char *)redis_library : NULL;
    how.library_size = redis_library_size;
    server->retry_ns = server_retry_ns(server, ++server->failures);
    pthread_mutex_unlock(&server->connection->lock);
    struct redis_link *link = server_connect(server, &how, &r);
    struct epoll_event event = {.events = 0, .data.ptr = link};
    if (link && epoll_ctl(server->connection->epoll, EPOLL_CTL_ADD, link->fd, &event) < 0) {
        r = -errno;
        redis_link_close(link);
        link = NULL;
    }
    pthread_mutex_lock(&server->connection->lock);
    if (link) {
        server->needs_library &= !how.library;
        server_resume(server, link, &how);
        return;
    }
    server->down = 1;
    redis_server_complain(server, how.why, r);
}

static void server_connect_inbox(struct redis_server *server, redis_link_wait wait)
{
    struct redis_link_how how = server_how(server, wait);
    int r = 0;
    server->inbox_retry_ns = server_retry_ns(server, ++server->inbox_failures);
    pthread_mutex_unlock(&server->connection->lock);
    struct redis_link *link = server_connect(server, &how, &r);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (link && epoll_ctl(server->connection->epoll, EPOLL_CTL_ADD, link->fd, &event) < 0) {
        redis_link_close(link);
        link = NULL;
    }
    pthread_mutex_lock(&server->connection->lock);
    server->inbox = link;
    server->inbox_calls_n = 0;
    server->inbox_heard_ns = redis_boot_ns();
    if (link && redis_inbox_ask(server) < 0)
        server_drop_inbox(server);
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

uint64_t redis_server_keep(struct redis_server *server, redis_link_wait wait)
{
    server_retire(server);
    if (!server->ready && !server->broken && server->retry_ns <= redis_boot_ns())
        server_connect_link(server, wait);
    if (server->ready && server->inbox_wanted && !server->inbox &&
        server->inbox_retry_ns <= redis_boot_ns())
        server_connect_inbox(server, wait);
    if (server->broken)
        return REDIS_NEVER; /* woken when the last thread leaves it */
    if (!server->ready)
        return server->retry_ns;
    return server->inbox_wanted && !server->inbox ? server->inbox_retry_ns : REDIS_NEVER;
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
    if (server->link && server->ready)
        server_drain(server->link);
    redis_link_close(server->link);
    redis_link_close(server->inbox);
    if (server->addresses)
        freeaddrinfo(server->addresses);
    redis_buffer_free(&server->outbox);
    redis_buffer_free(&server->sending);
    free(server->calls);
    free(server);
}

int redis_server_check(struct redis_server *server, struct redis_link_how *how)
{
    struct addrinfo *addresses = NULL;
    int r = server_resolve(server, &addresses, how);
    how->url = &server->url;
    how->tls = server->connection->options.tls;
    how->password = server->connection->options.password;
    how->addresses = addresses;
    struct redis_link *link = r == 0 ? redis_link_open(how, &r) : NULL;
    if (link)
        r = server_greet(server, link, how);
    redis_link_close(link);
    if (addresses)
        freeaddrinfo(addresses);
    return r;
}

/* SPDX-License-Identifier: MIT */
/* A link to a Redis server. */
#include "redis_link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RECEIVED_MAX (16u << 10) /* bytes received at once */
#define VERSION_MIN  7

uint64_t redis_boot_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t redis_now_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int redis_link_fail(struct redis_link_how *how, int code, const char *what)
{
    snprintf(how->why, sizeof(how->why), "%s: %s", what, strerror(-code));
    return code;
}

int redis_link_resolve(struct redis_link_how *how, struct addrinfo **addresses, int keeps)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (how->url->is_unix || (*addresses && keeps))
        return 0;
    int r = getaddrinfo(how->url->host, how->url->port, &hints, &found);
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

/* Connects a new socket to one address. Returns it, or an error. */
static int redis_link_connect(struct redis_link_how *how, int family, const void *address,
                              socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1, r = 0;
    if (fd < 0)
        return -errno;
    if (family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, address, size) < 0)
        r = -errno;
    if (r == -EINPROGRESS || r == -EINTR) {
        socklen_t length = sizeof(int);
        int error = 0;
        r = how->wait(how->context, fd, POLLOUT, how->deadline_ns);
        if (r == 0)
            r = -ETIMEDOUT;
        else if (r > 0)
            r = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 ? -errno : -error;
    }
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

_Static_assert(sizeof(((struct redis_url *)NULL)->host) >=
                   sizeof(((struct sockaddr_un *)NULL)->sun_path),
               "the path of a socket is copied as a whole");

/* Tries all addresses: each has its part of the time, as any may be one that does not answer. */
static int redis_link_socket(struct redis_link_how *how)
{
    int r = -EHOSTUNREACH;
    if (how->url->is_unix) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        memcpy(address.sun_path, how->url->host, sizeof(address.sun_path)); /* longer is none */
        return redis_link_connect(how, AF_UNIX, &address, sizeof(address));
    }
    uint64_t deadline_ns = how->deadline_ns, n = 0;
    for (const struct addrinfo *at = how->addresses; at; at = at->ai_next)
        n++;
    for (const struct addrinfo *at = how->addresses; at; at = at->ai_next) {
        uint64_t now_ns = redis_boot_ns();
        how->deadline_ns = now_ns + (deadline_ns > now_ns ? (deadline_ns - now_ns) / n-- : 0);
        r = redis_link_connect(how, at->ai_family, at->ai_addr, at->ai_addrlen);
        if (r >= 0 || r == -ECANCELED)
            break;
    }
    how->deadline_ns = deadline_ns;
    return r;
}

/* Makes the link a secure one. */
static int redis_link_secure(struct redis_link *link, struct redis_link_how *how)
{
    const char *why = NULL;
    short events;
    int r;
    link->tls = redis_tls_new(how->tls, link->fd, how->url->host);
    if (!link->tls)
        return redis_link_fail(how, -ENOMEM, "TLS");
    while ((r = redis_tls_connect(link->tls, &events, &why)) == -EAGAIN) {
        r = how->wait(how->context, link->fd, events, how->deadline_ns);
        if (r <= 0)
            return redis_link_fail(how, r < 0 ? r : -ETIMEDOUT, "TLS");
    }
    if (r < 0 && why)
        snprintf(how->why, sizeof(how->why), "TLS: the server's certificate: %s", why);
    else if (r < 0)
        redis_link_fail(how, r, "TLS");
    return r;
}

struct redis_link *redis_link_open(struct redis_link_how *how, int *reterr)
{
    struct redis_link *link = malloc(sizeof(*link));
    struct redis_replies *replies = redis_replies_new(how->is_large);
    int fd = link && replies ? redis_link_socket(how) : -ENOMEM;
    if (fd < 0) {
        free(link);
        redis_replies_free(replies);
        *reterr = redis_link_fail(how, fd, "cannot connect");
        return NULL;
    }
    *link = (struct redis_link){.fd = fd, .replies = replies};
    int r = how->tls ? redis_link_secure(link, how) : 0;
    if (r < 0) {
        redis_link_close(link);
        *reterr = r;
        return NULL;
    }
    return link;
}

void redis_link_close(struct redis_link *link)
{
    if (!link)
        return;
    redis_tls_free(link->tls);
    close(link->fd);
    redis_replies_free(link->replies);
    free(link);
}

ssize_t redis_link_send(struct redis_link *link, const char *bytes, size_t n)
{
    ssize_t sent;
    if (link->tls)
        return redis_tls_write(link->tls, bytes, n);
    do {
        sent = send(link->fd, bytes, n, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static ssize_t redis_link_read(struct redis_link *link, char *bytes, size_t size)
{
    ssize_t n;
    if (link->tls)
        return redis_tls_read(link->tls, bytes, size);
    do {
        n = recv(link->fd, bytes, size, 0);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

/* By TLS all that has been decrypted is read: it no longer shows at the socket. */
int redis_link_receive(struct redis_link *link)
{
    char bytes[RECEIVED_MAX];
    int received = 0;
    do {
        ssize_t n = redis_link_read(link, bytes, sizeof(bytes));
        if (n == -EAGAIN && received)
            return 1;
        if (n <= 0)
            return n < 0 ? (int)n : -ECONNRESET;
        int r = redis_replies_feed(link->replies, bytes, (size_t)n);
        if (r < 0)
            return r;
        received = 1;
    } while (link->tls && redis_tls_has_more(link->tls));
    return received;
}

/* Sends all of the buffer, before the deadline. */
static int redis_link_send_all(struct redis_link *link, struct redis_link_how *how,
                               const struct redis_buffer *buffer)
{
    for (size_t at = 0; at < buffer->size;) {
        ssize_t n = redis_link_send(link, buffer->bytes + at, buffer->size - at);
        if (n >= 0) {
            at += (size_t)n;
        } else if (n == -EAGAIN) {
            int r = how->wait(how->context, link->fd, POLLOUT, how->deadline_ns);
            if (r <= 0)
                return r < 0 ? r : -ETIMEDOUT;
        } else {
            return (int)n;
        }
    }
    return 0;
}

/* Waits for the next reply. */
static int redis_link_reply(struct redis_link *link, struct redis_link_how *how,
                            const struct redis_reply **ret)
{
    for (;;) {
        int r = redis_replies_next(link->replies, ret);
        if (r != 0)
            return r > 0 ? 0 : r;
        r = redis_link_receive(link);
        if (r == -EAGAIN) {
            r = how->wait(how->context, link->fd, POLLIN, how->deadline_ns);
            if (r == 0)
                return -ETIMEDOUT;
        }
        if (r < 0)
            return r;
    }
}

/* Returns the code for an error reply while the server is greeted. */
static int redis_link_refused(struct redis_link_how *how, const struct redis_reply *reply,
                              const char *what)
{
    int code = -EPROTO;
    if (redis_reply_is_error(reply, "LOADING") || redis_reply_is_error(reply, "BUSY") ||
        redis_reply_is_error(reply, "READONLY") || redis_reply_is_error(reply, "MASTERDOWN"))
        code = -EAGAIN;
    else if (redis_reply_is_error(reply, "WRONGPASS") || redis_reply_is_error(reply, "NOAUTH") ||
             redis_reply_is_error(reply, "NOPERM") || !strcmp(what, "AUTH"))
        code = -EACCES;
    const char *text = reply->type == REDIS_ERROR ? reply->text : "not an answer of Redis";
    int size = !strcmp(what, "AUTH") ? (int)strcspn(text, " ") : 100; /* it may quote a password */
    snprintf(how->why, sizeof(how->why), "%s: %.*s", what, size, text);
    return code;
}

int redis_link_ask(struct redis_link *link, struct redis_link_how *how, struct redis_buffer *buffer,
                   const char *what, const struct redis_reply **ret)
{
    int r = redis_buffer_end(buffer);
    if (r == 0)
        r = redis_link_send_all(link, how, buffer);
    redis_buffer_clear(buffer);
    if (r == 0)
        r = redis_link_reply(link, how, ret);
    if (r < 0)
        return redis_link_fail(how, r, what);
    return (*ret)->type == REDIS_ERROR ? redis_link_refused(how, *ret, what) : 0;
}

int redis_link_log_in(struct redis_link *link, struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply;
    const char *user = how->url->user;
    if (!how->password)
        return 0;
    redis_buffer_begin(&buffer, user[0] ? 3 : 2);
    redis_buffer_text(&buffer, "AUTH");
    if (user[0])
        redis_buffer_text(&buffer, user);
    redis_buffer_text(&buffer, how->password);
    int r = redis_link_ask(link, how, &buffer, "AUTH", &reply);
    redis_buffer_free(&buffer);
    return r;
}

static int redis_link_select(struct redis_link *link, struct redis_link_how *how,
                             struct redis_buffer *buffer)
{
    const struct redis_reply *reply;
    if (how->url->db == 0)
        return 0;
    redis_buffer_begin(buffer, 2);
    redis_buffer_text(buffer, "SELECT");
    redis_buffer_number(buffer, how->url->db);
    return redis_link_ask(link, how, buffer, "SELECT", &reply);
}

static enum redis_mode redis_link_mode(const char *info)
{
    if (strstr(info, "redis_mode:cluster") || strstr(info, "server_mode:cluster"))
        return REDIS_MODE_CLUSTER;
    return strstr(info, "redis_mode:sentinel") ? REDIS_MODE_SENTINEL : REDIS_MODE_ALONE;
}

/* Reads the run_id, the version and the mode out of the reply of INFO. */
static int redis_link_identity(struct redis_link_how *how, const struct redis_reply *reply)
{
    const char *text = reply->type == REDIS_TEXT ? reply->text : "";
    const char *run = strstr(text, "run_id:"), *version = strstr(text, "redis_version:");
    size_t n = run ? strspn(run + 7, "0123456789abcdefghijklmnopqrstuvwxyz") : 0;
    if (n == 0 || n >= sizeof(how->run_id) || !version)
        return redis_link_refused(how, reply, "INFO");
    memcpy(how->run_id, run + 7, n);
    how->run_id[n] = '\0';
    how->mode = redis_link_mode(text);
    snprintf(how->version, sizeof(how->version), "%.*s", (int)strspn(version + 14, "0123456789."),
             version + 14);
    if (strtol(version + 14, NULL, 10) >= VERSION_MIN)
        return 0;
    snprintf(how->why, sizeof(how->why), "the server is older than Redis 7.0: it has no functions");
    return -EPROTONOSUPPORT;
}

/* Sees that the server is a master, if it has to be. */
static int redis_link_check_role(struct redis_link *link, struct redis_link_how *how,
                                 struct redis_buffer *buffer)
{
    const struct redis_reply *reply;
    if (!how->needs_master)
        return 0;
    redis_buffer_begin(buffer, 1);
    redis_buffer_text(buffer, "ROLE");
    int r = redis_link_ask(link, how, buffer, "ROLE", &reply);
    if (r < 0)
        return r;
    if (reply->type != REDIS_ARRAY || reply->elements_n == 0 ||
        reply->elements[0].type != REDIS_TEXT)
        return redis_link_refused(how, reply, "ROLE");
    if (!strcmp(reply->elements[0].text, "master"))
        return 0;
    snprintf(how->why, sizeof(how->why), "the server that the Sentinel names is no master");
    return -EAGAIN;
}

int redis_link_greet(struct redis_link *link, struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply;
    int r = redis_link_log_in(link, how);
    if (r == 0)
        r = redis_link_check_role(link, how, &buffer);
    if (r == 0)
        r = redis_link_select(link, how, &buffer);
    if (r == 0) {
        redis_buffer_begin(&buffer, 2);
        redis_buffer_text(&buffer, "INFO");
        redis_buffer_text(&buffer, "server");
        r = redis_link_ask(link, how, &buffer, "INFO", &reply);
    }
    if (r == 0)
        r = redis_link_identity(how, reply);
    if (r == 0 && how->library) {
        redis_buffer_begin(&buffer, 4);
        redis_buffer_text(&buffer, "FUNCTION");
        redis_buffer_text(&buffer, "LOAD");
        redis_buffer_text(&buffer, "REPLACE");
        redis_buffer_word(&buffer, how->library, how->library_size);
        r = redis_link_ask(link, how, &buffer, "FUNCTION LOAD", &reply);
    }
    redis_buffer_free(&buffer);
    return r;
}

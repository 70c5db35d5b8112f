/* SPDX-License-Identifier: MIT */
/* The thread of `run`: keeps the links, and does what is due at a time. */
#include "redis_run.h"

#include "redis_calls.h"
#include "redis_inbox.h"
#include "redis_library.h"
#include "redis_session.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#define SECOND        UINT64_C(1000000000)
#define BACKOFF_FIRST (SECOND / 50)
#define BACKOFF_LAST  SECOND
#define BACKOFF_GROWS 6 /* times that it doubles */
#define EVENTS_MAX    8

/* A socket that is being connected or greeted. */
struct run_extra {
    int ready;
};

static uint64_t run_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A random number below n, for the jitter of retries: xorshift64. */
static uint64_t run_random(struct redis_connection *connection, uint64_t n)
{
    uint64_t x = connection->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    connection->random = x;
    return x % n;
}

/* Returns when to try again after so many attempts: at once the first time. */
static uint64_t run_retry_ns(struct redis_connection *connection, uint32_t attempts)
{
    uint64_t wait = BACKOFF_LAST, now = redis_boot_ns();
    if (attempts <= 1)
        return now;
    if (attempts < BACKOFF_GROWS)
        wait = BACKOFF_FIRST << attempts;
    wait = run_earlier(wait, BACKOFF_LAST);
    return now + wait / 2 + run_random(connection, wait / 2);
}

static void run_drop_inbox(struct redis_connection *connection)
{
    if (!connection->inbox)
        return;
    redis_link_close(connection->inbox);
    connection->inbox = NULL;
    connection->inbox_calls_n = 0;
    connection->inbox_retry_ns = run_retry_ns(connection, ++connection->inbox_failures);
}

/* Gives the link up if the server does not answer. Returns when to look again. */
static uint64_t run_check_link(struct redis_connection *connection, uint64_t now_ns)
{
    uint64_t timeout = connection->options.timeout_ns;
    if (connection->ready && connection->calls_n > 0 && !connection->reading &&
        connection->calls[connection->calls_first].sent_ns + timeout <= now_ns)
        redis_calls_serve(connection, EPOLLIN); /* replies for which no thread waits */
    if (!connection->ready || connection->calls_n == 0)
        return REDIS_NEVER;
    uint64_t end_ns = connection->calls[connection->calls_first].sent_ns + timeout;
    if (end_ns > now_ns)
        return end_ns;
    redis_calls_break(connection, "the server does not answer in time");
    return now_ns;
}

/* Does what is due. Returns when there will be something again. */
static uint64_t run_tick(struct redis_connection *connection)
{
    uint64_t now_ns = redis_boot_ns(), next_ns = run_check_link(connection, now_ns);
    connection->unsent = 0;
    for (struct redis_set *set = connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions, *next; session; session = next) {
            next = session->next;
            next_ns = run_earlier(next_ns, redis_session_tick(session, now_ns));
            connection->unsent |= session->unsent;
            if (set->has_subjects && session->state == REDIS_CLOSED && session->tickets_n == 0 &&
                session->calls_n == 0)
                redis_session_free(session);
        }
    }
    if (connection->inbox && redis_inbox_end_ns(connection) <= now_ns)
        run_drop_inbox(connection);
    if (connection->inbox)
        next_ns = run_earlier(next_ns, redis_inbox_end_ns(connection));
    return next_ns;
}

static void run_sleep_until(struct redis_connection *connection, uint64_t next_ns)
{
    struct itimerspec timer = {0};
    next_ns = next_ns == 0 ? 1 : next_ns;
    connection->sleeps_until_ns = next_ns;
    if (next_ns != REDIS_NEVER) {
        timer.it_value.tv_sec = (time_t)(next_ns / SECOND);
        timer.it_value.tv_nsec = (long)(next_ns % SECOND);
    }
    timerfd_settime(connection->timer, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void run_handle(struct redis_connection *connection, const struct epoll_event *event,
                       struct run_extra *extra)
{
    uint64_t n;
    ssize_t r = 0;
    if (event->data.ptr == &connection->event)
        r = read(connection->event, &n, sizeof(n));
    else if (event->data.ptr == &connection->timer)
        r = read(connection->timer, &n, sizeof(n));
    else if (connection->inbox && event->data.ptr == connection->inbox)
        r = redis_inbox_serve(connection);
    else if (connection->link && event->data.ptr == connection->link)
        redis_calls_serve(connection, event->events);
    else if (extra && event->data.ptr == extra)
        extra->ready = 1;
    if (r < 0 && connection->inbox && event->data.ptr == connection->inbox)
        run_drop_inbox(connection);
}

/* One turn: does what is due, sleeps up to `until_ns`, and does what has come up. */
static void run_serve(struct redis_connection *connection, struct run_extra *extra,
                      uint64_t until_ns)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t next_ns = run_earlier(run_tick(connection), until_ns);
    run_sleep_until(connection, next_ns);
    redis_calls_flush(connection); /* lets the lock go: what comes up meanwhile ends the sleep */
    pthread_mutex_unlock(&connection->lock);
    int n = epoll_wait(connection->epoll, events, EVENTS_MAX, -1);
    pthread_mutex_lock(&connection->lock);
    connection->sleeps_until_ns = 0;
    for (int i = 0; i < n; i++)
        run_handle(connection, &events[i], extra);
}

/* Waits for a socket that is being connected, and does all else meanwhile. */
static int run_wait(void *context, int fd, short events, uint64_t until_ns)
{
    struct redis_connection *connection = context;
    struct run_extra extra = {0};
    struct epoll_event event = {.events = events & POLLOUT ? EPOLLOUT : EPOLLIN,
                                .data.ptr = &extra};
    if (epoll_ctl(connection->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return -errno;
    pthread_mutex_lock(&connection->lock);
    while (!extra.ready && !connection->stopping && redis_boot_ns() < until_ns)
        run_serve(connection, &extra, until_ns);
    int r = connection->stopping ? -ECANCELED : extra.ready;
    pthread_mutex_unlock(&connection->lock);
    epoll_ctl(connection->epoll, EPOLL_CTL_DEL, fd, &event);
    return r;
}

static int run_has_session(const struct redis_connection *connection)
{
    for (const struct redis_set *set = connection->sets; set; set = set->next) {
        for (const struct redis_session *session = set->sessions; session; session = session->next)
            if (session->state == REDIS_OPEN)
                return 1;
    }
    return 0;
}

/* Looks up the host's addresses: the first time, and after a failure while there is no session.
 * It may block for long, and nothing would see a session end meanwhile. */
static int run_resolve(struct redis_connection *connection, struct addrinfo **addresses,
                       struct redis_link_how *how)
{
    const struct redis_url *url = &connection->options.url;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    pthread_mutex_lock(&connection->lock);
    int keep = *addresses && (!connection->down || run_has_session(connection));
    pthread_mutex_unlock(&connection->lock);
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
static int run_try_call(struct redis_connection *connection, struct redis_link *link,
                        struct redis_link_how *how)
{
    struct redis_buffer buffer = {0};
    const struct redis_reply *reply = NULL;
    char key[300];
    snprintf(key, sizeof(key), "%.250s{}", connection->options.prefix);
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
static int run_greet(struct redis_connection *connection, struct redis_link *link,
                     struct redis_link_how *how)
{
    int r = redis_link_greet(link, how);
    if (r == 0 && !how->library)
        r = run_try_call(connection, link, how);
    if (r != -ENOSYS)
        return r;
    how->library = (const char *)redis_library;
    how->library_size = redis_library_size;
    return redis_link_greet(link, how);
}

/* Makes a link, without the lock. Returns it, or NULL with the code. */
static struct redis_link *run_connect(struct redis_connection *connection,
                                      struct redis_link_how *how, int *reterr)
{
    struct redis_link *link = NULL;
    int r = run_resolve(connection, &connection->addresses, how);
    how->addresses = connection->addresses;
    how->deadline_ns = redis_boot_ns() + connection->options.timeout_ns;
    if (r == 0)
        link = redis_link_open(how, &r);
    if (link) {
        how->deadline_ns = redis_boot_ns() + connection->options.timeout_ns;
        r = run_greet(connection, link, how);
    }
    if (r == 0)
        return link;
    redis_link_close(link);
    *reterr = r;
    return NULL;
}

static struct redis_link_how run_how(struct redis_connection *connection)
{
    return (struct redis_link_how){.url = &connection->options.url,
                                   .tls = connection->options.tls,
                                   .password = connection->options.password,
                                   .wait = run_wait,
                                   .context = connection};
}

/* The server can be called again: goes on where the last link has ended. */
static void run_resume(struct redis_connection *connection, struct redis_link *link,
                       const struct redis_link_how *how)
{
    if (strcmp(connection->run_id, how->run_id)) {
        connection->run++;
        memcpy(connection->run_id, how->run_id, sizeof(connection->run_id));
    }
    if (connection->complained)
        redis_log(connection, WEIR_LOG_INFO, "the server is there again");
    connection->complained = 0;
    connection->link = link;
    connection->ready = 1;
    connection->broken = connection->down = 0;
    connection->watched = 0;
    for (struct redis_set *set = connection->sets; set; set = set->next) {
        for (struct redis_session *session = set->sessions; session; session = session->next)
            redis_session_resume(session);
    }
    redis_calls_flush(connection);
    if (connection->waiters)
        pthread_cond_signal(&connection->waiters->condition);
}

static void run_complain(struct redis_connection *connection, const struct redis_link_how *how,
                         int code)
{
    if (connection->complained != code && code != -ECANCELED)
        redis_log(connection, WEIR_LOG_WARNING, "%s", how->why);
    connection->complained = code;
}

static void run_connect_link(struct redis_connection *connection)
{
    struct redis_link_how how = run_how(connection);
    int r = 0;
    how.library = connection->needs_library ? (const char *)redis_library : NULL;
    how.library_size = redis_library_size;
    connection->retry_ns = run_retry_ns(connection, ++connection->failures);
    pthread_mutex_unlock(&connection->lock);
    struct redis_link *link = run_connect(connection, &how, &r);
    struct epoll_event event = {.events = 0, .data.ptr = link};
    if (link && epoll_ctl(connection->epoll, EPOLL_CTL_ADD, link->fd, &event) < 0) {
        r = -errno;
        redis_link_close(link);
        link = NULL;
    }
    pthread_mutex_lock(&connection->lock);
    if (link) {
        connection->needs_library &= !how.library;
        run_resume(connection, link, &how);
        return;
    }
    connection->down = 1;
    run_complain(connection, &how, r);
}

static void run_connect_inbox(struct redis_connection *connection)
{
    struct redis_link_how how = run_how(connection);
    int r = 0;
    connection->inbox_retry_ns = run_retry_ns(connection, ++connection->inbox_failures);
    pthread_mutex_unlock(&connection->lock);
    struct redis_link *link = run_connect(connection, &how, &r);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (link && epoll_ctl(connection->epoll, EPOLL_CTL_ADD, link->fd, &event) < 0) {
        redis_link_close(link);
        link = NULL;
    }
    pthread_mutex_lock(&connection->lock);
    connection->inbox = link;
    connection->inbox_calls_n = 0;
    connection->inbox_heard_ns = redis_boot_ns();
    if (link && redis_inbox_ask(connection) < 0)
        run_drop_inbox(connection);
    else if (link)
        connection->inbox_failures = 0;
}

/* Takes down a link that was given up, once no thread is on it. */
static void run_retire(struct redis_connection *connection)
{
    if (!connection->broken || connection->reading || connection->writing)
        return;
    redis_calls_forget(connection);
    redis_link_close(connection->link);
    connection->link = NULL;
    connection->broken = 0;
}

/* Returns when the next attempt to connect is due. */
static uint64_t run_keep_links(struct redis_connection *connection)
{
    run_retire(connection);
    if (!connection->ready && !connection->broken && connection->retry_ns <= redis_boot_ns())
        run_connect_link(connection);
    if (connection->ready && connection->inbox_wanted && !connection->inbox &&
        connection->inbox_retry_ns <= redis_boot_ns())
        run_connect_inbox(connection);
    if (connection->broken)
        return REDIS_NEVER; /* woken when the last thread leaves it */
    if (!connection->ready)
        return connection->retry_ns;
    return connection->inbox_wanted && !connection->inbox ? connection->inbox_retry_ns
                                                          : REDIS_NEVER;
}

/* Names this process: names of sessions are never used again. */
static int run_name(struct redis_connection *connection)
{
    uint64_t random[2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -errno;
    connection->random = random[1] | 1;
    snprintf(connection->name, sizeof(connection->name), "%016" PRIx64, random[0]);
    snprintf(connection->inbox_key, sizeof(connection->inbox_key), "%sinbox:%s",
             connection->options.prefix, connection->name);
    return 0;
}

static void run_close_waits(struct redis_connection *connection)
{
    int *fds[] = {&connection->epoll, &connection->event, &connection->timer};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

/* Makes what the thread waits by. Returns 0, or an error. */
static int run_open_waits(struct redis_connection *connection)
{
    connection->epoll = epoll_create1(EPOLL_CLOEXEC);
    connection->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    connection->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connection->event};
    struct epoll_event timer = {.events = EPOLLIN, .data.ptr = &connection->timer};
    if (connection->epoll >= 0 && connection->event >= 0 && connection->timer >= 0 &&
        epoll_ctl(connection->epoll, EPOLL_CTL_ADD, connection->event, &event) == 0 &&
        epoll_ctl(connection->epoll, EPOLL_CTL_ADD, connection->timer, &timer) == 0)
        return 0;
    int r = -errno;
    run_close_waits(connection);
    return r;
}

/* Prepares the thread: here and not before, as a process may fork after it has opened the
 * connection. While there are no descriptors, requests fail. */
static void run_prepare(struct redis_connection *connection)
{
    struct redis_link_how how = {0};
    int r;
    while (!connection->stopping &&
           ((r = run_name(connection)) < 0 || (r = run_open_waits(connection)) < 0)) {
        struct timespec pause = {0, BACKOFF_FIRST};
        snprintf(how.why, sizeof(how.why), "cannot begin: %s", strerror(-r));
        run_complain(connection, &how, r);
        connection->down = 1;
        (void)run_tick(connection);
        pthread_mutex_unlock(&connection->lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&connection->lock);
    }
    connection->down = 0;
}

void redis_run(struct redis_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    run_prepare(connection);
    while (!connection->stopping)
        run_serve(connection, NULL, run_keep_links(connection));
    uint64_t end_ns = redis_boot_ns() + SECOND;
    redis_calls_serve(connection, EPOLLIN | EPOLLOUT);
    while (connection->ready && redis_boot_ns() < end_ns &&
           (connection->unsent || connection->calls_n > 0)) {
        run_serve(connection, NULL, run_earlier(end_ns, redis_boot_ns() + SECOND / 100));
        redis_calls_serve(connection, EPOLLIN);
    }
    pthread_mutex_unlock(&connection->lock);
}

void redis_run_stop(struct redis_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    connection->stopping = 1;
    redis_calls_wake_by(connection, 0);
    pthread_mutex_unlock(&connection->lock);
}

/* Has the server read all that was sent: a socket that is closed with replies unread may lose it.
 */
static void run_drain(struct redis_link *link)
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

void redis_run_end(struct redis_connection *connection)
{
    if (connection->link && connection->ready)
        run_drain(connection->link);
    redis_link_close(connection->link);
    redis_link_close(connection->inbox);
    if (connection->addresses)
        freeaddrinfo(connection->addresses);
    run_close_waits(connection);
}

static int run_check_wait(void *context, int fd, short events, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    uint64_t now = redis_boot_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec wait = {(time_t)(left / SECOND), (long)(left % SECOND)};
    (void)context;
    int r = ppoll(&poll_fd, 1, &wait, NULL);
    return r < 0 && errno != EINTR ? -errno : r != 0;
}

int redis_run_check(struct redis_connection *connection, uint64_t until_ns,
                    struct weir_reason *reterr)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
    struct addrinfo *addresses = NULL;
    struct redis_link_how how = run_how(connection);
    int r = run_resolve(connection, &addresses, &how);
    how.wait = run_check_wait;
    how.addresses = addresses;
    how.deadline_ns = redis_boot_ns() + (until_ns > now_ns ? until_ns - now_ns : 0);
    struct redis_link *link = r == 0 ? redis_link_open(&how, &r) : NULL;
    if (link)
        r = run_greet(connection, link, &how);
    redis_link_close(link);
    if (addresses)
        freeaddrinfo(addresses);
    if (r < 0) {
        reterr->parameter = UINT32_MAX;
        snprintf(reterr->message, sizeof(reterr->message), "%s", how.why);
    }
    return r;
}

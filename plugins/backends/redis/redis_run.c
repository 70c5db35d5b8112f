/* SPDX-License-Identifier: MIT */
/* The thread of `run`: keeps the links, and does what is due at a time. */
#include "redis_run.h"

#include "redis_batches.h"
#include "redis_calls.h"
#include "redis_cluster.h"
#include "redis_due.h"
#include "redis_job.h"
#include "redis_sentinel.h"
#include "redis_server.h"
#include "redis_session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#define SECOND     UINT64_C(1000000000)
#define PAUSE_NS   20000000
#define STOP_TURN  (SECOND / 100)
#define EVENTS_MAX 8

static uint64_t run_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Does what is due in a session. One of a subject is freed when nothing is left of it. */
static void run_tick_session(struct redis_session *session, uint64_t now_ns)
{
    struct redis_set *set = session->set;
    redis_due_set(session, REDIS_NEVER);
    uint64_t next_ns = redis_session_tick(session, now_ns);
    if (set->only)
        next_ns = run_earlier(next_ns, redis_batches_tick(set, now_ns));
    next_ns = run_earlier(next_ns, session->due_ns);
    if (set->has_subjects && redis_session_is_unused(session))
        redis_session_free(session);
    else
        redis_due_set(session, next_ns > now_ns ? next_ns : now_ns + 1);
}

/* Does what is due. Returns when there will be something again. */
static uint64_t run_tick(struct redis_connection *connection)
{
    uint64_t now_ns = redis_boot_ns(), next_ns = REDIS_NEVER;
    struct redis_session *session;
    for (struct redis_server *server = connection->servers; server; server = server->next)
        next_ns = run_earlier(next_ns, redis_server_tick(server, now_ns));
    while ((session = redis_due_first(connection)) && session->due_ns <= now_ns)
        run_tick_session(session, now_ns);
    return session ? run_earlier(next_ns, session->due_ns) : next_ns;
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

static void run_handle(struct redis_connection *connection, const struct epoll_event *event)
{
    uint64_t n;
    ssize_t r = 0;
    if (event->data.ptr == &connection->event)
        r = read(connection->event, &n, sizeof(n));
    else if (event->data.ptr == &connection->timer)
        r = read(connection->timer, &n, sizeof(n));
    for (struct redis_server *server = connection->servers; server; server = server->next)
        redis_server_serve(server, event);
    (void)r; /* there is nothing to be read twice */
}

static void run_flush(struct redis_connection *connection)
{
    for (struct redis_server *server = connection->servers; server; server = server->next)
        redis_calls_flush(server);
}

/* One turn: does what is due, sleeps up to `until_ns`, and does what has come up. */
static void run_serve(struct redis_connection *connection, uint64_t until_ns)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t next_ns = run_earlier(run_tick(connection), until_ns);
    next_ns = run_earlier(next_ns, connection->wake_ns);
    if (connection->stopping) /* it may be new: the lock was let go since the caller looked */
        next_ns = run_earlier(next_ns, redis_boot_ns() + STOP_TURN);
    run_sleep_until(connection, next_ns);
    run_flush(connection); /* lets the lock go: what comes up meanwhile ends the sleep */
    pthread_mutex_unlock(&connection->lock);
    connection->host->write_log(connection->host->context);
    int n = epoll_wait(connection->epoll, events, EVENTS_MAX, -1);
    pthread_mutex_lock(&connection->lock);
    connection->sleeps_until_ns = 0;
    for (int i = 0; i < n; i++)
        run_handle(connection, &events[i]);
}

/* Names this process: names of sessions are never used again. */
static int run_name(struct redis_connection *connection)
{
    uint64_t random[2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -errno;
    connection->random = random[1] | 1;
    snprintf(connection->name, sizeof(connection->name), "%016" PRIx64, random[0]);
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

static void run_set_down(struct redis_connection *connection, const char *why, int code)
{
    for (struct redis_server *server = connection->servers; server; server = server->next) {
        redis_server_set_down(server, code < 0);
        redis_calls_wake_waiters(server);
        if (code < 0)
            redis_server_complain(server, why, code);
    }
}

/* Prepares the thread: here and not before, as a process may fork after it has opened the
 * connection. While there are no descriptors, requests fail. */
static void run_prepare(struct redis_connection *connection)
{
    int r;
    while (!connection->stopping &&
           ((r = run_name(connection)) < 0 || (r = run_open_waits(connection)) < 0)) {
        struct timespec pause = {0, PAUSE_NS};
        char why[160];
        snprintf(why, sizeof(why), "cannot begin: %s", strerror(-r));
        run_set_down(connection, why, r);
        (void)run_tick(connection);
        pthread_mutex_unlock(&connection->lock);
        connection->host->write_log(connection->host->context);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&connection->lock);
    }
    run_set_down(connection, NULL, 0);
}

/* Returns when the next attempt to connect is due. */
static uint64_t run_keep_links(struct redis_connection *connection)
{
    uint64_t next_ns = REDIS_NEVER;
    connection->wake_ns = REDIS_NEVER;
    for (struct redis_server *server = connection->servers; server; server = server->next)
        next_ns = run_earlier(next_ns, redis_server_keep(server));
    next_ns = run_earlier(next_ns, redis_server_verify(connection->home));
    return run_earlier(next_ns, redis_cluster_keep(connection));
}

/* Reads and sends on all links. Returns 1 if something is on its way, or has to be sent. */
static int run_finish(struct redis_connection *connection)
{
    int is_busy = 0;
    for (struct redis_server *server = connection->servers; server; server = server->next) {
        redis_calls_serve(server, EPOLLIN | EPOLLOUT);
        is_busy |= server->ready &&
                   (connection->unsent_n > 0 || connection->undone_n > 0 || server->calls_n > 0);
    }
    return is_busy;
}

void redis_run(struct redis_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    run_prepare(connection);
    while (!connection->stopping)
        run_serve(connection, run_keep_links(connection));
    uint64_t end_ns = redis_boot_ns() + SECOND;
    while (run_finish(connection) && redis_boot_ns() < end_ns) {
        connection->wake_ns = REDIS_NEVER;
        run_serve(connection, end_ns);
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

void redis_run_end(struct redis_connection *connection)
{
    while (connection->servers)
        redis_server_free(connection->servers);
    redis_sentinel_forget(&connection->sentinels);
    redis_job_free(&connection->describe_job);
    redis_job_free(&connection->find_job);
    free(connection->slots);
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

/* Checks the master that Sentinels name. */
static int run_check_master(struct redis_connection *connection, struct redis_link_how *how)
{
    struct redis_sentinels sentinels = {0};
    struct redis_url url;
    uint64_t deadline_ns = how->deadline_ns;
    int r = redis_sentinel_find(&connection->options, &sentinels, how, &url);
    redis_sentinel_forget(&sentinels);
    how->deadline_ns = deadline_ns;
    return r < 0 ? r : redis_server_check(connection, how, &url);
}

int redis_run_check(struct redis_connection *connection, uint64_t until_ns,
                    struct weir_reason *reterr)
{
    const struct redis_options *options = &connection->options;
    uint64_t now_ns = redis_now_ns();
    struct redis_link_how how = {.wait = run_check_wait,
                                 .tls = options->tls,
                                 .deadline_ns =
                                     redis_boot_ns() + (until_ns > now_ns ? until_ns - now_ns : 0)};
    int r = options->sentinel ? run_check_master(connection, &how) : -EHOSTUNREACH;
    for (uint32_t i = 0; i < options->urls_n && r < 0 && !options->sentinel; i++)
        r = redis_server_check(connection, &how, &options->urls[i]);
    reterr->parameter = UINT32_MAX;
    if (r < 0)
        snprintf(reterr->message, sizeof(reterr->message), "%.250s", how.why);
    else
        snprintf(reterr->message, sizeof(reterr->message),
                 "Redis %s, with the functions of weir%.160s", how.version, how.note);
    return r;
}

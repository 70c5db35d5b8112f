/* SPDX-License-Identifier: MIT */
/* Calls on their way to the server and back. */
#include "redis_calls.h"

#include "redis_answers.h"
#include "redis_session.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#define OUTBOX_MAX  (4u << 20) /* bytes to be sent */
#define CALLS_MAX   (64u << 10)
#define LAZY_MAX    64 /* replies for which no thread waits that are left unread */
#define CALLS_FIRST 64

int redis_calls_are_full(const struct redis_server *server)
{
    return server->outbox.size > OUTBOX_MAX || server->calls_n >= CALLS_MAX;
}

void redis_call_begin(struct redis_session *session, const char *function, size_t arguments_n)
{
    const struct redis_set *set = session->set;
    struct redis_buffer *outbox = &session->server->outbox;
    if (session->asks) {
        redis_buffer_begin(outbox, 1);
        redis_buffer_word(outbox, "ASKING", 6);
        redis_buffer_begin_next(outbox, 7 + arguments_n);
    } else {
        redis_buffer_begin(outbox, 7 + arguments_n);
    }
    redis_buffer_word(outbox, "FCALL", 5);
    redis_buffer_text(outbox, function);
    redis_buffer_word(outbox, "1", 1);
    redis_buffer_word(outbox, session->key, session->key_size);
    redis_buffer_text(outbox, session->server->run_id);
    redis_buffer_word(outbox, set->definition, set->definition_size);
    redis_buffer_text(outbox, session->node);
}

/* Makes room for two calls. Returns 0, or -ENOMEM. */
static int redis_calls_make_room(struct redis_server *server)
{
    size_t room = server->calls_room ? 2 * server->calls_room : CALLS_FIRST;
    if (server->calls_n + 1 < server->calls_room)
        return 0;
    struct redis_call *calls = calloc(room, sizeof(*calls));
    if (!calls)
        return -ENOMEM;
    for (size_t i = 0; i < server->calls_n; i++)
        calls[i] = server->calls[(server->calls_first + i) % server->calls_room];
    free(server->calls);
    server->calls = calls;
    server->calls_first = 0;
    server->calls_room = room;
    return 0;
}

static void redis_calls_push(struct redis_server *server, const struct redis_call *call)
{
    size_t at = (server->calls_first + server->calls_n++) % server->calls_room;
    server->calls[at] = *call;
    server->urgent_n += call->is_urgent;
}

int redis_call_end(struct redis_server *server, const struct redis_call *call)
{
    struct redis_call sent = *call;
    if (redis_calls_make_room(server) < 0)
        server->outbox.failed = 1;
    if (redis_buffer_end(&server->outbox) < 0)
        return -ENOMEM;
    sent.sent_ns = redis_boot_ns();
    sent.asks = sent.session->asks;
    sent.incarnation = sent.session->incarnation;
    sent.session->calls_n++;
    if (sent.ticket)
        sent.ticket->calls_n++;
    if (sent.asks)
        redis_calls_push(server,
                         &(struct redis_call){.kind = REDIS_CALL_ASKING, .sent_ns = sent.sent_ns});
    redis_calls_push(server, &sent);
    redis_calls_wake_by(server->connection, sent.sent_ns + server->connection->options.timeout_ns);
    return 0;
}

/* Has the thread of `run` watch the link as long as it is needed: a thread that waits takes the
 * reader's role by itself. */
static void redis_calls_watch(struct redis_server *server)
{
    size_t most_unread = server->connection->stopping ? 0 : LAZY_MAX;
    uint32_t events = 0;
    if (!server->ready)
        return;
    if (!server->reading && !server->waiters &&
        (server->urgent_n > 0 || server->calls_n > most_unread))
        events |= EPOLLIN;
    if (server->blocked)
        events |= EPOLLOUT;
    if (events == server->watched)
        return;
    struct epoll_event event = {.events = events, .data.ptr = server->link};
    if (epoll_ctl(server->connection->epoll, EPOLL_CTL_MOD, server->link->fd, &event) == 0)
        server->watched = events;
}

void redis_calls_wake_by(struct redis_connection *connection, uint64_t at_ns)
{
    uint64_t one = 1;
    if (at_ns < connection->wake_ns)
        connection->wake_ns = at_ns;
    if (at_ns >= connection->sleeps_until_ns)
        return;
    connection->sleeps_until_ns = 0;
    while (write(connection->event, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void redis_calls_break(struct redis_server *server, const char *what)
{
    if (server->ready && what)
        redis_log(server, WEIR_LOG_WARNING, "the connection is given up: %s", what);
    if (server->ready) {
        struct epoll_event none = {0};
        epoll_ctl(server->connection->epoll, EPOLL_CTL_DEL, server->link->fd, &none);
        shutdown(server->link->fd, SHUT_RDWR); /* wakes the threads on it */
    }
    server->ready = 0;
    server->broken = 1;
    redis_calls_wake_by(server->connection, 0);
}

/* Makes the outbox what is being sent, once that is through. Returns 0 if there is nothing. */
static int redis_calls_turn(struct redis_server *server)
{
    struct redis_buffer empty = server->sending;
    if (server->sent < server->sending.size)
        return 1;
    empty.size = 0;
    server->sending = server->outbox;
    server->outbox = empty;
    server->sent = 0;
    return server->sending.size > 0;
}

void redis_calls_flush(struct redis_server *server)
{
    if (server->writing || server->blocked || !server->ready)
        return;
    server->writing = 1;
    while (server->ready && !server->blocked && redis_calls_turn(server)) {
        const char *from = server->sending.bytes + server->sent;
        size_t n = server->sending.size - server->sent;
        pthread_mutex_unlock(&server->connection->lock);
        ssize_t sent = redis_link_send(server->link, from, n);
        pthread_mutex_lock(&server->connection->lock);
        if (sent >= 0)
            server->sent += (size_t)sent;
        else if (sent == -EAGAIN)
            server->blocked = 1;
        else
            redis_calls_break(server, strerror((int)-sent));
    }
    server->writing = 0;
    if (server->broken)
        redis_calls_wake_by(server->connection, 0);
    redis_calls_watch(server);
}

/* Takes the oldest call on its way out of the ring. Its ticket still counts it. */
static struct redis_call redis_calls_pop(struct redis_server *server)
{
    struct redis_call call = server->calls[server->calls_first];
    server->calls_first = (server->calls_first + 1) % server->calls_room;
    server->calls_n--;
    server->urgent_n -= call.is_urgent;
    if (call.session)
        call.session->calls_n--;
    return call;
}

/* Acts on the replies that were received. */
static void redis_calls_take(struct redis_server *server)
{
    const struct redis_reply *reply;
    int r = 0;
    while (server->ready && (r = redis_replies_next(server->link->replies, &reply)) > 0) {
        if (server->calls_n == 0) {
            r = -EPROTO;
            break;
        }
        struct redis_call call = redis_calls_pop(server);
        redis_answers_take(server, &call, reply);
        if (call.session)
            redis_session_arrive(call.session);
    }
    if (server->ready && r < 0)
        redis_calls_break(server, "the server does not keep to the protocol");
}

/* Receives in the role of the reader, with the lock let go: at once, or when something has come, up
 * to `until_ns` by CLOCK_MONOTONIC. Returns 1, -EAGAIN, or an error of the link. */
static int redis_calls_receive(struct redis_server *server, const struct timespec *wait)
{
    struct redis_link *link = server->link;
    struct pollfd poll = {.fd = link->fd, .events = POLLIN};
    pthread_mutex_unlock(&server->connection->lock);
    int r = wait ? ppoll(&poll, 1, wait, NULL) : 1;
    r = r > 0 ? redis_link_receive(link) : -EAGAIN;
    pthread_mutex_lock(&server->connection->lock);
    if (r < 0 && r != -EAGAIN)
        redis_calls_break(server, r == -ECONNRESET ? "the server has closed it" : strerror(-r));
    else if (r > 0)
        redis_calls_take(server);
    if (server->outbox.size > 0) /* what the replies have brought up */
        redis_calls_flush(server);
    return r;
}

/* Leaves the reader's role: to a thread that waits, or to that of `run`. */
static void redis_calls_hand_over(struct redis_server *server)
{
    server->reading = 0;
    if (server->waiters)
        pthread_cond_signal(&server->waiters->condition);
    if (server->broken)
        redis_calls_wake_by(server->connection, 0);
    redis_calls_watch(server);
}

/* Returns the time from now to an instant of CLOCK_MONOTONIC, 0 if that is over. */
static struct timespec redis_calls_left(uint64_t until_ns)
{
    uint64_t now_ns = redis_now_ns();
    uint64_t left = until_ns > now_ns ? until_ns - now_ns : 0;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

/* Takes a waiter off the list of the server at which it sleeps. */
static void redis_calls_wake_up(struct redis_waiter *waiter)
{
    if (!waiter->server)
        return;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        waiter->server->waiters = waiter->next;
    pthread_cond_destroy(&waiter->condition);
    waiter->server = NULL;
}

/* Puts a waiter on the list of a server. Returns 0, or -1. */
static int redis_calls_enlist(struct redis_server *server, struct redis_waiter *waiter)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return -1;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int r = pthread_cond_init(&waiter->condition, &attributes);
    pthread_condattr_destroy(&attributes);
    if (r)
        return -1;
    waiter->server = server;
    waiter->previous = NULL;
    waiter->next = server->waiters;
    if (waiter->next)
        waiter->next->previous = waiter;
    server->waiters = waiter;
    return 0;
}

/* Takes a waiter off its list. If it was to read, another one is. */
static void redis_calls_leave(struct redis_waiter *waiter)
{
    struct redis_server *server = waiter->server;
    if (!server)
        return;
    redis_calls_wake_up(waiter);
    if (!server->reading && server->ready && server->waiters)
        pthread_cond_signal(&server->waiters->condition);
    redis_calls_watch(server);
}

/* Sleeps until the waiter is answered or may read, or the time is over. */
static void redis_calls_sleep(struct redis_server *server, struct redis_waiter *waiter,
                              uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    if (waiter->server != server) {
        redis_calls_leave(waiter);
        if (redis_calls_enlist(server, waiter) < 0)
            return;
    }
    pthread_cond_timedwait(&waiter->condition, &server->connection->lock, &until);
}

void redis_calls_answer(struct redis_waiter *waiter)
{
    waiter->answered = 1;
    if (waiter->server)
        pthread_cond_signal(&waiter->condition);
}

/* Reads in the role of the reader until the waiter is answered, or its session is at another
 * server, or the time is over. */
static void redis_calls_read(struct redis_server *server, const struct redis_waiter *waiter,
                             uint64_t until_ns)
{
    struct timespec left = redis_calls_left(until_ns);
    server->reading = 1;
    redis_calls_watch(server);
    while (server->ready && !waiter->answered && waiter->session->server == server &&
           (left.tv_sec > 0 || left.tv_nsec > 0)) {
        redis_calls_receive(server, &left);
        if (!waiter->answered)
            left = redis_calls_left(until_ns);
    }
    redis_calls_hand_over(server);
}

void redis_calls_wake_waiters(struct redis_server *server)
{
    for (struct redis_waiter *waiter = server->waiters; waiter; waiter = waiter->next)
        pthread_cond_signal(&waiter->condition);
}

int redis_calls_wait_to_send(struct redis_waiter *waiter, uint64_t until_ns)
{
    struct timespec left = redis_calls_left(until_ns);
    if (left.tv_sec == 0 && left.tv_nsec == 0)
        return 0;
    redis_calls_wake_by(waiter->session->set->connection, waiter->session->server->retry_ns);
    redis_calls_sleep(waiter->session->server, waiter, until_ns);
    redis_calls_leave(waiter);
    return 1;
}

int redis_calls_wait(struct redis_waiter *waiter, uint64_t until_ns)
{
    while (!waiter->answered) {
        struct timespec left = redis_calls_left(until_ns);
        struct redis_server *server = waiter->session->server;
        if (left.tv_sec == 0 && left.tv_nsec == 0)
            break;
        if (!server->ready || server->reading) {
            redis_calls_sleep(server, waiter, until_ns);
            continue;
        }
        if (waiter->server == server)
            redis_calls_wake_up(waiter);
        redis_calls_leave(waiter);
        redis_calls_read(server, waiter, until_ns);
    }
    redis_calls_leave(waiter);
    return waiter->answered;
}

void redis_calls_serve(struct redis_server *server, uint32_t events)
{
    if (!server->ready)
        return;
    if (server->reading && events & (EPOLLHUP | EPOLLERR)) {
        redis_calls_break(server, "the server has closed it");
        return;
    }
    if (events & EPOLLOUT)
        server->blocked = 0;
    if (!server->reading && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        server->reading = 1;
        while (server->ready && redis_calls_receive(server, NULL) > 0)
            ;
        redis_calls_hand_over(server);
    }
    redis_calls_flush(server);
}

void redis_calls_forget(struct redis_server *server)
{
    server->sent = 0;
    redis_buffer_clear(&server->sending);
    redis_buffer_clear(&server->outbox);
    server->blocked = 0;
    while (server->calls_n > 0) {
        struct redis_call call = redis_calls_pop(server);
        redis_answers_lose(&call);
        if (call.session)
            redis_session_arrive(call.session);
    }
}

void redis_calls_forget_set(const struct redis_set *set)
{
    struct redis_server *server = set->connection->servers;
    for (; server; server = server->next) {
        for (size_t i = 0; i < server->calls_n; i++) {
            size_t at = (server->calls_first + i) % server->calls_room;
            struct redis_call *call = &server->calls[at];
            if (call->session && call->session->set == set) {
                call->session = NULL;
                call->ticket = NULL;
            }
        }
    }
}

void redis_calls_forget_waiter(struct redis_server *server, const struct redis_waiter *waiter)
{
    for (size_t i = 0; i < server->calls_n; i++) {
        size_t at = (server->calls_first + i) % server->calls_room;
        if (server->calls[at].waiter == waiter)
            server->calls[at].waiter = NULL;
    }
}

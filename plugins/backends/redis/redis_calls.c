/* SPDX-License-Identifier: MIT */
/* Calls on their way to the server and back. */
#include "redis_calls.h"

#include "redis_answers.h"

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

int redis_calls_are_full(const struct redis_connection *connection)
{
    return connection->outbox.size > OUTBOX_MAX || connection->calls_n >= CALLS_MAX;
}

void redis_call_begin(struct redis_session *session, const char *function, size_t arguments_n)
{
    const struct redis_set *set = session->set;
    struct redis_buffer *outbox = &set->connection->outbox;
    redis_buffer_begin(outbox, 7 + arguments_n);
    redis_buffer_word(outbox, "FCALL", 5);
    redis_buffer_text(outbox, function);
    redis_buffer_word(outbox, "1", 1);
    redis_buffer_word(outbox, session->key, session->key_size);
    redis_buffer_text(outbox, set->connection->run_id);
    redis_buffer_word(outbox, set->definition, set->definition_size);
    redis_buffer_text(outbox, session->node);
}

static int redis_calls_make_room(struct redis_connection *connection)
{
    size_t room = connection->calls_room ? 2 * connection->calls_room : CALLS_FIRST;
    if (connection->calls_n < connection->calls_room)
        return 0;
    struct redis_call *calls = calloc(room, sizeof(*calls));
    if (!calls)
        return -ENOMEM;
    for (size_t i = 0; i < connection->calls_n; i++)
        calls[i] = connection->calls[(connection->calls_first + i) % connection->calls_room];
    free(connection->calls);
    connection->calls = calls;
    connection->calls_first = 0;
    connection->calls_room = room;
    return 0;
}

int redis_call_end(struct redis_connection *connection, const struct redis_call *call)
{
    if (redis_calls_make_room(connection) < 0)
        connection->outbox.failed = 1;
    if (redis_buffer_end(&connection->outbox) < 0)
        return -ENOMEM;
    size_t at = (connection->calls_first + connection->calls_n++) % connection->calls_room;
    struct redis_call *sent = &connection->calls[at];
    *sent = *call;
    sent->sent_ns = redis_boot_ns();
    if (sent->ticket)
        sent->ticket->calls_n++;
    if (sent->session) {
        sent->session->calls_n++;
        sent->incarnation = sent->session->incarnation;
    }
    connection->urgent_n += sent->is_urgent != 0;
    redis_calls_wake_by(connection, sent->sent_ns + connection->options.timeout_ns);
    return 0;
}

/* Has the thread of `run` watch the link as long as it is needed: a thread that waits takes the
 * reader's role by itself. */
static void redis_calls_watch(struct redis_connection *connection)
{
    uint32_t events = 0;
    if (!connection->ready)
        return;
    if (!connection->reading && !connection->waiters &&
        (connection->urgent_n > 0 || connection->calls_n > LAZY_MAX))
        events |= EPOLLIN;
    if (connection->blocked)
        events |= EPOLLOUT;
    if (events == connection->watched)
        return;
    struct epoll_event event = {.events = events, .data.ptr = connection->link};
    if (epoll_ctl(connection->epoll, EPOLL_CTL_MOD, connection->link->fd, &event) == 0)
        connection->watched = events;
}

void redis_calls_wake_by(struct redis_connection *connection, uint64_t at_ns)
{
    uint64_t one = 1;
    if (at_ns >= connection->sleeps_until_ns)
        return;
    connection->sleeps_until_ns = 0;
    while (write(connection->event, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void redis_calls_break(struct redis_connection *connection, const char *what)
{
    if (connection->ready && what)
        redis_log(connection, WEIR_LOG_WARNING, "the connection is given up: %s", what);
    if (connection->ready) {
        struct epoll_event none = {0};
        epoll_ctl(connection->epoll, EPOLL_CTL_DEL, connection->link->fd, &none);
        shutdown(connection->link->fd, SHUT_RDWR); /* wakes the threads on it */
    }
    connection->ready = 0;
    connection->broken = 1;
    redis_calls_wake_by(connection, 0);
}

/* Makes the outbox what is being sent, once that is through. Returns 0 if there is nothing. */
static int redis_calls_turn(struct redis_connection *connection)
{
    struct redis_buffer empty = connection->sending;
    if (connection->sent < connection->sending.size)
        return 1;
    empty.size = 0;
    connection->sending = connection->outbox;
    connection->outbox = empty;
    connection->sent = 0;
    return connection->sending.size > 0;
}

void redis_calls_flush(struct redis_connection *connection)
{
    if (connection->writing || connection->blocked || !connection->ready)
        return;
    connection->writing = 1;
    while (connection->ready && !connection->blocked && redis_calls_turn(connection)) {
        const char *from = connection->sending.bytes + connection->sent;
        size_t n = connection->sending.size - connection->sent;
        pthread_mutex_unlock(&connection->lock);
        ssize_t sent = redis_link_send(connection->link, from, n);
        pthread_mutex_lock(&connection->lock);
        if (sent >= 0)
            connection->sent += (size_t)sent;
        else if (sent == -EAGAIN)
            connection->blocked = 1;
        else
            redis_calls_break(connection, strerror((int)-sent));
    }
    connection->writing = 0;
    if (connection->broken)
        redis_calls_wake_by(connection, 0);
    redis_calls_watch(connection);
}

/* Takes the oldest call on its way out of the ring. Its ticket still counts it. */
static struct redis_call redis_calls_pop(struct redis_connection *connection)
{
    struct redis_call call = connection->calls[connection->calls_first];
    connection->calls_first = (connection->calls_first + 1) % connection->calls_room;
    connection->calls_n--;
    connection->urgent_n -= call.is_urgent != 0;
    if (call.session)
        call.session->calls_n--;
    return call;
}

/* Acts on the replies that were received. */
static void redis_calls_take(struct redis_connection *connection)
{
    const struct redis_reply *reply;
    int r = 0;
    while (connection->ready && (r = redis_replies_next(connection->link->replies, &reply)) > 0) {
        if (connection->calls_n == 0) {
            r = -EPROTO;
            break;
        }
        struct redis_call call = redis_calls_pop(connection);
        redis_answers_take(connection, &call, reply);
    }
    if (connection->ready && r < 0)
        redis_calls_break(connection, "the server does not keep to the protocol");
}

/* Receives in the role of the reader, with the lock let go: at once, or when something has come, up
 * to `until_ns` by CLOCK_MONOTONIC. Returns 1, -EAGAIN, or an error of the link. */
static int redis_calls_receive(struct redis_connection *connection, const struct timespec *wait)
{
    struct redis_link *link = connection->link;
    struct pollfd poll = {.fd = link->fd, .events = POLLIN};
    pthread_mutex_unlock(&connection->lock);
    int r = wait ? ppoll(&poll, 1, wait, NULL) : 1;
    r = r > 0 ? redis_link_receive(link) : -EAGAIN;
    pthread_mutex_lock(&connection->lock);
    if (r < 0 && r != -EAGAIN)
        redis_calls_break(connection, r == -ECONNRESET ? "the server has closed it" : strerror(-r));
    else if (r > 0)
        redis_calls_take(connection);
    if (connection->outbox.size > 0) /* what the replies have brought up */
        redis_calls_flush(connection);
    return r;
}

/* Leaves the reader's role: to a thread that waits, or to that of `run`. */
static void redis_calls_hand_over(struct redis_connection *connection)
{
    connection->reading = 0;
    if (connection->waiters)
        pthread_cond_signal(&connection->waiters->condition);
    if (connection->broken)
        redis_calls_wake_by(connection, 0);
    redis_calls_watch(connection);
}

/* Returns the time from now to an instant of CLOCK_MONOTONIC, 0 if that is over. */
static struct timespec redis_calls_left(uint64_t until_ns)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint64_t left = until_ns > now_ns ? until_ns - now_ns : 0;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

/* Sleeps until the waiter is answered or may read, or the time is over. */
static void redis_calls_sleep(struct redis_connection *connection, struct redis_waiter *waiter,
                              uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    pthread_condattr_t attributes;
    if (!waiter->sleeps) {
        if (pthread_condattr_init(&attributes))
            return;
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        int r = pthread_cond_init(&waiter->condition, &attributes);
        pthread_condattr_destroy(&attributes);
        if (r)
            return;
        waiter->sleeps = 1;
        waiter->previous = NULL;
        waiter->next = connection->waiters;
        if (waiter->next)
            waiter->next->previous = waiter;
        connection->waiters = waiter;
    }
    pthread_cond_timedwait(&waiter->condition, &connection->lock, &until);
}

static void redis_calls_wake_up(struct redis_connection *connection, struct redis_waiter *waiter)
{
    if (!waiter->sleeps)
        return;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        connection->waiters = waiter->next;
    pthread_cond_destroy(&waiter->condition);
    waiter->sleeps = 0;
}

void redis_calls_answer(struct redis_waiter *waiter)
{
    waiter->answered = 1;
    if (waiter->sleeps)
        pthread_cond_signal(&waiter->condition);
}

int redis_calls_wait(struct redis_connection *connection, struct redis_waiter *waiter,
                     uint64_t until_ns)
{
    while (!waiter->answered) {
        struct timespec left = redis_calls_left(until_ns);
        if (left.tv_sec == 0 && left.tv_nsec == 0)
            break;
        if (!connection->ready || connection->reading) {
            redis_calls_sleep(connection, waiter, until_ns);
            continue;
        }
        redis_calls_wake_up(connection, waiter);
        connection->reading = 1;
        redis_calls_watch(connection);
        while (connection->ready && !waiter->answered && (left.tv_sec > 0 || left.tv_nsec > 0)) {
            redis_calls_receive(connection, &left);
            if (!waiter->answered)
                left = redis_calls_left(until_ns);
        }
        redis_calls_hand_over(connection);
    }
    redis_calls_wake_up(connection, waiter);
    if (!connection->reading && connection->ready && connection->waiters)
        pthread_cond_signal(&connection->waiters->condition);
    redis_calls_watch(connection);
    return waiter->answered;
}

void redis_calls_serve(struct redis_connection *connection, uint32_t events)
{
    if (!connection->ready)
        return;
    if (connection->reading && events & (EPOLLHUP | EPOLLERR)) {
        redis_calls_break(connection, "the server has closed it");
        return;
    }
    if (events & EPOLLOUT)
        connection->blocked = 0;
    if (!connection->reading && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        connection->reading = 1;
        while (connection->ready && redis_calls_receive(connection, NULL) > 0)
            ;
        redis_calls_hand_over(connection);
    }
    redis_calls_flush(connection);
}

void redis_calls_forget(struct redis_connection *connection)
{
    connection->sent = 0;
    redis_buffer_clear(&connection->sending);
    redis_buffer_clear(&connection->outbox);
    connection->blocked = 0;
    while (connection->calls_n > 0) {
        struct redis_call call = redis_calls_pop(connection);
        redis_answers_lose(connection, &call);
    }
}

void redis_calls_forget_session(struct redis_connection *connection,
                                const struct redis_session *session)
{
    for (size_t i = 0; i < connection->calls_n; i++) {
        size_t at = (connection->calls_first + i) % connection->calls_room;
        struct redis_call *call = &connection->calls[at];
        if (call->session == session) {
            call->session = NULL;
            call->ticket = NULL;
        }
    }
}

void redis_calls_forget_waiter(struct redis_connection *connection,
                               const struct redis_waiter *waiter)
{
    for (size_t i = 0; i < connection->calls_n; i++) {
        size_t at = (connection->calls_first + i) % connection->calls_room;
        if (connection->calls[at].waiter == waiter)
            connection->calls[at].waiter = NULL;
    }
}

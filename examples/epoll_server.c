/* SPDX-License-Identifier: MIT */
/*
 * An HTTP server that admits requests by weir, in a loop over epoll: one thread, no callbacks from
 * weir, no polling. A request that cannot be served yet waits; its acquisition's file descriptor is
 * watched like any other and becomes readable when the request may start.
 *
 *     reading ──► weir_submit ──► working ──► weir_release ──► writing ──► reading …
 *                    │   └─► waiting ──┘ its fd fires             ▲
 *                    └─► refused: 429 with Retry-After ───────────┘
 *
 * A client that closes its side of the connection counts as gone: its acquisition is released at
 * once, waiting or held. The work itself is a timer here.
 */
#include "service.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sysexits.h>
#include <unistd.h>

#define EVENTS_MAX 64
/* Pause before the next accept after the machine ran out of a resource. */
#define ACCEPT_PAUSE_NS ((uint64_t)100000000)

struct server;

/* A descriptor in epoll, and its handler. */
struct watch {
    void (*ready)(struct server *server, void *owner);
    void *owner;
};

enum state { READING, WAITING, WORKING, WRITING, LEAVING, CLOSED };

struct connection {
    int fd;
    enum state state;
    uint32_t events; /* events that epoll watches the socket for */
    bool keep_alive;
    struct watch socket, grant;
    weir_acquisition *acquisition; /* while waiting and working */
    struct job job;

    struct deadlines *in; /* the list this connection is in, or NULL */
    uint64_t deadline_ns;
    struct connection *earlier, *later; /* links in that list; `later` also of closed ones */

    struct connection *previous, *next; /* list of open connections */
    struct http_input input;
    struct http_reply reply;
};

/* Connections by deadline. New ones mostly belong at the end, so a sorted list is enough. */
struct deadlines {
    struct connection *first, *last;
};

struct server {
    struct service service;
    int epoll, listener, timer;
    struct watch on_client, on_notice, on_timer;
    bool stopping;
    bool accepting;            /* the listener is in epoll */
    uint64_t accept_again_ns;  /* 0: not scheduled */
    uint64_t armed_ns;         /* expiry of the timer; 0: not set */
    uint64_t last_look_ns;     /* events reported now are later than this */
    struct deadlines idle;     /* clients that must send or take data */
    struct deadlines work;     /* requests being worked on */
    struct connection *open;   /* all connections */
    struct connection *closed; /* freed after this round of events, which may refer to them */
    unsigned connections_n;
};

/* ---- deadlines ---- */

static void deadline_clear(struct connection *c)
{
    if (!c->in)
        return;
    *(c->earlier ? &c->earlier->later : &c->in->first) = c->later;
    *(c->later ? &c->later->earlier : &c->in->last) = c->earlier;
    c->in = NULL;
}

static void deadline_set(struct connection *c, struct deadlines *list, uint64_t at_ns)
{
    struct connection *before;

    deadline_clear(c);
    before = list->last;
    while (before && before->deadline_ns > at_ns)
        before = before->earlier;
    c->in = list;
    c->deadline_ns = at_ns;
    c->earlier = before;
    c->later = before ? before->later : list->first;
    *(c->earlier ? &c->earlier->later : &list->first) = c;
    *(c->later ? &c->later->earlier : &list->last) = c;
}

/* Sets the timer to the earliest deadline. */
static void arm_timer(struct server *s)
{
    uint64_t at_ns = s->accept_again_ns;
    uint64_t due_ns = trace_due_ns(&s->service.trace, s->service.weir);
    struct itimerspec when = {0};

    if (s->idle.first && (at_ns == 0 || s->idle.first->deadline_ns < at_ns))
        at_ns = s->idle.first->deadline_ns;
    if (s->work.first && (at_ns == 0 || s->work.first->deadline_ns < at_ns))
        at_ns = s->work.first->deadline_ns;
    if (due_ns != 0 && (at_ns == 0 || due_ns < at_ns))
        at_ns = due_ns;
    if (at_ns == s->armed_ns)
        return;
    s->armed_ns = at_ns;
    when.it_value.tv_sec = (time_t)(at_ns / 1000000000);
    when.it_value.tv_nsec = (long)(at_ns % 1000000000);
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- epoll ---- */

static int watch_fd(struct server *s, int operation, int fd, struct watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    return epoll_ctl(s->epoll, operation, fd, &event) == 0 ? 0 : -errno;
}

/* Watches the socket for the events of its state; while it waits, only for the client leaving. */
static void watch_socket(struct server *s, struct connection *c, uint32_t events)
{
    if (c->events != events)
        watch_fd(s, EPOLL_CTL_MOD, c->fd, &c->socket, events);
    c->events = events;
}

static void accept_start(struct server *s)
{
    s->accept_again_ns = 0;
    if (!s->accepting && !s->stopping)
        s->accepting = watch_fd(s, EPOLL_CTL_ADD, s->listener, &s->on_client, EPOLLIN) == 0;
}

static void accept_stop(struct server *s)
{
    if (s->accepting)
        watch_fd(s, EPOLL_CTL_DEL, s->listener, NULL, 0);
    s->accepting = false;
}

/* ---- requests ---- */

static struct trace_request traced(const struct job *job, uint64_t used)
{
    return (struct trace_request){job->arrived_ns, job->tokens, used};
}

/* Releases the acquisition of the connection, waiting or held; `used` is charged to the client. */
static void release(struct server *s, struct connection *c, const char *event, uint64_t used)
{
    const struct trace_request request = traced(&c->job, used);
    uint64_t since_ns = now_ns();
    char set[256];

    trace_move(&s->service.trace, s->service.weir);
    trace_released(&s->service.trace, &request, c->acquisition);
    snprintf(set, sizeof(set), "%s", weir_acquisition_set(c->acquisition));
    if (c->job.tokens > 0)
        weir_update(c->acquisition, "tokens", used);
    weir_release(&c->acquisition); /* also closes its fd, which leaves epoll */
    service_log(&s->service, event, &c->job, set, used, since_ns);
}

static void hang_up(struct server *s, struct connection *c)
{
    if (c->state == WAITING) {
        trace_move(&s->service.trace, s->service.weir);
        weir_cancel(c->acquisition); /* if it was granted just now, none of it was used */
        release(s, c, "left", 0);
    }
    if (c->state == WORKING)
        release(s, c, "dropped", c->job.tokens);
    deadline_clear(c);
    close(c->fd);
    c->state = CLOSED;
    *(c->previous ? &c->previous->next : &s->open) = c->next;
    if (c->next)
        c->next->previous = c->previous;
    c->later = s->closed;
    s->closed = c;
    s->connections_n--;
    accept_start(s);
}

static void start_reading(struct server *s, struct connection *c)
{
    c->state = READING;
    deadline_set(c, &s->idle, now_ns() + s->service.idle_ns);
}

static void start_writing(struct server *s, struct connection *c)
{
    c->state = WRITING;
    deadline_set(c, &s->idle, now_ns() + s->service.idle_ns);
}

/* Starts the work of a granted request: the limits are held from here until release(). */
static void start_work(struct server *s, struct connection *c, uint64_t granted_not_before_ns)
{
    c->state = WORKING;
    service_log(&s->service, "started", &c->job, weir_acquisition_set(c->acquisition),
                c->job.tokens, granted_not_before_ns);
    deadline_set(c, &s->work, now_ns() + c->job.work_ns);
    watch_socket(s, c, EPOLLRDHUP);
}

static void finish_work(struct server *s, struct connection *c)
{
    answer_done(&c->reply, &s->service, &c->job, c->acquisition, c->keep_alive);
    release(s, c, "finished", c->job.used);
    start_writing(s, c);
}

static void refuse(struct server *s, struct connection *c, int result,
                   const struct weir_refusal *refusal)
{
    const struct trace_request request = traced(&c->job, 0);

    trace_refused(&s->service.trace, &request, result, refusal->set);
    service_log(&s->service, "refused", &c->job, refusal->set, c->job.tokens, c->job.asked_ns);
    answer_refused(&c->reply, &s->service, result, refusal, c->keep_alive);
    weir_release(&c->acquisition);
    start_writing(s, c);
}

static void start_waiting(struct server *s, struct connection *c)
{
    int fd = weir_acquisition_fd(c->acquisition);
    int e = fd < 0 ? fd : watch_fd(s, EPOLL_CTL_ADD, fd, &c->grant, EPOLLIN | EPOLLONESHOT);

    if (e < 0) {
        refuse(s, c, e, &(struct weir_refusal){.retry_after_ns = WEIR_FOREVER});
        return;
    }
    c->state = WAITING;
    deadline_clear(c); /* timeout and max_wait of the set bound the wait */
    service_log(&s->service, "waiting", &c->job, weir_acquisition_set(c->acquisition),
                c->job.tokens, c->job.asked_ns);
    watch_socket(s, c, EPOLLRDHUP);
}

/* Submits the request. Calls and resources of the set are included by default, one of each. */
static void ask(struct server *s, struct connection *c)
{
    const struct weir_amount tokens = {"tokens", c->job.tokens};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &tokens, .amounts_n = 1};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int e;

    c->job.arrived_ns = trace_move(&s->service.trace, s->service.weir);
    e = weir_submit(s->service.pool, &request, &c->acquisition, &refusal);
    if (e < 0)
        refuse(s, c, e, &refusal);
    else if (e == 0)
        start_work(s, c, c->job.asked_ns);
    else
        start_waiting(s, c);
}

/* ---- connections ---- */

static void refuse_status(struct server *s, struct connection *c, int status)
{
    c->keep_alive = false;
    answer_status(&c->reply, status);
    start_writing(s, c);
}

/* Acts on a request if it is complete. Returns true if the state changed. */
static bool read_request(struct server *s, struct connection *c)
{
    int status = http_parse(&c->input);

    if (status == HTTP_INCOMPLETE) {
        watch_socket(s, c, EPOLLIN);
        return false;
    }
    if (status == HTTP_REQUEST_READY)
        status = job_read(&s->service, &c->job, &c->input);
    if (status != 0) {
        refuse_status(s, c, status);
        return true;
    }
    c->keep_alive = http_keep_alive(&c->input) && !s->stopping;
    if (http_path_is(&c->input, "/stats")) {
        answer_stats(&c->reply, &s->service, c->keep_alive);
        start_writing(s, c);
    } else {
        ask(s, c);
    }
    return true;
}

/*
 * Waits for the client to close, after the last reply. To close while the client still sends would
 * reset the connection and might destroy that reply on its way.
 */
static void start_leaving(struct server *s, struct connection *c)
{
    if (s->stopping || shutdown(c->fd, SHUT_WR) != 0) {
        hang_up(s, c);
        return;
    }
    c->state = LEAVING; /* until the deadline for writing, which still stands */
    watch_socket(s, c, EPOLLIN);
}

static bool write_reply(struct server *s, struct connection *c)
{
    struct http_reply *reply = &c->reply;
    ssize_t n = send(c->fd, reply->bytes + reply->sent, reply->n - reply->sent, MSG_NOSIGNAL);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        watch_socket(s, c, EPOLLOUT);
        return false;
    }
    if (n >= 0)
        reply->sent += (size_t)n;
    if (n >= 0 && reply->sent < reply->n)
        return true;
    if (n < 0 || !c->keep_alive) {
        start_leaving(s, c);
        return false;
    }
    http_next(&c->input);
    start_reading(s, c);
    return true;
}

/* Runs a connection until it has to wait. Requests are served one by one. */
static void run(struct server *s, struct connection *c)
{
    bool moved = true;

    while (moved) {
        if (c->state == READING)
            moved = read_request(s, c);
        else if (c->state == WRITING)
            moved = write_reply(s, c);
        else
            moved = false;
    }
}

/* Handles the decision: the fd of the acquisition is readable. */
static void on_grant(struct server *s, void *owner)
{
    struct connection *c = owner;
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int result;

    if (c->state != WAITING)
        return; /* the client left in this round of events */
    result = weir_acquisition_result(c->acquisition);
    if (result == 0) {
        start_work(s, c, c->job.asked_ns > s->last_look_ns ? c->job.asked_ns : s->last_look_ns);
        return;
    }
    weir_acquisition_refusal(c->acquisition, &refusal);
    refuse(s, c, result, &refusal);
    run(s, c);
}

static void on_socket(struct server *s, void *owner)
{
    struct connection *c = owner;
    struct http_input *in = &c->input;
    ssize_t n;

    if (c->state == CLOSED)
        return;
    if (c->state == WAITING || c->state == WORKING) {
        hang_up(s, c); /* only the client leaving is watched for */
        return;
    }
    if (c->state == LEAVING)
        in->n = 0; /* its input is dropped */
    if (c->state != WRITING) {
        n = recv(c->fd, in->bytes + in->n, sizeof(in->bytes) - in->n, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            hang_up(s, c);
            return;
        }
        in->n += (size_t)n;
    }
    run(s, c);
}

static int add_connection(struct server *s, int fd)
{
    struct connection *c = calloc(1, sizeof(*c));
    int e;

    if (!c)
        return -ENOMEM;
    c->fd = fd;
    c->socket = (struct watch){on_socket, c};
    c->grant = (struct watch){on_grant, c};
    c->events = EPOLLIN;
    e = watch_fd(s, EPOLL_CTL_ADD, fd, &c->socket, c->events);
    if (e < 0) {
        free(c);
        return e;
    }
    http_input_init(&c->input);
    c->next = s->open;
    if (c->next)
        c->next->previous = c;
    s->open = c;
    s->connections_n++;
    start_reading(s, c);
    return 0;
}

static void on_client(struct server *s, void *owner)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)owner;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return;
    if (fd < 0) {
        accept_stop(s); /* out of descriptors or memory: try again in a moment */
        s->accept_again_ns = now_ns() + ACCEPT_PAUSE_NS;
        return;
    }
    if (add_connection(s, fd) < 0)
        close(fd);
    if (s->connections_n == s->service.connections_max)
        accept_stop(s); /* clients wait in the backlog */
}

/* ---- server ---- */

static void on_timer(struct server *s, void *owner)
{
    uint64_t now = now_ns(), expirations;
    struct connection *c;

    (void)owner;
    if (read(s->timer, &expirations, sizeof(expirations)) < 0)
        return;
    s->armed_ns = 0;
    trace_move(&s->service.trace, s->service.weir);
    while ((c = s->work.first) && c->deadline_ns <= now) {
        finish_work(s, c);
        run(s, c);
    }
    while ((c = s->idle.first) && c->deadline_ns <= now)
        hang_up(s, c);
    if (s->accept_again_ns != 0 && s->accept_again_ns <= now)
        accept_start(s);
}

/* Stops accepting, drops clients that read or wait, and finishes the work that has begun. */
static void on_notice(struct server *s, void *owner)
{
    struct connection *c, *next;

    (void)owner;
    if (!service_heed(&s->service))
        return;
    s->stopping = true;
    s->accept_again_ns = 0;
    accept_stop(s);
    watch_fd(s, EPOLL_CTL_DEL, s->service.notices.fd, NULL, 0);
    for (c = s->open; c; c = next) {
        next = c->next;
        c->keep_alive = false;
        if (c->state != WORKING && c->state != WRITING)
            hang_up(s, c);
    }
}

static void free_closed(struct server *s)
{
    struct connection *c;

    while ((c = s->closed)) {
        s->closed = c->later;
        free(c);
    }
}

static int serve(struct server *s)
{
    struct epoll_event events[EVENTS_MAX];

    while (!s->stopping || s->connections_n > 0) {
        uint64_t look_ns = now_ns();
        int n;

        arm_timer(s);
        n = epoll_wait(s->epoll, events, EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < n; i++) {
            struct watch *watch = events[i].data.ptr;

            watch->ready(s, watch->owner);
        }
        if (n < EVENTS_MAX) /* otherwise events may be left for the next look */
            s->last_look_ns = look_ns;
        free_closed(s);
        if (s->service.log)
            fflush(s->service.log);
    }
    return 0;
}

static int open_server(struct server *s)
{
    s->listener = service_listen(&s->service, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (s->listener < 0)
        return -EADDRINUSE;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    s->on_client = (struct watch){on_client, NULL};
    s->on_notice = (struct watch){on_notice, NULL};
    s->on_timer = (struct watch){on_timer, NULL};
    if (s->epoll < 0 || s->timer < 0)
        return -errno;
    accept_start(s);
    if (watch_fd(s, EPOLL_CTL_ADD, s->service.notices.fd, &s->on_notice, EPOLLIN) < 0 ||
        watch_fd(s, EPOLL_CTL_ADD, s->timer, &s->on_timer, EPOLLIN) < 0 || !s->accepting)
        return -errno;
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    struct server s = {.epoll = -1, .listener = -1, .timer = -1};
    int e, status = service_open(&s.service, argc, argv);

    if (status == 0) {
        e = open_server(&s);
        if (e == 0)
            e = serve(&s);
        if (e < 0) {
            fprintf(stderr, "%s: %s\n", argv[0], strerror(-e));
            status = EX_OSERR;
        }
    }
    close_fd(s.timer);
    close_fd(s.epoll);
    close_fd(s.listener);
    service_close(&s.service);
    return status;
}

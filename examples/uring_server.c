/* SPDX-License-Identifier: MIT */
/*
 * An HTTP server that admits requests by weir, in a loop over io_uring: one thread; every wait is
 * an operation on the ring. A request that cannot be served yet waits; a poll of its acquisition's
 * file descriptor completes when the request may start.
 *
 *     RECV ──► weir_submit ──► TIMEOUT (the work) ──► weir_release ──► SEND ──► RECV …
 *                 │   └─► POLL_ADD of its fd ──┘                        ▲
 *                 └─► refused: 429 with Retry-After ────────────────────┘
 *
 * Two rules keep this sound:
 *   - A connection is freed when its last operation has completed, not before: the kernel still
 *     holds its address.
 *   - An acquisition is released only after the poll of its fd has completed, because releasing
 *     closes the fd. To give up waiting, weir_cancel: the request leaves the wait queue at once and
 *     the fd becomes readable, so the poll completes by itself.
 *
 * A client that closes its side of the connection counts as gone: its acquisition is released at
 * once, waiting or held. The work itself is a timer here.
 */
#include "service.h"
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#define RING_ENTRIES 128
/* The kernel delivers at least this many completions at a time, if there are as many. */
#define LOOK_FULL 16
/* Pause before the next accept after the machine ran out of a resource. */
#define ACCEPT_PAUSE_NS ((uint64_t)100000000)

struct server;
struct connection;

/* An operation on the ring, and the handler of its completion. */
struct operation {
    void (*done)(struct server *server, struct connection *connection, int result);
    struct connection *connection; /* NULL: the server's */
};

enum state { READING, WAITING, WORKING, WRITING, LEAVING, CLOSING };

struct connection {
    int fd;
    enum state state;
    unsigned pending; /* operations on the ring */
    bool keep_alive;
    struct operation hung_up, received, sent, timed_out, granted, worked, removed;
    uint64_t deadline_ns;          /* of the client, to send or take data */
    struct __kernel_timespec left; /* time until the deadline */
    struct __kernel_timespec work_time;
    weir_acquisition *acquisition; /* while waiting and working */
    struct job job;

    struct connection *previous, *next; /* list of open connections */
    struct http_input input;
    struct http_reply reply;
};

struct server {
    struct service service;
    struct io_uring ring;
    int listener;
    struct operation accepted, paused, noticed;
    struct __kernel_timespec pause;
    unsigned pending; /* operations of the server itself */
    bool accepting;   /* one of them accepts, or pauses before that */
    bool stopping;
    uint64_t last_look_ns;   /* events reported now are later than this */
    struct connection *open; /* all connections */
    unsigned connections_n;
};

/* ---- the ring ---- */

static struct __kernel_timespec timespec_of(uint64_t ns)
{
    return (struct __kernel_timespec){.tv_sec = (long long)(ns / 1000000000),
                                      .tv_nsec = (long long)(ns % 1000000000)};
}

/* Makes room for `n` operations of a chain, which a submission must not cut. */
static void ring_room(struct server *s, unsigned n)
{
    while (io_uring_sq_space_left(&s->ring) < n) {
        int e = io_uring_submit(&s->ring);

        if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY) {
            fprintf(stderr, "%s: io_uring: %s\n", s->service.name, strerror(-e));
            exit(EX_OSERR);
        }
    }
}

static struct io_uring_sqe *ring_get(struct server *s)
{
    ring_room(s, 1);
    return io_uring_get_sqe(&s->ring);
}

/* Registers the completion of a prepared SQE. Call it last. */
static void ring_expect(struct server *s, struct io_uring_sqe *sqe, struct operation *operation)
{
    io_uring_sqe_set_data(sqe, operation);
    if (operation->connection)
        operation->connection->pending++;
    else
        s->pending++;
}

/* Links the deadline of the client to the operation before this, which ends canceled after it. The
 * timeout is relative: in a time namespace kernels before 7.1 take an absolute time for one of the
 * machine's own clock. */
static void ring_deadline(struct server *s, struct connection *c)
{
    struct io_uring_sqe *sqe = ring_get(s);
    uint64_t now = now_ns();

    c->left = timespec_of(c->deadline_ns > now ? c->deadline_ns - now : 0);
    io_uring_prep_link_timeout(sqe, &c->left, 0);
    ring_expect(s, sqe, &c->timed_out);
}

static void ring_receive(struct server *s, struct connection *c)
{
    struct http_input *in = &c->input;
    struct io_uring_sqe *sqe;

    ring_room(s, 2);
    sqe = ring_get(s);
    io_uring_prep_recv(sqe, c->fd, in->bytes + in->n, sizeof(in->bytes) - in->n, 0);
    sqe->flags |= IOSQE_IO_LINK;
    ring_expect(s, sqe, &c->received);
    ring_deadline(s, c);
}

static void ring_send(struct server *s, struct connection *c)
{
    struct http_reply *reply = &c->reply;
    struct io_uring_sqe *sqe;

    ring_room(s, 2);
    sqe = ring_get(s);
    io_uring_prep_send(sqe, c->fd, reply->bytes + reply->sent, reply->n - reply->sent,
                       MSG_NOSIGNAL);
    sqe->flags |= IOSQE_IO_LINK;
    ring_expect(s, sqe, &c->sent);
    ring_deadline(s, c);
}

static void ring_poll(struct server *s, int fd, unsigned events, struct operation *operation)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_poll_add(sqe, fd, events);
    ring_expect(s, sqe, operation);
}

static void ring_timer(struct server *s, struct __kernel_timespec *after,
                       struct operation *operation)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_timeout(sqe, after, 0, 0);
    ring_expect(s, sqe, operation);
}

static void ring_timer_remove(struct server *s, struct operation *timer,
                              struct operation *operation)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_timeout_remove(sqe, (uint64_t)(uintptr_t)timer, 0);
    ring_expect(s, sqe, operation);
}

/* Starts an accept: one at a time, and none while the server is full. Clients wait in the backlog.
 */
static void ring_accept(struct server *s)
{
    struct io_uring_sqe *sqe;

    if (s->accepting || s->stopping || s->connections_n == s->service.connections_max)
        return;
    s->accepting = true;
    sqe = ring_get(s);
    io_uring_prep_accept(sqe, s->listener, NULL, NULL, SOCK_CLOEXEC);
    ring_expect(s, sqe, &s->accepted);
}

/* ---- requests ---- */

/* Releases the acquisition of the connection, waiting or held; `used` is charged to the client. */
static void release(struct server *s, struct connection *c, const char *event, uint64_t used)
{
    uint64_t since_ns = now_ns();
    char set[256];

    snprintf(set, sizeof(set), "%s", weir_acquisition_set(c->acquisition));
    if (c->job.tokens > 0)
        weir_update(c->acquisition, "tokens", used);
    weir_release(&c->acquisition);
    service_log(&s->service, event, &c->job, set, used, since_ns);
}

/*
 * Begins the end of a connection. The shutdown completes the operations on the socket, weir_cancel
 * the poll of the acquisition; the last completion frees the connection.
 */
static void hang_up(struct server *s, struct connection *c)
{
    if (c->state == CLOSING)
        return;
    if (c->state == WAITING)
        weir_cancel(c->acquisition); /* on_granted releases it */
    if (c->state == WORKING) {
        release(s, c, "dropped", c->job.tokens);
        ring_timer_remove(s, &c->worked, &c->removed);
    }
    c->state = CLOSING;
    shutdown(c->fd, SHUT_RDWR);
}

static void start_reading(struct server *s, struct connection *c)
{
    c->state = READING;
    c->deadline_ns = now_ns() + s->service.idle_ns;
}

static void start_writing(struct server *s, struct connection *c)
{
    c->state = WRITING;
    c->deadline_ns = now_ns() + s->service.idle_ns;
    ring_send(s, c);
}

/* Starts the work of a granted request: the limits are held from here until release(). */
static void start_work(struct server *s, struct connection *c, uint64_t granted_not_before_ns)
{
    c->state = WORKING;
    service_log(&s->service, "started", &c->job, weir_acquisition_set(c->acquisition),
                c->job.tokens, granted_not_before_ns);
    c->work_time = timespec_of(c->job.work_ns);
    ring_timer(s, &c->work_time, &c->worked);
}

static void on_worked(struct server *s, struct connection *c, int result)
{
    (void)result; /* -ETIME, or removed by hang_up */
    if (c->state != WORKING)
        return;
    answer_done(&c->reply, &s->service, &c->job, c->acquisition, c->keep_alive);
    release(s, c, "finished", c->job.used);
    start_writing(s, c);
}

static void refuse(struct server *s, struct connection *c, int result,
                   const struct weir_refusal *refusal)
{
    service_log(&s->service, "refused", &c->job, refusal->set, c->job.tokens, c->job.asked_ns);
    answer_refused(&c->reply, &s->service, result, refusal, c->keep_alive);
    weir_release(&c->acquisition);
    start_writing(s, c);
}

/* Handles the decision: the fd of the acquisition was readable. */
static void on_granted(struct server *s, struct connection *c, int result)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};

    if (c->state == CLOSING) {
        release(s, c, "left", 0);
        return;
    }
    result = result < 0 ? result : weir_acquisition_result(c->acquisition);
    if (result == 0) {
        start_work(s, c, c->job.asked_ns > s->last_look_ns ? c->job.asked_ns : s->last_look_ns);
        return;
    }
    weir_acquisition_refusal(c->acquisition, &refusal);
    refuse(s, c, result, &refusal);
}

/* Waits for the decision. timeout and max_wait of the set bound the wait. */
static void start_waiting(struct server *s, struct connection *c)
{
    int fd = weir_acquisition_fd(c->acquisition);

    if (fd < 0) {
        refuse(s, c, fd, &(struct weir_refusal){.retry_after_ns = WEIR_FOREVER});
        return;
    }
    c->state = WAITING;
    service_log(&s->service, "waiting", &c->job, weir_acquisition_set(c->acquisition),
                c->job.tokens, c->job.asked_ns);
    ring_poll(s, fd, POLLIN, &c->granted);
}

/* Submits the request. Calls and resources of the set are included by default, one of each. */
static void ask(struct server *s, struct connection *c)
{
    const struct weir_amount tokens = {"tokens", c->job.tokens};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &tokens, .amounts_n = 1};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int e = weir_submit(s->service.pool, &request, &c->acquisition, &refusal);

    if (e < 0)
        refuse(s, c, e, &refusal);
    else if (e == 0)
        start_work(s, c, c->job.asked_ns);
    else
        start_waiting(s, c);
}

/* ---- connections ---- */

/* Acts on a complete request, or receives more of it. */
static void read_request(struct server *s, struct connection *c)
{
    int status = http_parse(&c->input);

    if (status == HTTP_INCOMPLETE) {
        ring_receive(s, c);
        return;
    }
    if (status == HTTP_REQUEST_READY)
        status = job_read(&s->service, &c->job, &c->input);
    c->keep_alive = status == 0 && http_keep_alive(&c->input) && !s->stopping;
    if (status != 0) {
        answer_status(&c->reply, status);
        start_writing(s, c);
    } else if (http_path_is(&c->input, "/stats")) {
        answer_stats(&c->reply, &s->service, c->keep_alive);
        start_writing(s, c);
    } else {
        ask(s, c);
    }
}

static void on_received(struct server *s, struct connection *c, int result)
{
    if (result <= 0 || c->state == CLOSING) {
        hang_up(s, c);
    } else if (c->state == LEAVING) {
        ring_receive(s, c); /* its input is dropped */
    } else {
        c->input.n += (size_t)result;
        read_request(s, c);
    }
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
    c->input.n = 0;
    ring_receive(s, c);
}

static void on_sent(struct server *s, struct connection *c, int result)
{
    if (result < 0 || c->state == CLOSING) {
        hang_up(s, c);
        return;
    }
    c->reply.sent += (size_t)result;
    if (c->reply.sent < c->reply.n) {
        ring_send(s, c);
    } else if (!c->keep_alive) {
        start_leaving(s, c);
    } else {
        http_next(&c->input);
        start_reading(s, c);
        read_request(s, c); /* the client may have sent it already */
    }
}

static void on_hung_up(struct server *s, struct connection *c, int result)
{
    (void)result;
    hang_up(s, c);
}

static void on_nothing(struct server *s, struct connection *c, int result)
{
    (void)s, (void)c, (void)result; /* the canceled operation completes by itself */
}

static void add_connection(struct server *s, int fd)
{
    struct connection *c = calloc(1, sizeof(*c));

    if (!c) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->hung_up = (struct operation){on_hung_up, c};
    c->received = (struct operation){on_received, c};
    c->sent = (struct operation){on_sent, c};
    c->timed_out = (struct operation){on_nothing, c};
    c->granted = (struct operation){on_granted, c};
    c->worked = (struct operation){on_worked, c};
    c->removed = (struct operation){on_nothing, c};
    http_input_init(&c->input);
    c->next = s->open;
    if (c->next)
        c->next->previous = c;
    s->open = c;
    s->connections_n++;
    ring_poll(s, fd, POLLRDHUP, &c->hung_up); /* for as long as the connection lives */
    start_reading(s, c);
    ring_receive(s, c);
}

static void free_connection(struct server *s, struct connection *c)
{
    *(c->previous ? &c->previous->next : &s->open) = c->next;
    if (c->next)
        c->next->previous = c->previous;
    close(c->fd);
    free(c);
    s->connections_n--;
    ring_accept(s);
}

/* ---- server ---- */

static void on_accepted(struct server *s, struct connection *none, int result)
{
    (void)none;
    s->accepting = false;
    if (result >= 0 && s->stopping) {
        close(result);
    } else if (result >= 0) {
        add_connection(s, result);
    } else if (result != -ECONNABORTED && result != -EINTR && !s->stopping) {
        s->accepting = true; /* out of descriptors or memory: try again in a moment */
        s->pause = timespec_of(ACCEPT_PAUSE_NS);
        ring_timer(s, &s->pause, &s->paused);
    }
    ring_accept(s);
}

static void on_paused(struct server *s, struct connection *none, int result)
{
    (void)none, (void)result;
    s->accepting = false;
    ring_accept(s);
}

/* Stops accepting, drops clients that read or wait, and finishes the work that has begun. */
static void on_noticed(struct server *s, struct connection *none, int result)
{
    (void)none, (void)result;
    if (!service_heed(&s->service)) {
        ring_poll(s, s->service.notices.fd, POLLIN, &s->noticed);
        return;
    }
    s->stopping = true;
    shutdown(s->listener, SHUT_RDWR); /* completes the accept */
    for (struct connection *c = s->open; c; c = c->next) {
        c->keep_alive = false;
        if (c->state != WORKING && c->state != WRITING)
            hang_up(s, c);
    }
}

static void complete(struct server *s, struct operation *operation, int result)
{
    struct connection *c = operation->connection;

    if (c)
        c->pending--;
    else
        s->pending--;
    operation->done(s, c, result);
    if (c && c->state == CLOSING && c->pending == 0)
        free_connection(s, c);
}

/* Handles completions. Returns their number. */
static unsigned reap(struct server *s)
{
    struct io_uring_cqe *cqes[RING_ENTRIES];
    struct operation *operations[RING_ENTRIES];
    int results[RING_ENTRIES];
    unsigned n = io_uring_peek_batch_cqe(&s->ring, cqes, RING_ENTRIES);

    for (unsigned i = 0; i < n; i++) {
        operations[i] = io_uring_cqe_get_data(cqes[i]);
        results[i] = cqes[i]->res;
    }
    io_uring_cq_advance(&s->ring, n); /* first: the handlers may submit, which needs room here */
    for (unsigned i = 0; i < n; i++)
        complete(s, operations[i], results[i]);
    return n;
}

static int serve(struct server *s)
{
    ring_poll(s, s->service.notices.fd, POLLIN, &s->noticed);
    ring_accept(s);
    while (!s->stopping || s->connections_n > 0 || s->pending > 0) {
        uint64_t look_ns = now_ns();
        int e = io_uring_submit_and_wait(&s->ring, 1);

        if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY)
            return e;
        if (reap(s) < LOOK_FULL) /* otherwise completions may be left for the next look */
            s->last_look_ns = look_ns;
        if (s->service.log)
            fflush(s->service.log);
    }
    return 0;
}

/* Checks that the kernel has the operations needed, by probing, never by version. */
static int probe(struct server *s)
{
    static const struct {
        int code;
        const char *name;
    } needed[] = {
        {IORING_OP_ACCEPT, "ACCEPT"},
        {IORING_OP_RECV, "RECV"},
        {IORING_OP_SEND, "SEND"},
        {IORING_OP_POLL_ADD, "POLL_ADD"},
        {IORING_OP_TIMEOUT, "TIMEOUT"},
        {IORING_OP_TIMEOUT_REMOVE, "TIMEOUT_REMOVE"},
        {IORING_OP_LINK_TIMEOUT, "LINK_TIMEOUT"},
    };
    struct io_uring_probe *probe = io_uring_get_probe_ring(&s->ring);
    int e = probe ? 0 : -ENOSYS;

    for (size_t i = 0; e == 0 && i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!io_uring_opcode_supported(probe, needed[i].code)) {
            fprintf(stderr, "%s: this kernel's io_uring has no %s\n", s->service.name,
                    needed[i].name);
            e = -EOPNOTSUPP;
        }
    io_uring_free_probe(probe);
    return e;
}

/* Opens the best ring available: completions run only on request, if the kernel can do that. */
static int open_ring(struct server *s)
{
    int e = io_uring_queue_init(RING_ENTRIES, &s->ring,
                                IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

    if (e == -EINVAL)
        e = io_uring_queue_init(RING_ENTRIES, &s->ring, 0);
    if (e < 0)
        return e;
    e = probe(s);
    if (e < 0)
        io_uring_queue_exit(&s->ring);
    return e;
}

static int run(struct server *s)
{
    int e = open_ring(s);

    if (e < 0) {
        fprintf(stderr, "%s: io_uring cannot be used here (%s); epoll_server does the same\n",
                s->service.name, strerror(-e));
        return EX_UNAVAILABLE;
    }
    s->accepted = (struct operation){on_accepted, NULL};
    s->paused = (struct operation){on_paused, NULL};
    s->noticed = (struct operation){on_noticed, NULL};
    s->listener = service_listen(&s->service, SOCK_CLOEXEC);
    e = s->listener < 0 ? -EADDRINUSE : serve(s);
    if (e < 0)
        fprintf(stderr, "%s: %s\n", s->service.name, strerror(-e));
    io_uring_queue_exit(&s->ring);
    if (s->listener >= 0)
        close(s->listener);
    return e < 0 ? EX_OSERR : 0;
}

int main(int argc, char **argv)
{
    static struct server s;
    int status = service_open(&s.service, argc, argv);

    if (status == 0 && s.service.trace_file) {
        fprintf(stderr, "%s: only epoll_server keeps a trace\n", argv[0]);
        status = EX_USAGE;
    }
    if (status == 0)
        status = run(&s);
    service_close(&s.service);
    return status;
}

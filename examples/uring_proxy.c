/* SPDX-License-Identifier: MIT */
/*
 * A TCP proxy that limits connections and bytes by weir, in a loop over io_uring: one thread, and
 * all data is moved by operations on the ring. All requests to weir are in one completion queue,
 * which the ring watches by a single poll.
 *
 *     ACCEPT ──► (queue) ──► CONNECT ──► UP:   RECV ──► (queue) ──► SEND ──► RECV …
 *                a connection            DOWN: RECV ──► (queue) ──► SEND ──► RECV …
 *                                                       bytes
 *
 * Each direction has one buffer and one operation at a time. While data cannot be sent, because
 * weir or the other side has no room, no more is read, and so the sender has to wait. The end of
 * one direction is passed on (SHUTDOWN); the relay ends with both, or with the first error, and
 * then resets the client's connection, so that the client does not take half of an answer for the
 * whole.
 *
 * Three rules keep this sound:
 *   - A relay is freed when the last of its operations and requests has completed, not before: the
 *     kernel and the completion queue still hold its address. To give up, cancel them all, and
 *     wait.
 *   - The connection goes back to weir after the socket is closed, so that an upstream never sees
 *     more of them than it was promised.
 *   - A relay that holds a connection waits for bytes in another wait queue than the waiters for a
 *     connection; see proxy.yaml.
 */
#include "uring_proxy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#define RING_ENTRIES 256
#define REAP_MAX     64
/* Pause before the next accept after the machine ran out of a resource. */
#define ACCEPT_PAUSE_NS ((uint64_t)100000000)

/* ---- the ring ---- */

struct __kernel_timespec timespec_of(uint64_t ns)
{
    return (struct __kernel_timespec){.tv_sec = (long long)(ns / 1000000000),
                                      .tv_nsec = (long long)(ns % 1000000000)};
}

void ring_room(struct server *s, unsigned n)
{
    while (io_uring_sq_space_left(&s->ring) < n) {
        int e = io_uring_submit(&s->ring);

        if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY) {
            fprintf(stderr, "%s: io_uring: %s\n", s->proxy.name, strerror(-e));
            exit(EX_OSERR);
        }
    }
}

struct io_uring_sqe *ring_get(struct server *s)
{
    ring_room(s, 1);
    return io_uring_get_sqe(&s->ring);
}

void ring_expect(struct io_uring_sqe *sqe, struct operation *operation)
{
    io_uring_sqe_set_data(sqe, operation);
    operation->on_ring = true;
    if (operation->relay)
        operation->relay->pending++;
}

void ring_timer(struct server *s, struct __kernel_timespec *after, struct operation *operation)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_timeout(sqe, after, 0, 0);
    ring_expect(sqe, operation);
}

void ring_poll(struct server *s, int fd, unsigned events, struct operation *operation)
{
    struct io_uring_sqe *sqe = ring_get(s);

    io_uring_prep_poll_add(sqe, fd, events);
    ring_expect(sqe, operation);
}

void ring_close(struct server *s, int *fd, struct operation *operation)
{
    struct io_uring_sqe *sqe;

    if (*fd < 0)
        return;
    sqe = ring_get(s);
    io_uring_prep_close(sqe, *fd);
    ring_expect(sqe, operation);
    *fd = -1;
}

void ring_accept(struct server *s)
{
    struct io_uring_sqe *sqe;

    if (s->accepting || s->stopping || s->proxy.relays_n == s->proxy.relays_max)
        return;
    s->accepting = true;
    sqe = ring_get(s);
    io_uring_prep_accept(sqe, s->listener, NULL, NULL, SOCK_CLOEXEC);
    ring_expect(sqe, &s->accepted);
}

/* Polls the completion queue on the ring, one completion after the other. */
static void ring_queue(struct server *s)
{
    ring_room(s, 1);
    if (weir_uring_prep_queue(&s->uring, &s->ring, s->proxy.queue,
                              (uint64_t)(uintptr_t)&s->reapable) == 0)
        s->reapable.on_ring = true;
}

/* ---- the completion queue ---- */

int queue_expect(struct operation *operation, int result)
{
    operation->in_queue = result == 0;
    operation->relay->pending += operation->in_queue;
    return result;
}

/* Cancels an operation; the completion of the cancel itself is ignored. */
void cancel(struct server *s, struct operation *operation)
{
    struct io_uring_sqe *sqe;

    if (operation->in_queue)
        weir_queue_cancel(s->proxy.queue, (uintptr_t)operation);
    if (!operation->on_ring)
        return;
    sqe = ring_get(s);
    io_uring_prep_cancel(sqe, operation, 0);
    io_uring_sqe_set_data(sqe, NULL);
}

/* ---- server ---- */

static void on_accepted(struct server *s, struct operation *operation, int result)
{
    (void)operation;
    s->accepting = false;
    if (result >= 0 && s->stopping) {
        close(result);
    } else if (result >= 0) {
        add_relay(s, result);
    } else if (result != -ECONNABORTED && result != -EINTR && !s->stopping) {
        s->accepting = true; /* out of descriptors or memory: try again in a moment */
        s->pause = timespec_of(ACCEPT_PAUSE_NS);
        ring_timer(s, &s->pause, &s->paused);
    }
    ring_accept(s);
}

static void on_paused(struct server *s, struct operation *operation, int result)
{
    (void)operation, (void)result;
    s->accepting = false;
    ring_accept(s);
}

static void on_grace_over(struct server *s, struct operation *operation, int result)
{
    (void)operation, (void)result;
    end_relays(s, OPEN);
}

/* Stops accepting, and ends the relays without an upstream; with a second signal, all of them. */
static void stop(struct server *s)
{
    if (s->stopping) {
        end_relays(s, OPEN);
        return;
    }
    s->stopping = true;
    cancel(s, &s->accepted);
    cancel(s, &s->paused);
    end_relays(s, CONNECTING);
    s->grace_end = timespec_of(s->proxy.grace_ns);
    ring_timer(s, &s->grace_end, &s->grace);
}

static void on_signaled(struct server *s, struct operation *operation, int result)
{
    struct signalfd_siginfo signal;

    (void)result;
    while (read(s->signals, &signal, sizeof(signal)) == sizeof(signal)) {
        if (signal.ssi_signo == SIGUSR1)
            proxy_print_status(&s->proxy);
        else
            stop(s);
    }
    ring_poll(s, s->signals, POLLIN, operation);
}

static void complete(struct server *s, struct operation *operation, int result)
{
    struct relay *r = operation->relay;

    if (r)
        r->pending--;
    operation->done(s, operation, result);
    if (r && r->pending == 0)
        advance_relay(s, r);
}

/* Reaps the completion queue and calls the handlers. */
static void on_reapable(struct server *s, struct operation *operation, int result)
{
    struct weir_completion done[REAP_MAX];
    int n;

    (void)operation, (void)result;
    do {
        n = weir_queue_reap(s->proxy.queue, done, REAP_MAX);
        for (int i = 0; i < n; i++) {
            struct operation *asked = (struct operation *)(uintptr_t)done[i].user_data;

            asked->in_queue = false;
            asked->acquisition = done[i].acquisition;
            complete(s, asked, done[i].result);
        }
    } while (n == REAP_MAX);
}

/* Handles the completions of the ring. */
static void reap(struct server *s)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&s->ring, &cqe) == 0) {
        struct operation *operation = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        bool more = cqe->flags & IORING_CQE_F_MORE;

        io_uring_cqe_seen(&s->ring, cqe);
        if (!operation)
            continue;
        operation->on_ring = more;
        if (operation == &s->reapable && !more && !s->is_over)
            ring_queue(s);
        complete(s, operation, result);
    }
}

static int submit_and_reap(struct server *s)
{
    int e = io_uring_submit_and_wait(&s->ring, 1);

    if (e < 0 && e != -EINTR && e != -EAGAIN && e != -EBUSY)
        return e;
    reap(s);
    return 0;
}

/* Serves until the last relay has ended. The completion queue may be closed once the ring no longer
 * polls it. */
static int serve(struct server *s)
{
    int e = 0;

    ring_poll(s, s->signals, POLLIN, &s->signaled);
    ring_queue(s);
    ring_accept(s);
    while (e == 0 && (!s->stopping || s->relays || s->accepted.on_ring))
        e = submit_and_reap(s);
    s->is_over = true;
    cancel(s, &s->reapable);
    while (e == 0 && s->reapable.on_ring)
        e = submit_and_reap(s);
    return e;
}

/* Checks that the kernel has the operations needed, by probing, never by version. */
static int probe(struct server *s)
{
    static const struct {
        int code;
        const char *name;
    } needed[] = {
        {IORING_OP_ACCEPT, "ACCEPT"},
        {IORING_OP_CONNECT, "CONNECT"},
        {IORING_OP_RECV, "RECV"},
        {IORING_OP_SEND, "SEND"},
        {IORING_OP_SHUTDOWN, "SHUTDOWN"},
        {IORING_OP_CLOSE, "CLOSE"},
        {IORING_OP_POLL_ADD, "POLL_ADD"},
        {IORING_OP_TIMEOUT, "TIMEOUT"},
        {IORING_OP_LINK_TIMEOUT, "LINK_TIMEOUT"},
        {IORING_OP_ASYNC_CANCEL, "ASYNC_CANCEL"},
    };
    struct io_uring_probe *probe = io_uring_get_probe_ring(&s->ring);
    int e = probe ? 0 : -ENOSYS;

    for (size_t i = 0; e == 0 && i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!io_uring_opcode_supported(probe, needed[i].code)) {
            fprintf(stderr, "%s: this kernel's io_uring has no %s\n", s->proxy.name,
                    needed[i].name);
            e = -EOPNOTSUPP;
        }
    io_uring_free_probe(probe);
    return e;
}

/* Opens the best ring available: completions run only on request, if the kernel can do that. */
static int open_ring(struct server *s)
{
    int e = weir_uring_probe(&s->uring);

    if (e == 0)
        e = io_uring_queue_init(RING_ENTRIES, &s->ring,
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
        fprintf(stderr, "%s: io_uring cannot be used here (%s)\n", s->proxy.name, strerror(-e));
        return EX_UNAVAILABLE;
    }
    s->accepted = (struct operation){.done = on_accepted};
    s->paused = (struct operation){.done = on_paused};
    s->signaled = (struct operation){.done = on_signaled};
    s->reapable = (struct operation){.done = on_reapable};
    s->grace = (struct operation){.done = on_grace_over};
    s->listener = proxy_listen(&s->proxy);
    e = s->listener < 0 ? -EADDRINUSE : serve(s);
    if (e < 0)
        fprintf(stderr, "%s: %s\n", s->proxy.name, strerror(-e));
    io_uring_queue_exit(&s->ring);
    if (s->listener >= 0)
        close(s->listener);
    if (e < 0)
        return EX_OSERR;
    proxy_print_status(&s->proxy);
    return proxy_is_idle(&s->proxy) ? 0 : EX_SOFTWARE;
}

int main(int argc, char **argv)
{
    static struct server s;
    int status = proxy_open(&s.proxy, argc, argv);

    s.signals = status == 0 ? proxy_signals(&s.proxy) : -1;
    if (status == 0)
        status = s.signals >= 0 ? run(&s) : EX_OSERR;
    if (s.signals >= 0)
        close(s.signals);
    proxy_close(&s.proxy);
    return status;
}

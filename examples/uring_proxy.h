/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the two halves of the proxy share: the server (uring_proxy.c), which owns the
 * ring and everything that does not belong to one client, and the relays (relay.c).
 */
#ifndef WEIR_EXAMPLES_URING_PROXY_H
#define WEIR_EXAMPLES_URING_PROXY_H

#include "proxy.h"
#include <liburing.h>
#include <weir/uring.h>

struct server;
struct relay;

/* An operation on the ring or in the completion queue, and the handler of its completion. */
struct operation {
    void (*done)(struct server *server, struct operation *operation, int result);
    struct relay *relay;           /* NULL: the server's */
    struct stream *stream;         /* NULL: belongs to no direction */
    weir_acquisition *acquisition; /* the grant of a completion */
    bool on_ring, in_queue;
};

/* One direction of a relay. */
struct stream {
    int *from, *to; /* sockets */
    struct operation received, chunk, sent, ended;
    uint64_t *passed; /* counter of bytes sent */
    size_t n;         /* bytes in the buffer */
    size_t at;        /* of these, bytes sent */
    size_t granted;   /* bytes granted */
    size_t used;      /* of the granted bytes, bytes sent */
    bool is_over;
    char bytes[PROXY_BUFFER];
};

enum phase { WAITING, CONNECTING, OPEN, ENDING, CLOSING };

struct relay {
    enum phase phase;
    unsigned pending; /* operations on the ring and in the completion queue */
    int client, remote;
    struct upstream *upstream;
    unsigned tries;
    bool heard; /* the client has sent data */
    uint64_t moved_ns;
    struct __kernel_timespec connect_end, idle_left;
    struct operation slot; /* its acquisition is the connection */
    struct operation hung_up, connected, connect_timed_out, idle, client_closed, remote_closed;
    struct stream up, down;

    struct relay *previous, *next; /* list of all relays */
};

struct server {
    struct proxy proxy;
    struct weir_uring uring;
    struct io_uring ring;
    int listener, signals;
    struct operation accepted, paused, signaled, reapable, grace;
    struct __kernel_timespec pause, grace_end;
    bool accepting; /* accepts, or pauses before that */
    bool stopping;
    bool is_over;
    struct relay *relays;
};

/* ---- uring_proxy.c: the ring and the completion queue ---- */

struct __kernel_timespec timespec_of(uint64_t ns);

/* Makes room for `n` operations of a chain, which a submission must not cut. */
void ring_room(struct server *s, unsigned n);
struct io_uring_sqe *ring_get(struct server *s);
/* Registers the completion of a prepared SQE. Call it last. */
void ring_expect(struct io_uring_sqe *sqe, struct operation *operation);

/* Starts a relative timer. In a time namespace kernels before 7.1 take an absolute time for one of
 * the machine's own clock. */
void ring_timer(struct server *s, struct __kernel_timespec *after, struct operation *operation);
void ring_poll(struct server *s, int fd, unsigned events, struct operation *operation);
/* Closes a socket. Sets `*fd` to -1, because the number may come to mean another socket. */
void ring_close(struct server *s, int *fd, struct operation *operation);
/* Starts an accept: one at a time, and none while the proxy is full. Clients wait in the backlog.
 */
void ring_accept(struct server *s);

/* Registers the completion of a submission, if `result` says that there will be one. Returns
 * `result`. */
int queue_expect(struct operation *operation, int result);
/* Cancels an operation that is under way; it still completes. */
void cancel(struct server *s, struct operation *operation);

/* ---- relay.c ---- */

void add_relay(struct server *s, int client);
/* Ends all relays that have not passed this phase. */
void end_relays(struct server *s, enum phase phase);
/* Ends a relay that has no operation under way any more. */
void advance_relay(struct server *s, struct relay *r);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of the proxy share: the server (uring_proxy.c), which owns the ring and what
 * is not of one client, and the relays (relay.c).
 */
#ifndef WEIR_EXAMPLES_URING_PROXY_H
#define WEIR_EXAMPLES_URING_PROXY_H

#include "proxy.h"
#include <liburing.h>
#include <weir/uring.h>

struct server;
struct relay;

/* Something on the ring or in the queue, and what to do when it completes. */
struct operation {
    void (*done)(struct server *server, struct operation *operation, int result);
    struct relay *relay;           /* NULL: the server's own */
    struct stream *stream;         /* NULL: of no direction */
    weir_acquisition *acquisition; /* in the queue: what was granted */
    bool on_ring, in_queue;
};

/* One direction. */
struct stream {
    int *from, *to; /* sockets */
    struct operation received, chunk, sent, ended;
    uint64_t *passed; /* counts bytes */
    size_t n;         /* in the buffer */
    size_t at;        /* so many of them were sent */
    size_t granted;   /* and so many more may be */
    size_t used;      /* of these were sent */
    bool is_over;
    char bytes[PROXY_BUFFER];
};

enum phase { WAITING, CONNECTING, OPEN, ENDING, CLOSING };

struct relay {
    enum phase phase;
    unsigned pending; /* operations on the ring and in the queue */
    int client, remote;
    struct upstream *upstream;
    unsigned tries;
    bool heard; /* the client has said something */
    uint64_t moved_ns;
    struct __kernel_timespec connect_end, idle_left;
    struct operation slot; /* the acquisition is the connection */
    struct operation hung_up, connected, connect_timed_out, idle, client_closed, remote_closed;
    struct stream up, down;

    struct relay *previous, *next; /* of all that there are */
};

struct server {
    struct proxy proxy;
    struct weir_uring uring;
    struct io_uring ring;
    int listener, signals;
    struct operation accepted, paused, signaled, reapable, grace;
    struct __kernel_timespec pause, grace_end;
    bool accepting; /* or pausing before that */
    bool stopping;
    bool is_over;
    struct relay *relays;
};

/* ---- uring_proxy.c: the ring and the queue ---- */

struct __kernel_timespec timespec_of(uint64_t ns);

/* Makes room for `n` operations that belong together: a chain must not be cut by a submission. */
void ring_room(struct server *s, unsigned n);
struct io_uring_sqe *ring_get(struct server *s);
/* The last thing to do to a prepared SQE: from here on its completion is waited for. */
void ring_expect(struct io_uring_sqe *sqe, struct operation *operation);

/* After a time, not at an instant: in a time namespace kernels before 7.1 take an instant for that
 * of the machine's own clock. */
void ring_timer(struct server *s, struct __kernel_timespec *after, struct operation *operation);
void ring_poll(struct server *s, int fd, unsigned events, struct operation *operation);
/* From here on the number may be that of another socket, so `*fd` becomes -1. */
void ring_close(struct server *s, int *fd, struct operation *operation);
/* One accept at a time, and none while the proxy is full: the others wait in the backlog. */
void ring_accept(struct server *s);

/* After a question was put to the queue: `result` is what came of that, and is returned. */
int queue_expect(struct operation *operation, int result);
/* Cancels an operation, wherever it is, if it is under way: it completes all the same. */
void cancel(struct server *s, struct operation *operation);

/* ---- relay.c ---- */

void add_relay(struct server *s, int client);
/* Ends all relays that are not beyond this phase. */
void end_relays(struct server *s, enum phase phase);
/* Takes a relay that has nothing under way any more to its end. */
void advance_relay(struct server *s, struct relay *r);

#endif

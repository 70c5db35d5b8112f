/* SPDX-License-Identifier: MIT */
/*
 * The part of the proxy that moves no data: the command line, the upstreams of the configuration,
 * the requests to weir, and the counters.
 */
#ifndef WEIR_EXAMPLES_PROXY_H
#define WEIR_EXAMPLES_PROXY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <weir/queue.h>
#include <weir/weir.h>

/* Buffer of a stream, bytes: the most that is read before it is sent on. */
#define PROXY_BUFFER 16384

/* One set of the pool: connections to one address, and the limit of bytes that goes with it. */
struct upstream {
    const char *name;    /* name of the set */
    const char *address; /* as configured */
    struct sockaddr_storage socket_address;
    socklen_t socket_length;
    weir_pool *bytes;      /* limit of bytes; NULL: unlimited */
    size_t chunk_max;      /* greatest amount of one request, bytes */
    uint64_t tries_failed; /* failed attempts to connect */
};

struct proxy {
    const char *name; /* name of the program, for messages */
    const char *file;
    const char *pool_name;
    uint16_t port;
    uint64_t connect_ns, idle_ns, grace_ns;
    unsigned relays_max;

    weir *weir;
    weir_pool *pool;
    weir_queue *queue; /* completion queue of all requests */
    struct upstream *upstreams;
    size_t upstreams_n;

    unsigned relays_n;
    uint64_t accepted;
    uint64_t served;  /* relays that ended after both directions */
    uint64_t refused; /* relays refused by weir, or by each upstream tried */
    uint64_t gone;    /* clients that left before they had an upstream */
    uint64_t broken;  /* relays with a failed side, or idle for too long */
    uint64_t bytes_up, bytes_down;
};

/* Opens the proxy. Returns 0, or an exit status after a message. Call proxy_close in either case.
 */
int proxy_open(struct proxy *proxy, int argc, char **argv);
void proxy_close(struct proxy *proxy);

/* Returns a socket that listens on loopback, announced on stdout; -1 after a message. */
int proxy_listen(const struct proxy *proxy);
/* Returns a signalfd for SIGTERM, SIGINT and SIGUSR1, now blocked; -1 after a message. */
int proxy_signals(const struct proxy *proxy);

uint64_t now_ns(void);

/* Submits a request for a connection to any upstream: a completion with `user_data` follows.
 * Returns 0 or a negative errno. */
int proxy_ask_connection(struct proxy *proxy, void *user_data);
/* Submits a request for `n` bytes, at most chunk_max, to or from an upstream that limits them. */
int proxy_ask_bytes(struct proxy *proxy, const struct upstream *upstream, size_t n,
                    void *user_data);
/* Releases a grant of bytes: `used` were sent, the rest goes back. */
void proxy_release_bytes(weir_acquisition **acquisition, size_t used);

/* Returns the upstream of a granted connection. */
struct upstream *proxy_upstream(struct proxy *proxy, const weir_acquisition *granted);

/* Prints the counters, and the statistics of every set, as one line on stdout. */
void proxy_print_status(const struct proxy *proxy);
/* Returns true if no limit has units held. */
bool proxy_is_idle(const struct proxy *proxy);

#endif

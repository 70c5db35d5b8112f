/* SPDX-License-Identifier: MIT */
/*
 * The part of the proxy that moves no data: the command line, what the configuration says of the
 * upstreams, the questions put to weir, and the counters.
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

/* What a stream can hold on to: the most that is read before it is passed on. */
#define PROXY_BUFFER 16384

/* One set of the pool: connections to one address, and the limit of bytes that goes with it. */
struct upstream {
    const char *name;    /* of the set */
    const char *address; /* as configured */
    struct sockaddr_storage socket_address;
    socklen_t socket_length;
    weir_pool *bytes;      /* NULL: unlimited */
    size_t chunk_max;      /* bytes that can be asked for at once */
    uint64_t tries_failed; /* to connect */
};

struct proxy {
    const char *name; /* of the program, for messages */
    const char *file;
    const char *pool_name;
    uint16_t port;
    uint64_t connect_ns, idle_ns, grace_ns;
    unsigned relays_max;

    weir *weir;
    weir_pool *pool;
    weir_queue *queue; /* of everything that anybody waits for */
    struct upstream *upstreams;
    size_t upstreams_n;

    unsigned relays_n;
    uint64_t accepted;
    uint64_t served;  /* to the end, in both directions */
    uint64_t refused; /* by weir, or by every upstream that was tried */
    uint64_t gone;    /* the client left before it had an upstream */
    uint64_t broken;  /* one side failed under way, or nothing moved for too long */
    uint64_t bytes_up, bytes_down;
};

/* Returns 0, or says what is wrong: an exit status. proxy_close is due either way. */
int proxy_open(struct proxy *proxy, int argc, char **argv);
void proxy_close(struct proxy *proxy);

/* A socket that listens on loopback, announced on stdout; -1 after a message. */
int proxy_listen(const struct proxy *proxy);
/* A signalfd for SIGTERM, SIGINT and SIGUSR1, which no longer kill; -1 after a message. */
int proxy_signals(const struct proxy *proxy);

uint64_t now_ns(void);

/* Asks for a connection to any upstream: a completion with `user_data` follows, or negative errno.
 */
int proxy_ask_connection(struct proxy *proxy, void *user_data);
/* Asks to send `n` bytes, at most chunk_max, to or from an upstream that limits them. */
int proxy_ask_bytes(struct proxy *proxy, const struct upstream *upstream, size_t n,
                    void *user_data);
/* Gives bytes back that were granted but not sent; those that were stay used. */
void proxy_release_bytes(weir_acquisition **acquisition, size_t used);

/* Which upstream a connection was granted to. */
struct upstream *proxy_upstream(struct proxy *proxy, const weir_acquisition *granted);

/* One line on stdout: the counters, and what weir says of every set. */
void proxy_print_status(const struct proxy *proxy);
/* Whether all limits have everything back. */
bool proxy_is_idle(const struct proxy *proxy);

#endif

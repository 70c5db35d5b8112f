/* SPDX-License-Identifier: MIT */
/*
 * A link to a Redis server: a non-blocking socket with the reader of its replies.
 *
 *     redis_link_open ──► redis_link_greet ──► send and receive ──► redis_link_close
 *
 * Opening and greeting take as long as the server does. They wait by a function of the caller,
 * which may do other work meanwhile. One thread may send while another one receives.
 */
#ifndef WEIR_REDIS_LINK_H
#define WEIR_REDIS_LINK_H

#include "redis_buffer.h"
#include "redis_reply.h"
#include "redis_tls.h"
#include "redis_url.h"

#include <sys/types.h>

struct addrinfo;

#define REDIS_RUN_ID_MAX 64

/* What a server says it is. */
enum redis_mode { REDIS_MODE_ALONE, REDIS_MODE_CLUSTER, REDIS_MODE_SENTINEL };

struct redis_link {
    int fd;
    struct redis_tls *tls; /* NULL: none */
    struct redis_replies *replies;
};

/* Waits until the socket is ready for `events` (poll), or until `until_ns`. Returns 1 if it may be,
 * 0 if the time is over, or an error. */
typedef int (*redis_link_wait)(void *context, int fd, short events, uint64_t until_ns);

/* How a link is made, and why it was not. */
struct redis_link_how {
    const struct redis_url *url;
    const struct addrinfo *addresses; /* of a URL with a host */
    struct redis_tls_context *tls;    /* NULL: none */
    const char *password;             /* NULL: none */
    const char *library;              /* the functions to be loaded; NULL: none */
    size_t library_size;
    int needs_master;     /* ROLE has to say so */
    int is_large;         /* replies may be large */
    uint64_t deadline_ns; /* by CLOCK_BOOTTIME */
    redis_link_wait wait;
    void *context;
    char run_id[REDIS_RUN_ID_MAX]; /* of the server that was greeted */
    enum redis_mode mode;
    char version[32];
    char why[256];  /* what went wrong, without a password */
    char note[192]; /* what there is to say besides; empty: nothing */
};

/* Looks up the addresses of the URL's host, unless they are known and to be kept. It may block for
 * long. Returns 0; or a code, and `why`. */
int redis_link_resolve(struct redis_link_how *how, struct addrinfo **addresses, int keeps);
/* Connects. Returns the link, or NULL with *reterr a code and `why`. */
struct redis_link *redis_link_open(struct redis_link_how *how, int *reterr);
/* Logs in, if there is a password. Returns 0, or a code and `why`. */
int redis_link_log_in(struct redis_link *link, struct redis_link_how *how);
/*
 * Logs in, selects the database, reads what the server is, and loads the library if there is one.
 * Returns 0, or a code and `why`: -EACCES the user may not, -EPROTONOSUPPORT the server is too old,
 * -EAGAIN it is not ready yet, others of the connection.
 */
int redis_link_greet(struct redis_link *link, struct redis_link_how *how);
/* Sends the command in the buffer, and waits for its reply. Returns 0 if that is no error; `what`
 * it is, for messages. */
int redis_link_ask(struct redis_link *link, struct redis_link_how *how, struct redis_buffer *buffer,
                   const char *what, const struct redis_reply **ret);
void redis_link_close(struct redis_link *link);

/* Sends. Returns the bytes that were sent, -EAGAIN, or an error. */
ssize_t redis_link_send(struct redis_link *link, const char *bytes, size_t n);
/* Receives what has come, for redis_replies_next. Returns 1, -EAGAIN if there is nothing, or an
 * error: -ECONNRESET, -EPROTO. */
int redis_link_receive(struct redis_link *link);

/* Return CLOCK_BOOTTIME, and CLOCK_MONOTONIC. */
uint64_t redis_boot_ns(void);
uint64_t redis_now_ns(void);

#endif

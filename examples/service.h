/* SPDX-License-Identifier: MIT */
/*
 * What both example servers do, whatever their event loop: read the command line, open weir, turn
 * a request into a job, put an outcome into words, and keep a log of requests.
 */
#ifndef WEIR_EXAMPLES_SERVICE_H
#define WEIR_EXAMPLES_SERVICE_H

#include "http.h"
#include <stdio.h>
#include <weir/weir.h>

struct service {
    const char *name;      /* of the program, for messages */
    const char *file;      /* the configuration */
    const char *pool_name; /* the pool that requests are admitted by */
    const char *log_file;
    uint16_t port;
    uint64_t work_ns; /* how long a request is worked on, if it does not say */
    uint64_t idle_ns; /* for a client to send a whole request, or to take an answer */
    unsigned connections_max;

    weir *weir;
    weir_pool *pool;
    FILE *log; /* NULL: none */
    uint64_t jobs_n;
};

/* A request for work: what the client says about it, and when it came. */
struct job {
    uint64_t id;
    uint64_t tokens; /* asked for: X-Tokens */
    uint64_t used;   /* turn out to be used: X-Used */
    uint64_t work_ns;
    uint64_t asked_ns;
};

/* Reads options, opens weir and the log. Returns 0, or says what is wrong: an exit status. */
int service_open(struct service *service, int argc, char **argv);
void service_close(struct service *service);

/* A socket that listens on loopback, announced on stdout; -1 after a message. SOCK_* flags. */
int service_listen(const struct service *service, int flags);
/* A signalfd for SIGTERM and SIGINT, which from now on do not kill; -1 after a message. */
int service_signals(const struct service *service);

uint64_t now_ns(void);

/* Fills `job` from a request. Returns 0, or the status to refuse it with. */
int job_read(struct service *service, struct job *job, const struct http_input *in);

/* The answers: work done, or refused for the reason `result`; GET /stats; anything else. */
void answer_done(struct http_reply *reply, const struct job *job, const weir_acquisition *granted,
                 bool keep_alive);
void answer_refused(struct http_reply *reply, int result, const struct weir_refusal *refusal,
                    bool keep_alive);
void answer_stats(struct http_reply *reply, const struct service *service, bool keep_alive);
void answer_status(struct http_reply *reply, int status);

/*
 * The log of requests is an observation from outside: it knows only what the server saw of weir.
 * A line is `now event job set amount since`, times in ns of CLOCK_MONOTONIC, and means:
 *
 *   waiting   tokens asked for   the request stands in line; it asked not before `since`
 *   started   tokens asked for   it was granted, not before `since` and not after `now`
 *   finished  tokens used        it was released, not before `since` and not after `now`
 *   dropped   tokens used        the same, because the client went away
 *   left      0                  the client went away while waiting
 *   refused   tokens asked for   it was answered 429 or 503
 */
void service_log(struct service *service, const char *event, const struct job *job, const char *set,
                 uint64_t amount, uint64_t since_ns);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The common part of both example servers: reads the command line, opens weir, turns a request into
 * a job, writes responses, and keeps a log of requests.
 */
#ifndef WEIR_EXAMPLES_SERVICE_H
#define WEIR_EXAMPLES_SERVICE_H

#include "http.h"
#include "notices.h"
#include "trace.h"
#include <stdio.h>
#include <weir/weir.h>

struct service {
    const char *name;      /* name of the program, for messages */
    const char *file;      /* configuration file */
    const char *pool_name; /* pool that admits requests */
    const char *log_file;
    const char *trace_file; /* of epoll_server alone */
    uint16_t port;
    uint64_t work_ns; /* default time of work for a request */
    uint64_t idle_ns; /* limit for a client to send a request, or to take a response */
    unsigned connections_max;

    weir *weir;
    weir_pool *pool;
    struct notices notices; /* `fd` is for the loop; service_heed() reads them */
    FILE *log;              /* NULL: none */
    struct trace trace;
    uint64_t jobs_n;
};

/* A request for work: the values that the client sent, and the time of its arrival. */
struct job {
    uint64_t id;
    uint64_t tokens; /* tokens requested: X-Tokens */
    uint64_t used;   /* tokens used: X-Used */
    uint64_t work_ns;
    uint64_t asked_ns;
    uint64_t arrived_ns; /* by the clock of the trace; 0: there is none */
};

/* Reads options, opens weir and the log. Returns 0, or an exit status after a message. */
int service_open(struct service *service, int argc, char **argv);
void service_close(struct service *service);

/* Returns a socket that listens on loopback, announced on stdout; -1 after a message. `flags`:
 * SOCK_*. */
int service_listen(const struct service *service, int flags);
/* Reloads the configuration after SIGHUP, and when its file was written; what is wrong with it is
 * printed, and nothing changes. Returns true after SIGTERM and SIGINT. */
bool service_heed(struct service *service);

uint64_t now_ns(void);

/* Fills `job` from a request. Returns 0, or the status of a refusal. */
int job_read(struct service *service, struct job *job, const struct http_input *in);

/* Write the responses: work done, or refused with `result`; GET /stats; anything else. */
void answer_done(struct http_reply *reply, const struct service *service, const struct job *job,
                 const weir_acquisition *granted, bool keep_alive);
void answer_refused(struct http_reply *reply, const struct service *service, int result,
                    const struct weir_refusal *refusal, bool keep_alive);
void answer_stats(struct http_reply *reply, const struct service *service, bool keep_alive);
void answer_status(struct http_reply *reply, int status);

/*
 * Logs a request as seen from outside of weir.
 * A line is `now event job set amount since`, times in ns of CLOCK_MONOTONIC, and means:
 *
 *   waiting   tokens requested   the request waits; it was submitted not before `since`
 *   started   tokens requested   it was granted, not before `since` and not after `now`
 *   finished  tokens used        it was released, not before `since` and not after `now`
 *   dropped   tokens used        it was released in that interval, because the client went away
 *   left      0                  the client went away while waiting
 *   refused   tokens requested   the response was 429 or 503
 */
void service_log(struct service *service, const char *event, const struct job *job, const char *set,
                 uint64_t amount, uint64_t since_ns);

#endif

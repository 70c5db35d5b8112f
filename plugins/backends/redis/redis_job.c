/* SPDX-License-Identifier: MIT */
/* What may block, in threads of the host. */
#include "redis_job.h"

#include "redis_calls.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define LOOK   (SECOND / 50) /* how often a thread that waits sees whether all is to end */

static int job_is_stopped(struct redis_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    int is_stopped = connection->stopping;
    pthread_mutex_unlock(&connection->lock);
    return is_stopped;
}

/* Waits for the socket of a link that is being made. */
static int job_wait(void *context, int fd, short events, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (uint64_t now_ns; (now_ns = redis_boot_ns()) < until_ns;) {
        uint64_t left = until_ns - now_ns < LOOK ? until_ns - now_ns : LOOK;
        struct timespec wait = {0, (long)left};
        if (job_is_stopped(context))
            return -ECANCELED;
        int r = ppoll(&poll_fd, 1, &wait, NULL);
        if (r > 0 || (r < 0 && errno != EINTR))
            return r > 0 ? 1 : -errno;
    }
    return 0;
}

static void job_main(void *of)
{
    struct redis_job *job = of;
    struct redis_connection *connection = job->server->connection;
    int r = job->main(job);
    pthread_mutex_lock(&connection->lock);
    job->result = r;
    job->state = REDIS_JOB_DONE;
    redis_calls_wake_by(connection, 0);
    pthread_mutex_unlock(&connection->lock);
}

static void job_forget_addresses(struct redis_job *job)
{
    if (job->addresses)
        freeaddrinfo(job->addresses);
    job->addresses = NULL;
}

void redis_job_set_url(struct redis_job *job, const struct redis_url *url)
{
    if (strcmp(job->url.host, url->host) || strcmp(job->url.port, url->port))
        job_forget_addresses(job);
    job->url = *url;
}

void redis_job_prepare(struct redis_job *job, struct redis_server *server)
{
    const struct redis_options *options = &server->connection->options;
    redis_job_set_url(job, &server->url);
    job->server = server;
    job->how = (struct redis_link_how){.url = &job->url,
                                       .tls = options->tls,
                                       .password = options->password,
                                       .needs_master = options->sentinel != NULL,
                                       .wait = job_wait,
                                       .context = server->connection};
}

int redis_job_start(struct redis_job *job, int (*main)(struct redis_job *job))
{
    const struct weir_backend_host *host = job->server->connection->host;
    job->main = main;
    job->link = NULL;
    job->reply = NULL;
    job->state = REDIS_JOB_BUSY;
    job->began_ns = redis_boot_ns();
    int r = host->work(host->context, job_main, job);
    if (r < 0)
        job->state = REDIS_JOB_IDLE;
    return r;
}

int redis_job_take(struct redis_job *job)
{
    if (job->state != REDIS_JOB_DONE)
        return 0;
    job->state = REDIS_JOB_IDLE;
    return 1;
}

void redis_job_free(struct redis_job *job)
{
    if (job->state == REDIS_JOB_DONE)
        redis_link_close(job->link);
    job_forget_addresses(job);
}

int redis_job_dial(struct redis_job *job)
{
    int r = redis_link_resolve(&job->how, &job->addresses, job->keeps);
    job->how.addresses = job->addresses;
    job->how.deadline_ns = redis_boot_ns() + job->server->connection->options.timeout_ns;
    if (r == 0)
        job->link = redis_link_open(&job->how, &r);
    return job->link ? 0 : r;
}

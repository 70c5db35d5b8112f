/* SPDX-License-Identifier: MIT */
/*
 * What may block, as to look up a name or to make a link, is done in threads of the host, one for
 * each job. So a server or a name that is dead delays no other one, and the thread of `run` goes
 * on.
 *
 *     IDLE ──redis_job_start──► BUSY ──its thread is through──► DONE ──redis_job_take──► IDLE
 *
 * While it is BUSY the job is its thread's, but for the state. It wakes the thread of `run`, which
 * starts and takes all jobs, with the connection's lock.
 */
#ifndef WEIR_REDIS_JOB_H
#define WEIR_REDIS_JOB_H

#include "redis_connection.h"

/* Prepares a job about a server: how links to it are made. The job is IDLE. */
void redis_job_prepare(struct redis_job *job, struct redis_server *server);
/* Starts it: `main` returns 0; or a code, and `how.why`. Returns 0, -EAGAIN (later: too many are
 * BUSY), or -ENOMEM. */
int redis_job_start(struct redis_job *job, int (*main)(struct redis_job *job));
/* Returns 1 if it is DONE, and IDLE from now on: then its results are the caller's. */
int redis_job_take(struct redis_job *job);
/* Gives up what it has. No thread is on it. */
void redis_job_free(struct redis_job *job);

/* For `main`: it is about another address. */
void redis_job_set_url(struct redis_job *job, const struct redis_url *url);
/* For `main`: looks up the host of `job->url` and connects. Returns 0 and `job->link`, or a code.
 */
int redis_job_dial(struct redis_job *job);

#endif

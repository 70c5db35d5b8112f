/* SPDX-License-Identifier: MIT */
/*
 * A node of a cluster: a few workers that do jobs, within limits that all nodes share. Nodes may be
 * on any machine; the configuration names the server that keeps the set.
 *
 *     cluster_node cluster.yaml jobs 3
 *
 * What the workers do is written to the standard output as it happens, with instants of
 * CLOCK_MONOTONIC in nanoseconds:
 *
 *     1300500 started 2 1100200     worker 2, which asked at 1100200, has begun a job
 *     1330500 finished 2            it has done the job, and is about to give back what it had
 *     1330900 lost 2                the session had ended before: the slot was not its own any more
 *
 * SIGTERM and SIGINT end the node when the jobs that have begun are done.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define WORKERS_MAX 64
#define MS          UINT64_C(1000000)
#define JOB_MIN     (10 * MS)
#define JOB_MAX     (50 * MS)

static weir_pool *pool;
static weir_token *stop; /* ends the waits of all workers */

struct worker {
    pthread_t thread;
    int number;
    uint32_t random;
    int failure;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

/* Writes a line at once: the process may be killed at any time. */
static void report(const struct worker *worker, const char *event, uint64_t asked_ns)
{
    char line[96];
    int n = snprintf(line, sizeof(line), "%" PRIu64 " %s %d", now_ns(), event, worker->number);

    if (asked_ns)
        n += snprintf(line + n, sizeof(line) - (size_t)n, " %" PRIu64, asked_ns);
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        weir_token_cancel(stop); /* nothing reads it any more */
}

static void work(struct worker *worker)
{
    uint64_t ns = JOB_MIN + (uint64_t)rand_r(&worker->random) % (JOB_MAX - JOB_MIN);
    struct timespec left = {.tv_nsec = (long)ns};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Does a job when it is its turn: a start and a slot are granted together. */
static int do_job(struct worker *worker)
{
    const struct weir_request request = {.size = sizeof(request), .token = stop};
    weir_acquisition *grant = NULL;
    uint64_t asked_ns = now_ns();
    int e = weir_acquire(pool, &request, &grant, NULL);

    if (e < 0)
        return e;
    report(worker, "started", asked_ns);
    work(worker);
    report(worker, "finished", 0);
    e = weir_release(&grant);
    if (e == -EOWNERDEAD) /* the job took longer than the server could wait for a sign of life */
        report(worker, "lost", 0);
    return e == -EOWNERDEAD ? 0 : e;
}

static void *run_worker(void *argument)
{
    struct worker *worker = argument;

    do
        worker->failure = do_job(worker);
    while (worker->failure == 0);
    if (worker->failure == -ECANCELED)
        worker->failure = 0;
    else
        kill(getpid(), SIGTERM); /* the others need not go on */
    return NULL;
}

/* Runs the workers until a signal comes. */
static int run(int workers_n)
{
    struct worker workers[WORKERS_MAX] = {0};
    sigset_t ends;
    int signal_number, n = 0, failure = 0;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    for (; n < workers_n && failure == 0; n++) {
        workers[n] = (struct worker){.number = n + 1, .random = (uint32_t)(getpid() * 64 + n)};
        failure = -pthread_create(&workers[n].thread, NULL, run_worker, &workers[n]);
    }
    if (failure == 0)
        sigwait(&ends, &signal_number);
    else
        n--;
    weir_token_cancel(stop);
    while (n > 0) {
        pthread_join(workers[--n].thread, NULL);
        failure = workers[n].failure != 0 ? workers[n].failure : failure;
    }
    return failure;
}

int main(int argc, char **argv)
{
    struct weir_options options = {.size = sizeof(options)};
    struct weir_error error = {0};
    int workers = argc == 4 ? atoi(argv[3]) : 0, e;
    weir *w = NULL;

    if (workers < 1 || workers > WORKERS_MAX) {
        fprintf(stderr, "usage: cluster_node CONFIGURATION SET WORKERS\n");
        return 2;
    }
    options.file = argv[1];
    e = weir_open(&w, &options, &error);
    if (e == 0)
        e = weir_pool_open(&pool, w, argv[2], WEIR_WORKER_AUTO, &error);
    if (e == 0)
        e = weir_token_open(&stop, w);
    if (e == 0)
        e = run(workers);
    if (e < 0)
        fprintf(stderr, "cluster_node: %s\n", error.message[0] ? error.message : strerror(-e));
    weir_token_close(stop);
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}

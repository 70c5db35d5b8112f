/* SPDX-License-Identifier: MIT */
/*
 * Workers that spread their requests over regions. Each region is a set with limits of its own, and
 * a pool picks one for every request. The name of the host comes with what is acquired.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#define WORKERS  4
#define REQUESTS 10

struct worker {
    pthread_t thread;
    weir *w;
    uint32_t index;
    int result;
};

/* Stands for the request itself. */
static void send_to(const char *host)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    if (host)
        nanosleep(&moment, NULL);
}

/* Runs a worker, which has a pool handle of its own: picks take no lock, and take turns. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    weir_pool *pool = NULL;
    int e = weir_pool_open(&pool, worker->w, "api", worker->index, NULL);

    for (int i = 0; e == 0 && i < REQUESTS; i++) {
        weir_acquisition *acquisition = NULL;

        e = weir_acquire(pool, NULL, &acquisition, NULL); /* of every limit its default, 1 */
        if (e == 0)
            send_to(weir_acquisition_config(acquisition, "host"));
        weir_release(&acquisition);
    }
    weir_pool_close(pool);
    worker->result = e;
    return NULL;
}

static int run_workers(weir *w)
{
    struct worker workers[WORKERS];
    int e = 0;

    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.w = w, .index = i};
        int not_started = pthread_create(&workers[i].thread, NULL, work, &workers[i]);

        if (not_started)
            workers[i] = (struct worker){.result = -not_started};
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (workers[i].w)
            pthread_join(workers[i].thread, NULL);
        if (workers[i].result < 0)
            e = workers[i].result;
    }
    return e;
}

static int report(weir_pool *pool)
{
    int e = 0;

    for (size_t i = 0; e >= 0 && i < weir_pool_sets(pool); i++) {
        weir_set *set = weir_pool_set(pool, i);
        struct weir_set_stats stats = {.size = sizeof(stats)};

        e = weir_set_stats(set, &stats, NULL, 0);
        if (e >= 0)
            printf("%s: %" PRIu64 " requests\n", weir_set_config(set, "host"), stats.granted);
    }
    return e < 0 ? e : 0;
}

int main(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "api", WEIR_WORKER_AUTO, &error);
    if (e == 0)
        e = run_workers(w);
    if (e == 0)
        e = report(pool);
    if (e < 0)
        fprintf(stderr, "regions: %s\n", error.code ? error.message : strerror(-e));
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}

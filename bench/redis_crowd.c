/* SPDX-License-Identifier: MIT */
/*
 * Several clients at a time: threads of one process beside as many bare connections, each with one
 * request on its way, or with a pipeline of them.
 */
#include "redis.h"

#include <poll.h>

enum { BATCH = 20, PIPELINES = 2 /* of a thread, between two looks at the clock */ };

struct crowd {
    unsigned n;
    struct bench_figure *raw, *weir, *raw_pipeline, *pipeline;
};

/* What a thread of a crowd has. */
struct member {
    struct client *client;
    weir_queue *queue;
};

static struct crowd crowds[] = {{.n = 1}, {.n = 4}, {.n = CLIENTS}};
static struct member members[CLIENTS];
static const struct redis_sets *crowd_sets;

static void *crowd_raw(void *argument)
{
    const struct member *member = argument;

    for (unsigned i = 0; i < BATCH; i++) {
        client_acquire(member->client);
        client_release(member->client);
    }
    return NULL;
}

static void *crowd_weir(void *argument)
{
    weir_acquisition *acquisition;

    (void)argument;
    for (unsigned i = 0; i < BATCH; i++) {
        acquisition = redis_two_acquired(crowd_sets);
        require(weir_release(&acquisition) == 0);
    }
    return NULL;
}

static void *crowd_raw_pipeline(void *argument)
{
    const struct member *member = argument;

    for (unsigned i = 0; i < PIPELINES; i++)
        client_pipeline(member->client);
    return NULL;
}

static void pipeline_once(weir_queue *queue)
{
    static const struct weir_amount both[] = {{"slots", 1}, {"tokens", 1}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = both, .amounts_n = 2, .timeout_ns = PATIENCE};
    struct weir_completion done[PIPELINE];
    weir_acquisition *granted[PIPELINE];
    unsigned n = 0;

    for (unsigned i = 0; i < PIPELINE; i++)
        require(weir_queue_submit(queue, crowd_sets->two, &request, i, NULL, NULL) == 0);
    while (n < PIPELINE) {
        struct pollfd fd = {.fd = weir_queue_fd(queue), .events = POLLIN};
        int r = weir_queue_reap(queue, done, PIPELINE);

        require(r >= 0 && (r > 0 || poll(&fd, 1, 60000) == 1));
        for (int i = 0; i < r; i++) {
            require(done[i].result == 0);
            granted[n++] = done[i].acquisition;
        }
    }
    for (unsigned i = 0; i < PIPELINE; i++)
        require(weir_release(&granted[i]) == 0);
}

static void *crowd_pipeline(void *argument)
{
    const struct member *member = argument;

    for (unsigned i = 0; i < PIPELINES; i++)
        pipeline_once(member->queue);
    return NULL;
}

/* Returns the time of one operation of n threads together, of which each does so many. */
static double crowd_time(unsigned n, void *(*run)(void *argument), unsigned each)
{
    pthread_t threads[CLIENTS];
    uint64_t begin = clock_now();

    for (unsigned i = 0; i < n; i++)
        threads[i] = bench_start(0, run, &members[i]);
    for (unsigned i = 0; i < n; i++)
        require(pthread_join(threads[i], NULL) == 0);
    return (double)(clock_now() - begin) / (n * each);
}

void crowds_open(struct bench *bench, const struct redis_sets *sets, struct client *clients)
{
    crowd_sets = sets;
    for (unsigned i = 0; i < CLIENTS; i++) {
        members[i].client = &clients[i];
        require(weir_queue_open(&members[i].queue, sets->w, PIPELINE) == 0);
    }
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        struct crowd *crowd = &crowds[i];

        crowd->raw = bench_figure(bench, NULL, "bare FCALL, %u clients", crowd->n);
        crowd->weir = bench_figure(bench, crowd->raw, "acquire + release, %u clients", crowd->n);
        crowd->raw_pipeline = bench_figure(bench, NULL, "bare FCALL, %u clients, pipelines of %d",
                                           crowd->n, PIPELINE);
        crowd->pipeline =
            bench_figure(bench, crowd->raw_pipeline, "acquire + release, %u clients, queues of %d",
                         crowd->n, PIPELINE);
    }
}

static void crowd_begin(const struct crowd *crowd)
{
    for (unsigned i = 0; i < crowd->n; i++)
        client_begin(members[i].client);
}

static void crowd_round(const struct crowd *crowd)
{
    const unsigned pipelined = PIPELINES * PIPELINE;

    crowd_begin(crowd);
    bench_add(crowd->raw, crowd_time(crowd->n, crowd_raw, BATCH));
    bench_add(crowd->weir, crowd_time(crowd->n, crowd_weir, BATCH));
    crowd_begin(crowd);
    bench_add(crowd->raw_pipeline, crowd_time(crowd->n, crowd_raw_pipeline, pipelined));
    bench_add(crowd->pipeline, crowd_time(crowd->n, crowd_pipeline, pipelined));
}

void crowds_round(const struct bench *bench)
{
    for (unsigned i = 0; i < bench_samples(bench, 40) / 20 + 1; i++)
        for (size_t k = 0; k < sizeof(crowds) / sizeof(*crowds); k++)
            crowd_round(&crowds[k]);
}

void crowds_close(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        weir_queue_close(members[i].queue);
}

/* SPDX-License-Identifier: MIT */
/*
 * Measures sets that a Redis server keeps, on a server of its own that listens on a socket: an
 * operation beside the same functions called on a bare connection, and beside the call sequences of
 * two semaphores.
 *
 *     redis [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 */
#include "bench.h"

#include "redis_raw.h"

#include <poll.h>
#include <string.h>

#define SET      "r,1000/t,1000000000,1000000,1000000000,1000000000,0,0,1,0"
#define DEFINE   "bench/-/1000/2000000/" SET
#define GRANTED  "*4\r\n:0\r\n"
#define BATCH    20 /* operations between two looks at the clock of threads together */
#define LENGTH   16 /* of a pipeline */
#define CLIENTS  16 /* at most */
#define SLOTS    4  /* of a semaphore */
#define PATIENCE (60 * SECOND)

struct client {
    struct raw *raw;
    char run[64], node[32], inbox[48];
    uint64_t serial;
};

static struct raw_server server;
static struct client clients[CLIENTS];
static weir_pool *pool;
static weir_queue *queue;

/* ---- the bare calls ---- */

static void client_open(struct client *client, unsigned i)
{
    const char *at;

    client->raw = raw_open(server.socket);
    at = strstr(RAW_CALL(client->raw, "INFO", "server"), "run_id:");
    require(at && sscanf(at, "run_id:%63[0-9a-f]", client->run) == 1);
    snprintf(client->node, sizeof(client->node), "raw%u", i);
    snprintf(client->inbox, sizeof(client->inbox), "inbox%u", i);
}

/* A session for the calls that follow, within a second. */
static void client_begin(struct client *client)
{
    RAW_CALL(client->raw, "FCALL", "weir_open", "1", "raw", client->run, DEFINE, client->node,
             client->inbox, "0");
}

static void client_add_acquire(struct client *client, unsigned slot)
{
    char serial[24], in[8];

    snprintf(serial, sizeof(serial), "%llu", (unsigned long long)++client->serial);
    snprintf(in, sizeof(in), "%u", slot);
    raw_add(client->raw,
            (const char *const[]){"FCALL", "weir_acquire", "1", "raw", client->run, DEFINE,
                                  client->node, "", in, serial, "try", "-1", "-1", "1", "1", NULL});
}

static void client_add_release(struct client *client, unsigned slot, uint64_t serial_number)
{
    char serial[24], in[8];

    snprintf(serial, sizeof(serial), "%llu", (unsigned long long)serial_number);
    snprintf(in, sizeof(in), "%u", slot);
    raw_add(client->raw,
            (const char *const[]){"FCALL", "weir_release", "1", "raw", client->run, DEFINE,
                                  client->node, in, serial, "end", "1", "1", NULL});
}

static void client_acquire(struct client *client)
{
    client_add_acquire(client, 0);
    require(strncmp(raw_send(client->raw), GRANTED, sizeof(GRANTED) - 1) == 0);
}

static void client_release(struct client *client)
{
    client_add_release(client, 0, client->serial);
    raw_send(client->raw);
}

static void client_take(struct client *client)
{
    require(strncmp(RAW_CALL(client->raw, "FCALL", "weir_take", "1", "raw", client->run, DEFINE,
                             client->node, "0", "1"),
                    GRANTED, sizeof(GRANTED) - 1) == 0);
}

static void client_pipeline(struct client *client)
{
    uint64_t first = client->serial + 1;

    for (unsigned i = 0; i < LENGTH; i++)
        client_add_acquire(client, i);
    raw_send(client->raw);
    for (unsigned i = 0; i < LENGTH; i++)
        client_add_release(client, i, first + i);
    raw_send(client->raw);
}

/* ---- the call sequences of semaphores ---- */

/* The Ruby gem redis-semaphore: a list of free slots, a hash of those that are in use. */
static void list_acquire(struct client *client)
{
    RAW_CALL(client->raw, "GETSET", "list:exists", "1");
    RAW_CALL(client->raw, "BLPOP", "list:free", "60");
    RAW_CALL(client->raw, "HSET", "list:used", client->node, "1700000000.0");
}

static void list_release(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"HDEL", "list:used", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"LPUSH", "list:free", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}

/* J. L. Carlson: Redis in Action, 2013, 6.3.2: sorted sets by time and by a counter. */
static void sorted_acquire(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw,
            (const char *const[]){"ZREMRANGEBYSCORE", "sorted", "-inf", "1700000000", NULL});
    raw_add(client->raw, (const char *const[]){"ZINTERSTORE", "sorted:owner", "2", "sorted:owner",
                                               "sorted", "WEIGHTS", "1", "0", NULL});
    raw_add(client->raw, (const char *const[]){"INCR", "sorted:counter", NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"ZADD", "sorted", "1800000000", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZADD", "sorted:owner", "1", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZRANK", "sorted:owner", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}

static void sorted_release(struct client *client)
{
    raw_add(client->raw, (const char *const[]){"MULTI", NULL});
    raw_add(client->raw, (const char *const[]){"ZREM", "sorted", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"ZREM", "sorted:owner", client->node, NULL});
    raw_add(client->raw, (const char *const[]){"EXEC", NULL});
    raw_send(client->raw);
}

/* ---- weir ---- */

static const struct weir_amount both[] = {{"slots", 1}, {"tokens", 1}},
                                tokens[] = {{"slots", 0}, {"tokens", 1}};

static weir_acquisition *weir_got(void)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = both, .amounts_n = 2, .timeout_ns = PATIENCE};
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, &request, &acquisition, NULL) == 0);
    return acquisition;
}

static void weir_given_back(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

static void weir_taken(void)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = tokens, .amounts_n = 2};

    require(weir_take(pool, &request, NULL) == 0);
}

static void weir_pipeline(void)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = both, .amounts_n = 2, .timeout_ns = PATIENCE};
    struct weir_completion done[LENGTH];
    weir_acquisition *granted[LENGTH];
    unsigned n = 0;

    for (unsigned i = 0; i < LENGTH; i++)
        require(weir_queue_submit(queue, pool, &request, i, NULL, NULL) == 0);
    while (n < LENGTH) {
        struct pollfd fd = {.fd = weir_queue_fd(queue), .events = POLLIN};
        int r = weir_queue_reap(queue, done, LENGTH);

        require(r >= 0 && (r > 0 || poll(&fd, 1, 60000) == 1));
        for (int i = 0; i < r; i++) {
            require(done[i].result == 0);
            granted[n++] = done[i].acquisition;
        }
    }
    for (unsigned i = 0; i < LENGTH; i++)
        weir_given_back(granted[i]);
}

/* A set that is new to a young server grants nothing for a session. */
static void weir_begin(weir **ret_w)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = both, .amounts_n = 2, .timeout_ns = PATIENCE};
    weir_acquisition *acquisition;
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(text, sizeof(text),
             "version: 1\n"
             "backends: { main: { type: redis, url: \"unix://%s\", session: 2s } }\n"
             "sets: { api: { backend: main, limits: [\n"
             "  { type: resource, key: slots, capacity: 1k },\n"
             "  { type: call, key: tokens, algorithm: token_bucket, capacity: 1G, window: 1s } ] } "
             "}\n",
             server.socket);
    *ret_w = bench_instance(&options);
    require(weir_pool_open(&pool, *ret_w, "api", WEIR_WORKER_AUTO, NULL) == 0);
    require(weir_queue_open(&queue, *ret_w, LENGTH) == 0);
    require(weir_acquire(pool, &request, &acquisition, NULL) == 0);
    weir_given_back(acquisition);
}

/* ---- alone ---- */

struct alone {
    struct bench_figure *ping, *raw_acquire, *raw_both, *raw_take, *raw_pipeline;
    struct bench_figure *acquire, *both, *take, *pipeline;
    struct bench_figure *list, *sorted, *beside_list, *beside_sorted;
};

static void alone_open(struct alone *alone, struct bench *bench)
{
    alone->ping = bench_figure(bench, NULL, "bare PING");
    alone->raw_acquire = bench_figure(bench, NULL, "bare FCALL weir_acquire");
    alone->acquire = bench_figure(bench, alone->raw_acquire, "acquire");
    alone->raw_both = bench_figure(bench, NULL, "bare FCALL weir_acquire, weir_release");
    alone->both = bench_figure(bench, alone->raw_both, "acquire + release");
    alone->raw_take = bench_figure(bench, NULL, "bare FCALL weir_take");
    alone->take = bench_figure(bench, alone->raw_take, "take");
    alone->raw_pipeline = bench_figure(bench, NULL, "bare FCALL, pipelined by %d", LENGTH);
    alone->pipeline =
        bench_figure(bench, alone->raw_pipeline, "acquire + release, queue of %d", LENGTH);
    alone->list = bench_figure(bench, NULL, "semaphore of BLPOP");
    alone->beside_list = bench_figure(bench, alone->list, "acquire + release, beside BLPOP");
    alone->sorted = bench_figure(bench, NULL, "semaphore of sorted sets");
    alone->beside_sorted =
        bench_figure(bench, alone->sorted, "acquire + release, beside sorted sets");
}

static void alone_raw(const struct alone *alone, struct client *client)
{
    uint64_t begin = clock_now(), granted;

    RAW_CALL(client->raw, "PING");
    bench_add(alone->ping, (double)(clock_now() - begin));
    begin = clock_now();
    client_take(client);
    bench_add(alone->raw_take, (double)(clock_now() - begin));
    begin = clock_now();
    client_acquire(client);
    granted = clock_now();
    client_release(client);
    bench_add(alone->raw_both, (double)(clock_now() - begin));
    bench_add(alone->raw_acquire, (double)(granted - begin));
    begin = clock_now();
    client_pipeline(client);
    bench_add(alone->raw_pipeline, (double)(clock_now() - begin) / LENGTH);
}

static void alone_semaphores(const struct alone *alone, struct client *client)
{
    uint64_t begin = clock_now();

    list_acquire(client);
    list_release(client);
    bench_add(alone->list, (double)(clock_now() - begin));
    begin = clock_now();
    sorted_acquire(client);
    sorted_release(client);
    bench_add(alone->sorted, (double)(clock_now() - begin));
}

static void alone_weir(const struct alone *alone)
{
    weir_acquisition *acquisition;
    uint64_t begin, granted, end;

    weir_taken(); /* as PING before the bare calls */
    begin = clock_now();
    weir_taken(); /* before a release, which is not waited for: the server has to do it */
    bench_add(alone->take, (double)(clock_now() - begin));
    begin = clock_now();
    acquisition = weir_got();
    granted = clock_now();
    weir_given_back(acquisition);
    end = clock_now();
    bench_add(alone->acquire, (double)(granted - begin));
    bench_add(alone->both, (double)(end - begin));
    bench_add(alone->beside_list, (double)(end - begin));
    bench_add(alone->beside_sorted, (double)(end - begin));
    begin = clock_now();
    weir_pipeline();
    bench_add(alone->pipeline, (double)(clock_now() - begin) / LENGTH);
}

static void alone_round(const struct alone *alone, unsigned samples)
{
    client_begin(&clients[0]);
    for (unsigned i = 0; i < samples; i++) {
        RAW_CALL(clients[0].raw, "PING"); /* the server is through with releases */
        alone_semaphores(alone, &clients[0]);
        alone_raw(alone, &clients[0]);
        alone_weir(alone);
    }
}

/* ---- several threads ---- */

static void *crowd_raw(void *argument)
{
    for (unsigned i = 0; i < BATCH; i++) {
        client_acquire(argument);
        client_release(argument);
    }
    return NULL;
}

static void *crowd_weir(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < BATCH; i++)
        weir_given_back(weir_got());
    return NULL;
}

/* Returns the time of one operation of n threads together. */
static double crowd_time(unsigned n, void *(*run)(void *argument))
{
    pthread_t threads[CLIENTS];
    uint64_t begin = clock_now();

    for (unsigned i = 0; i < n; i++)
        require(pthread_create(&threads[i], NULL, run, &clients[i]) == 0);
    for (unsigned i = 0; i < n; i++)
        require(pthread_join(threads[i], NULL) == 0);
    return (double)(clock_now() - begin) / (n * BATCH);
}

struct crowd {
    unsigned n;
    struct bench_figure *raw, *weir;
};

static void crowd_round(const struct crowd *crowd, unsigned samples)
{
    for (unsigned i = 0; i < samples; i++) {
        for (unsigned j = 0; j < crowd->n; j++)
            client_begin(&clients[j]);
        bench_add(crowd->raw, crowd_time(crowd->n, crowd_raw));
        bench_add(crowd->weir, crowd_time(crowd->n, crowd_weir));
    }
}

static void prepare_clients(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        client_open(&clients[i], i);
    for (unsigned i = 0; i < SLOTS; i++)
        RAW_CALL(clients[0].raw, "LPUSH", "list:free", "slot");
    do { /* its set is new to a young server, too */
        pause_ns(10 * MS);
        client_begin(&clients[0]);
        client_add_acquire(&clients[0], 0);
    } while (strncmp(raw_send(clients[0].raw), GRANTED, sizeof(GRANTED) - 1) != 0);
    client_release(&clients[0]);
}

int main(int argc, char **argv)
{
    struct crowd crowds[] = {{.n = 1}, {.n = 4}, {.n = CLIENTS}};
    struct alone alone;
    struct bench bench;
    weir *w;

    bench_open(&bench, "redis", 18, argc, argv);
#ifndef WEIR_BENCH_REDIS
    bench_skip("redis", "it was built without the plugin");
    return bench_close(&bench);
#endif
    if (!raw_server_start(&server)) {
        bench_skip("redis", "there is no redis-server");
        return bench_close(&bench);
    }
    weir_begin(&w);
    prepare_clients();
    alone_open(&alone, &bench);
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        crowds[i].raw = bench_figure(&bench, NULL, "bare FCALL, %u clients", crowds[i].n);
        crowds[i].weir =
            bench_figure(&bench, crowds[i].raw, "acquire + release, %u clients", crowds[i].n);
    }
    while (bench_round(&bench)) {
        alone_round(&alone, bench_samples(&bench, 100));
        for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++)
            crowd_round(&crowds[i], bench_samples(&bench, 40) / 20 + 1);
    }
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_close(w);
    for (unsigned i = 0; i < CLIENTS; i++)
        raw_close(clients[i].raw);
    raw_server_stop(&server);
    return bench_close(&bench);
}

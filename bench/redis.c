/* SPDX-License-Identifier: MIT */
/*
 * Measures sets that a Redis server keeps, on a server of its own that listens on a socket: an
 * operation beside the same functions called on a bare connection, and beside the call sequences of
 * two semaphores. The server has a processor of its own, if there are two.
 *
 *     redis [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 */
#include "redis.h"

enum { HERE, THERE };

enum { IN_A_ROW = 25, GROUP = 10 /* samples between two heartbeats of bare clients */ };

static struct raw_server server;
static struct client clients[CLIENTS];
static struct redis_sets sets;

/* ---- weir ---- */

static const struct weir_amount two[] = {{"slots", 1}, {"tokens", 1}},
                                tokens[] = {{"slots", 0}, {"tokens", 1}}, slot[] = {{"slots", 1}};

static weir_acquisition *acquired(weir_pool *pool, const struct weir_amount *amounts, size_t n)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = n, .timeout_ns = PATIENCE};
    weir_acquisition *acquisition = NULL;

    require(weir_try_acquire(pool, &request, &acquisition, NULL) == 0);
    return acquisition;
}

weir_acquisition *redis_two_acquired(const struct redis_sets *of)
{
    return acquired(of->two, two, 2);
}

static void given_back(weir_acquisition *acquisition)
{
    require(weir_release(&acquisition) == 0);
}

static void taken(void)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = tokens, .amounts_n = 2};

    require(weir_take(sets.two, &request, NULL) == 0);
}

/* A set that is new to a young server grants nothing for a session. */
static void await_first(weir_pool *pool, const struct weir_amount *amounts, size_t n)
{
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = n, .timeout_ns = PATIENCE};
    weir_acquisition *acquisition;

    require(weir_acquire(pool, &request, &acquisition, NULL) == 0);
    given_back(acquisition);
}

static void open_sets(void)
{
    char text[1024];
    const struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(
        text, sizeof(text),
        "version: 1\n"
        "backends: { main: { type: redis, url: \"unix://%s\", session: 3s } }\n"
        "sets:\n"
        "  two: { backend: main, limits: [\n"
        "    { type: resource, key: slots, capacity: 1k },\n"
        "    { type: call, key: tokens, algorithm: token_bucket, capacity: 1G, window: 1s } ] }\n"
        "  slots: { backend: main, limits: [ { type: resource, key: slots, capacity: %d } ] }\n"
        "  leased: { backend: main, limits: [ { type: rate, key: tokens, algorithm: gcra,\n"
        "    capacity: 100M, window: 1s, burst: 1001000, lease: { for: 10ms } } ] }\n",
        server.socket, SEMAPHORE_SLOTS);
    sets.w = bench_instance(&options);
    require(weir_pool_open(&sets.two, sets.w, "two", WEIR_WORKER_AUTO, NULL) == 0);
    require(weir_pool_open(&sets.slots, sets.w, "slots", WEIR_WORKER_AUTO, NULL) == 0);
    require(weir_pool_open(&sets.leased, sets.w, "leased", WEIR_WORKER_AUTO, NULL) == 0);
    await_first(sets.two, two, 2);
    await_first(sets.slots, slot, 1);
}

static void close_sets(void)
{
    weir_pool_close(sets.two);
    weir_pool_close(sets.slots);
    weir_pool_close(sets.leased);
    weir_close(sets.w);
}

/* ---- beside bare calls ---- */

struct alone {
    struct bench_figure *ping, *raw_acquire, *raw_both, *raw_take;
    struct bench_figure *acquire, *both, *take;
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
}

static void alone_weir(const struct alone *alone)
{
    weir_acquisition *acquisition;
    uint64_t begin, granted, end;

    taken(); /* as PING before the bare calls */
    begin = clock_now();
    taken(); /* before a release, which is not waited for: the server has to do it */
    bench_add(alone->take, (double)(clock_now() - begin));
    begin = clock_now();
    acquisition = redis_two_acquired(&sets);
    granted = clock_now();
    given_back(acquisition);
    end = clock_now();
    bench_add(alone->acquire, (double)(granted - begin));
    bench_add(alone->both, (double)(end - begin));
}

static void alone_round(const struct alone *alone, unsigned samples)
{
    for (unsigned i = 0; i < samples; i++) {
        if (i % GROUP == 0)
            client_begin(&clients[0]);
        RAW_CALL(clients[0].raw, "PING"); /* the server is through with releases */
        alone_raw(alone, &clients[0]);
        alone_weir(alone);
    }
}

/* ---- beside semaphores: a resource alone, of as many slots ---- */

/* A way to have a slot and give it back. */
struct way {
    const char *name;
    void (*once)(void);
    struct bench_figure *alone, *in_a_row;
};

static void slot_once(void)
{
    given_back(acquired(sets.slots, slot, 1));
}

static void list_once(void)
{
    list_acquire(&clients[0]);
    list_release(&clients[0]);
}

static void sorted_once(void)
{
    sorted_acquire(&clients[0]);
    sorted_release(&clients[0]);
}

static struct way ways[] = {{.name = "semaphore of BLPOP", .once = list_once},
                            {.name = "semaphore of sorted sets", .once = sorted_once}};
static struct way besides[] = {{.name = "slot, beside BLPOP", .once = slot_once},
                               {.name = "slot, beside sorted sets", .once = slot_once}};

enum { WAYS = sizeof(ways) / sizeof(*ways) };

static void ways_open(struct bench *bench)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct way *way = &ways[i], *beside = &besides[i];

        way->alone = bench_figure(bench, NULL, "%s", way->name);
        beside->alone = bench_figure(bench, way->alone, "%s", beside->name);
        way->in_a_row = bench_figure(bench, NULL, "%s, in a row", way->name);
        beside->in_a_row = bench_figure(bench, way->in_a_row, "%s, in a row", beside->name);
    }
}

/* One time alone, when the server has nothing else to do; and many in a row: a release that is not
 * waited for is in the way of the next acquire. */
static void way_measure(const struct way *way)
{
    uint64_t begin;

    RAW_CALL(clients[0].raw, "PING");
    begin = clock_now();
    way->once();
    bench_add(way->alone, (double)(clock_now() - begin));
    RAW_CALL(clients[0].raw, "PING");
    begin = clock_now();
    for (unsigned i = 0; i < IN_A_ROW; i++)
        way->once();
    RAW_CALL(clients[0].raw, "PING"); /* the last release is through */
    bench_add(way->in_a_row, (double)(clock_now() - begin) / IN_A_ROW);
}

static void ways_round(unsigned samples)
{
    for (unsigned i = 0; i < samples; i++)
        for (size_t k = 0; k < WAYS; k++) {
            way_measure(&ways[k]);
            way_measure(&besides[k]);
        }
}

static void open_clients(void)
{
    uint64_t until = clock_now() + PATIENCE;

    for (unsigned i = 0; i < CLIENTS; i++)
        client_open(&clients[i], &server, i);
    list_open(&clients[0]);
    do { /* its set is new to a young server, too */
        require(clock_now() < until);
        pause_ns(10 * MS);
        client_begin(&clients[0]);
    } while (!client_try(&clients[0]));
    client_release(&clients[0]);
}

static void measure(struct bench *bench)
{
    struct alone alone;

    open_sets();
    open_clients();
    alone_open(&alone, bench);
    ways_open(bench);
    crowds_open(bench, &sets, clients);
    lease_open(bench, &sets);
    while (bench_round(bench)) {
        alone_round(&alone, bench_samples(bench, 100));
        ways_round(bench_samples(bench, 100) / 10 + 1);
        crowds_round(bench);
        lease_round(bench);
    }
    lease_close(bench);
    crowds_close();
    close_sets();
    for (unsigned i = 0; i < CLIENTS; i++)
        client_close(&clients[i]);
}

int main(int argc, char **argv)
{
    struct bench bench;

    bench_open(&bench, "redis", 18, argc, argv);
#ifndef WEIR_BENCH_HAS_REDIS
    bench_skip("redis", "it was built without the plugin");
    return bench_close(&bench);
#endif
    bench_pin(THERE); /* as the server inherits it */
    if (!raw_server_start(&server)) {
        bench_skip("redis", "there is no redis-server");
        return bench_close(&bench);
    }
    bench_pin(HERE);
    measure(&bench);
    raw_server_stop(&server);
    return bench_close(&bench);
}

/* SPDX-License-Identifier: MIT */
/*
 * Measures what a balancer costs: a take from a pool, beside a take from one of its sets.
 *
 *     balancers [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 *
 *     NAME, N sets        a take from a pool of N sets with this balancer
 *     NAME, 16 sets: off  how many more takes than its share the set with the most has got, in
 * percent
 *
 * All sets are alike. Requests of `hash` have a route each; its shares are those of random numbers.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 2000, LOOKS = 4000, SAMPLES = 20, SIZES = 3, SETS_MAX = 256, SPREAD_SETS = 16 };

static const char *const balancers[] = {"round_robin",  "random",   "weighted",     "hash",
                                        "power_of_two", "failover", "least_loaded", "soonest"};
enum { BALANCERS = sizeof(balancers) / sizeof(*balancers) };

static const unsigned sizes[SIZES] = {2, SPREAD_SETS, SETS_MAX};

static const struct weir_limit_spec rate = {.size = sizeof(rate),
                                            .type = WEIR_LIMIT_RATE,
                                            .key = "tokens",
                                            .algorithm = "gcra",
                                            .capacity = 1000000000,
                                            .window_ns = 1000 * MS};

static struct lane {
    const char *balancer;
    unsigned sets_n, batch; /* takes: long enough for warm caches, no longer than a time slice */
    weir_pool *pool;
    struct bench_figure *figure;
} lanes[BALANCERS * SIZES];

static struct {
    weir_pool *pool;
    struct bench_figure *figure;
} alone;

static weir_pool *open_pool(weir *w, const char *balancer, unsigned n)
{
    static struct weir_set_spec sets[SETS_MAX];
    static char names[SETS_MAX][64];
    struct weir_pool_spec spec = {
        .size = sizeof(spec), .balancer = balancer, .sets = sets, .sets_n = n, .seed = 1};
    struct weir_error error;
    weir_pool *pool;

    for (unsigned i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "%s of %u, %u", balancer, n, i);
        sets[i] = (struct weir_set_spec){
            .size = sizeof(sets[i]), .name = names[i], .limits = &rate, .limits_n = 1};
    }
    if (weir_pool_new(&pool, w, &spec, &error) < 0) {
        fprintf(stderr, "balancers: %s\n", error.message);
        exit(1);
    }
    return pool;
}

static void open_lanes(struct bench *bench, weir *w)
{
    alone.pool = bench_pool(w, "alone", &rate, 1);
    alone.figure = bench_figure(bench, NULL, "a set alone");
    for (unsigned i = 0; i < BALANCERS * SIZES; i++) {
        struct lane *lane = &lanes[i];

        lane->balancer = balancers[i / SIZES];
        lane->sets_n = sizes[i % SIZES];
        lane->batch = BATCH;
        if (strcmp(lane->balancer, "least_loaded") == 0 || strcmp(lane->balancer, "soonest") == 0)
            lane->batch = LOOKS / lane->sets_n; /* they look at all sets */
        lane->pool = open_pool(w, lane->balancer, lane->sets_n);
        lane->figure =
            bench_figure(bench, alone.figure, "%s, %u sets", lane->balancer, lane->sets_n);
    }
}

static void measure(weir_pool *pool, unsigned batch, struct bench_figure *figure)
{
    static uint64_t route;
    const struct weir_amount token = {"tokens", 1};
    struct weir_request request = {.size = sizeof(request), .amounts = &token, .amounts_n = 1};
    uint64_t begin = clock_now();

    for (unsigned i = 0; i < batch; i++) {
        request.route = ++route;
        require(weir_take(pool, &request, NULL) == 0);
    }
    bench_add(figure, (double)(clock_now() - begin) / batch);
}

static void round_of(struct bench *bench)
{
    unsigned samples = bench_samples(bench, SAMPLES);

    for (unsigned i = 0; i < samples; i++) {
        measure(alone.pool, BATCH, alone.figure);
        for (unsigned j = 0; j < BALANCERS * SIZES; j++)
            measure(lanes[j].pool, lanes[j].batch, lanes[j].figure);
    }
}

/* Reports how evenly a pool has used its sets; `failover` is to use one alone. */
static void report_spread(struct bench *bench, const struct lane *lane)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t most = 0, sum = 0;

    if (lane->sets_n != SPREAD_SETS || strcmp(lane->balancer, "failover") == 0)
        return;
    for (unsigned i = 0; i < lane->sets_n; i++) {
        require(weir_set_stats(weir_pool_set(lane->pool, i), &stats, NULL, 0) >= 0);
        most = stats.granted > most ? stats.granted : most;
        sum += stats.granted;
    }
    bench_value(bench, 100.0 * ((double)most * lane->sets_n / (double)sum - 1), "%",
                "%s, %u sets: off", lane->balancer, lane->sets_n);
}

int main(int argc, char **argv)
{
    struct weir_options options = {.size = sizeof(options), .text = "version: 1\n"};
    struct bench bench;
    weir *w;

    bench_open(&bench, "balancers", 10, argc, argv);
    w = bench_instance(&options);
    bench_pin(0);
    open_lanes(&bench, w);
    while (bench_round(&bench))
        round_of(&bench);
    for (unsigned i = 0; i < BALANCERS * SIZES; i++) {
        report_spread(&bench, &lanes[i]);
        weir_pool_close(lanes[i].pool);
    }
    weir_pool_close(alone.pool);
    weir_close(w);
    return bench_close(&bench);
}

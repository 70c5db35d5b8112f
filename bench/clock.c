/* SPDX-License-Identifier: MIT */
/*
 * Measures the timestamp that each operation needs, and how far it is behind.
 *
 *     clock [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 *
 *     NAME        a reading, over batches in which nothing else is done
 *     two: NAME   two threads that read at once, the time of one of them
 *     behind, …   single readings by the counter, each compared with CLOCK_MONOTONIC right after:
 * the time of that reading is included, as it is for two readings of CLOCK_MONOTONIC
 *
 * The benchmark fails if a reading is ahead or goes back.
 */
#include "bench.h"

#include <stdatomic.h>

enum { BATCH = 1000, SAMPLES = 40, SINGLE = 500 };

static weir *read_each_time, *by_counter;

static uint64_t raw(void)
{
    return clock_now();
}

static uint64_t monotonic(void)
{
    return weir_now(read_each_time);
}

static uint64_t counted(void)
{
    return weir_now(by_counter);
}

static struct lane {
    const char *name;
    uint64_t (*read)(void);
    struct bench_figure *alone, *two, *behind;
} lanes[] = {{.name = "raw: clock_gettime", .read = raw},
             {.name = "weir_now, monotonic", .read = monotonic},
             {.name = "weir_now, tsc", .read = counted}};

enum { LANES = sizeof(lanes) / sizeof(lanes[0]) };

static struct bench_figure *figure_of(struct bench *bench, struct bench_figure *baseline,
                                      const char *before, const char *name)
{
    return bench_figure(bench, baseline, "%s%s", before, name);
}

static void add_figures(struct bench *bench)
{
    for (int i = 0; i < LANES; i++)
        lanes[i].alone = figure_of(bench, lanes[0].alone, "", lanes[i].name);
    for (int i = 0; i < LANES && bench_processors() > 1; i++)
        lanes[i].two = figure_of(bench, lanes[0].two, "two: ", lanes[i].name);
    for (int i = 0; i < LANES; i += 2)
        lanes[i].behind = figure_of(bench, NULL, "behind, ", lanes[i].name);
}

static void read_batch(struct bench_figure *figure, uint64_t (*read)(void))
{
    uint64_t begin = clock_now(), last = 0;

    for (int i = 0; i < BATCH; i++) {
        uint64_t now = read();

        require(now >= last);
        last = now;
    }
    bench_add(figure, (double)(clock_now() - begin) / BATCH);
}

static void look_behind(struct lane *lane)
{
    for (int i = 0; i < SINGLE; i++) {
        uint64_t ns = lane->read(), now = clock_now();

        require(ns <= now);
        bench_add(lane->behind, (double)(now - ns));
        bench_spin(100 + (uint64_t)i % 7 * 130); /* at each age that a reading can have */
    }
}

/* Clock that the second thread reads. */
static _Atomic(uint64_t (*)(void)) other_reads;

static void *read_too(void *unused)
{
    uint64_t (*read)(void);

    while ((read = atomic_load_explicit(&other_reads, memory_order_acquire)))
        for (int i = 0; i < 100; i++)
            require(read() > 0);
    return unused;
}

static void two_round(struct lane *lane, unsigned samples)
{
    pthread_t other;

    atomic_store(&other_reads, lane->read);
    other = bench_start(1, read_too, NULL);
    bench_spin(20 * US);
    for (unsigned i = 0; i < samples; i++)
        read_batch(lane->two, lane->read);
    atomic_store(&other_reads, NULL);
    require(pthread_join(other, NULL) == 0);
}

static void round_of(struct bench *bench)
{
    unsigned samples = bench_samples(bench, SAMPLES);

    for (unsigned i = 0; i < samples; i++)
        for (int j = 0; j < LANES; j++)
            read_batch(lanes[j].alone, lanes[j].read);
    for (int j = 0; j < LANES; j++) {
        if (lanes[j].two)
            two_round(&lanes[j], samples);
        if (lanes[j].behind)
            look_behind(&lanes[j]);
    }
}

static weir *opened(enum weir_clock_source source)
{
    struct weir_options options = {
        .size = sizeof(options), .text = "version: 1\n", .clock_source = source};

    return bench_instance(&options);
}

int main(int argc, char **argv)
{
    struct bench bench;

    bench_open(&bench, "clock", 10, argc, argv);
    read_each_time = opened(WEIR_CLOCK_MONOTONIC);
    by_counter = opened(WEIR_CLOCK_TSC);
    if (weir_clock_in_use(by_counter) != WEIR_CLOCK_TSC)
        bench_skip("weir_now, tsc", "the time stamp counter cannot be had: it is CLOCK_MONOTONIC");
    bench_pin(0);
    add_figures(&bench);
    while (bench_round(&bench))
        round_of(&bench);
    weir_close(by_counter);
    weir_close(read_each_time);
    return bench_close(&bench);
}

/* SPDX-License-Identifier: MIT */
/*
 * The common part of all benchmarks: a clock, processors, figures, and a report.
 *
 * Figures of one machine differ by a factor of two from run to run, so none is worth anything
 * alone. A benchmark goes in rounds. In each it measures every figure a number of times, and beside
 * it the bare primitive that the figure is compared with, its baseline. A round gives each figure a
 * median and a 99th percentile, and the ratio of these to the baseline's in that round. The report
 * has the medians over the rounds, so that a disturbance spoils a round, not the result.
 *
 *     bench_open(&bench, "name", seconds, argc, argv);
 *     raw = bench_figure(&bench, "raw", NULL);
 *     ours = bench_figure(&bench, "ours", raw);
 *     while (bench_round(&bench))
 *         ... bench_add(raw, ns) ... bench_add(ours, ns) ...
 *     return bench_close(&bench);
 *
 * It prints a table, then a line of JSON for each figure. With --lines these go to a file instead,
 * with every round, for bench/run. A benchmark fails (exit status 1) if the measured operation does
 * the wrong thing, never because of a time.
 */
#ifndef WEIR_BENCH_H
#define WEIR_BENCH_H

#include "lib/clock.h"
#include "lib/require.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { BENCH_FIGURES = 96, BENCH_ROUNDS = 200, BENCH_NAME = 64 };

/* Times of one figure in one round, ns. */
struct bench_sums {
    double min, median, p99, max;
};

struct bench_figure {
    char name[BENCH_NAME];
    const struct bench_figure *baseline; /* may be NULL */
    double *samples;                     /* samples of this round */
    size_t samples_n, samples_room;
    struct bench_sums rounds[BENCH_ROUNDS]; /* median 0: not measured */
};

/* A figure without a baseline, or one that is not a time. */
struct bench_value {
    char name[BENCH_NAME];
    const char *unit;
    double value;
};

struct bench {
    const char *name;
    /* Options of the command line. */
    double seconds;      /* --seconds: begin no round that would end later */
    unsigned rounds_max; /* --rounds */
    unsigned samples;    /* --samples: per figure and round; 0: as the benchmark likes */
    const char *only;    /* --only: figures with this in their names, and baselines; or NULL */
    FILE *lines;         /* --lines: a file for the lines of JSON, with every round; or NULL */
    int argc;            /* remaining arguments: the benchmark's own */
    char **argv;

    struct bench_figure *figures[BENCH_FIGURES];
    struct bench_value values[BENCH_FIGURES];
    unsigned figures_n, values_n;
    unsigned rounds; /* finished rounds */
    bool begun;
    uint64_t start_ns;
};

/* Reads the command line; a mistake in it ends the process with status 2. */
void bench_open(struct bench *bench, const char *name, double seconds, int argc, char **argv);

/* Creates a figure, owned by the harness. `baseline` was created before, or is NULL. */
struct bench_figure *bench_figure(struct bench *bench, const struct bench_figure *baseline,
                                  const char *name, ...) __attribute__((format(printf, 3, 4)));

/* Returns true if --only selects this name. */
bool bench_wants(const struct bench *bench, const char *name);

/*
 * Ends a round, if one has begun. Returns true if there is another one: until the ratios, and the
 * medians without a baseline, stand still, or the time or number of rounds is up. There is always
 * one.
 */
bool bench_round(struct bench *bench);

/* Returns the number of samples of each figure in a round. */
unsigned bench_samples(const struct bench *bench, unsigned otherwise);

/* Records the time of one operation in this round. */
void bench_add(struct bench_figure *figure, double ns);

/* Records a value that was measured once. `unit` is not copied. */
void bench_value(struct bench *bench, double value, const char *unit, const char *name, ...)
    __attribute__((format(printf, 4, 5)));

/* Reports that a figure cannot be measured here, and why: a text, or a negative errno. */
void bench_skip(const char *name, const char *why);
void bench_skip_errno(const char *name, int error);

/* Prints everything and frees it. Returns the program's exit status. */
int bench_close(struct bench *bench);

/* Opens an instance by weir_open(). An error ends the process with a message. */
weir *bench_instance(const struct weir_options *options);
/* Opens a pool of this new set alone; the plugins must be there. An error ends the process. */
weir_pool *bench_pool_of(weir *w, const struct weir_set_spec *set);
/* Opens a pool of a set with these limits and nothing else. An error ends the process. */
weir_pool *bench_pool(weir *w, const char *name, const struct weir_limit_spec *limits, size_t n);

/* Returns the number of processors that this process may use. */
unsigned bench_processors(void);
/* Binds the calling thread to one of them, counted from 0; to the last if there are not so many. */
void bench_pin(unsigned processor);
/* Lets the calling thread run on all processors again. */
void bench_unpin(void);
/* Starts a thread that is bound to a processor from the beginning. */
pthread_t bench_start(unsigned processor, void *(*run)(void *argument), void *argument);
/* Spins for a time without giving up the processor, unless there is only one. */
void bench_spin(uint64_t ns);
/* Pauses inside a loop that waits for another thread. */
void bench_yield(void);

#endif

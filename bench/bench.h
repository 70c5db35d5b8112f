/* SPDX-License-Identifier: MIT */
/*
 * What every benchmark needs: a clock, processors, figures, and a report.
 *
 * Figures of one machine differ by a factor of two from run to run, so none is worth anything alone.
 * A benchmark goes in rounds; in each it measures every figure a number of times, and beside it the
 * bare primitive that the figure is compared with, its baseline. A round gives each figure a median
 * and a 99th percentile, and the ratio of these to the baseline's of the same round. What is
 * reported are the medians over the rounds, so that a disturbance spoils a round, not the result.
 *
 *     bench_open(&bench, "name", seconds, argc, argv);
 *     raw = bench_figure(&bench, "raw", NULL);
 *     ours = bench_figure(&bench, "ours", raw);
 *     while (bench_round(&bench))
 *         ... bench_add(raw, ns) ... bench_add(ours, ns) ...
 *     return bench_close(&bench);
 *
 * It prints a table, then a line of JSON for each figure. With --lines these go to a file instead,
 * and tell of every round: what bench/run reads. A benchmark fails (exit status 1) if what it
 * measures does the wrong thing, never because of a time.
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

/* Of one figure in one round, in ns. */
struct bench_sums {
    double min, median, p99, max;
};

struct bench_figure {
    char name[BENCH_NAME];
    const struct bench_figure *baseline; /* or NULL: nothing to compare with */
    double *samples;                     /* of this round */
    size_t samples_n, samples_room;
    struct bench_sums rounds[BENCH_ROUNDS]; /* a median of 0: not measured */
};

/* Something that has no baseline, or is not a time. */
struct bench_value {
    char name[BENCH_NAME];
    const char *unit;
    double value;
};

struct bench {
    const char *name;
    /* From the command line. */
    double seconds;      /* --seconds: begin no round that would end later */
    unsigned rounds_max; /* --rounds */
    unsigned samples;    /* --samples: per figure and round; 0: as the benchmark likes */
    const char *only;    /* --only: figures with this in their names, and baselines; or NULL */
    FILE *lines;         /* --lines: a file for the lines of JSON, with every round; or NULL */
    int argc;            /* what is left: the benchmark's own */
    char **argv;

    struct bench_figure *figures[BENCH_FIGURES];
    struct bench_value values[BENCH_FIGURES];
    unsigned figures_n, values_n;
    unsigned rounds; /* that are over */
    bool begun;
    uint64_t start_ns;
};

/* Reads the command line; a mistake in it ends the process with status 2. */
void bench_open(struct bench *bench, const char *name, double seconds, int argc, char **argv);

/* A new figure, the harness's. `baseline` comes before, or is NULL. */
struct bench_figure *bench_figure(struct bench *bench, const struct bench_figure *baseline,
                                  const char *name, ...) __attribute__((format(printf, 3, 4)));

/* Whether --only leaves this name in. */
bool bench_wants(const struct bench *bench, const char *name);

/*
 * Ends a round, if one has begun, and says whether to go on to another: until the ratios, and the
 * medians that are compared with nothing, stand still, or the time or number of rounds is up. There
 * is always one.
 */
bool bench_round(struct bench *bench);

/* How often to measure each figure in a round. */
unsigned bench_samples(const struct bench *bench, unsigned otherwise);

/* Takes down what one operation took in this round. */
void bench_add(struct bench_figure *figure, double ns);

/* Takes down something that was measured once. `unit` is not copied. */
void bench_value(struct bench *bench, double value, const char *unit, const char *name, ...)
    __attribute__((format(printf, 4, 5)));

/* Says that something cannot be measured here, and why: a text, or a negative errno. */
void bench_skip(const char *name, const char *why);
void bench_skip_errno(const char *name, int error);

/* Prints everything and frees it. Returns the program's exit status. */
int bench_close(struct bench *bench);

/* An instance, as by weir_open(). This and the next two end the process if it does not work, and say
 * why. */
weir *bench_instance(const struct weir_options *options);
/* A pool of this new set alone; the plugins must be there. */
weir_pool *bench_pool_of(weir *w, const struct weir_set_spec *set);
/* The same of a set that is nothing but these limits. */
weir_pool *bench_pool(weir *w, const char *name, const struct weir_limit_spec *limits, size_t n);

/* How many processors this process may use. */
unsigned bench_processors(void);
/* Binds the calling thread to one of them, counted from 0; to the last if there are not so many. */
void bench_pin(unsigned processor);
/* Lets it run on all of them again. */
void bench_unpin(void);
/* Starts a thread that is bound to one of them from the first. */
pthread_t bench_start(unsigned processor, void *(*run)(void *argument), void *argument);
/* Lets this time go by on this thread without giving up its processor, unless it has but one. */
void bench_spin(uint64_t ns);
/* Inside a loop that waits for another thread. */
void bench_yield(void);

#endif

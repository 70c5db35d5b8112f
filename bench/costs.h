/* SPDX-License-Identifier: MIT */
/*
 * Common declarations of `costs`. The work is a table in costs_work.c; costs.c measures it by one
 * thread, costs_two.c by two.
 *
 * A further figure is a line in that table, a set in the text above it, and a loop if no other
 * fits. A line of configuration above the sets, a clock for example, is `top`; figures with equal
 * `top` share an instance.
 */
#ifndef WEIR_BENCH_COSTS_H
#define WEIR_BENCH_COSTS_H

#include "bench.h"
#include <semaphore.h>
#include <stdatomic.h>

/* Processors of the two threads. */
enum { HERE = 0, THERE = 1 };

/* The object of a work. Each primitive has a cache line of its own, with its parameters. */
struct object {
    struct {
        _Alignas(64) _Atomic uint64_t tat; /* GCRA as in the plugin */
        uint64_t unit_ns, depth_ns;
    } cell;
    _Alignas(64) sem_t semaphore;
    _Alignas(64) pthread_mutex_t mutex;
    weir_pool *pool;
};

/* A repeatable operation: a bare primitive, or calls of the library. */
struct work {
    const char *name;
    const char *baseline; /* name of an earlier work; NULL: this is bare */
    const char *set;      /* name in the configuration; NULL: this is bare */
    void (*loop)(struct object *object, unsigned n); /* repeats it `n` times */
    void (*prepare)(struct object *object);          /* or NULL */
    const char *top; /* line of the configuration above the sets; may be NULL */
    bool refused;    /* nothing is granted in the loop */
    bool two;        /* measured with two threads as well, if there are two processors */
};

/* Greatest share of the slower of two threads, in thousandths. */
enum { SHARES = 500 };

/* A work and its results. */
struct lane {
    const struct work *work;
    struct lane *baseline;
    struct object *object;
    struct bench_figure *alone, *two, *single; /* NULL: not measured */
    uint64_t done;                             /* operations in all */
    unsigned shares[SHARES + 1];               /* runs by the slower thread's share */
};

enum { LANES_MAX = 32 };

struct lanes {
    struct lane items[LANES_MAX];
    unsigned n;
};

/* All works (costs_work.c), each after its baseline; the last has no name. */
extern const struct work works[];
struct object *object_new(const struct work *work);
/* Requires that grants equal operations and that nothing is held, and frees the object. */
void object_free(struct object *object, const struct work *work, uint64_t done);

/* Runs a round of all works with two threads (costs_two.c). */
void two_round(struct lanes *lanes, unsigned samples);

#endif

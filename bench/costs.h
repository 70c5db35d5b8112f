/* SPDX-License-Identifier: MIT */
/*
 * What the parts of `costs` have in common. What is measured is a table in costs_work.c; alone it
 * is measured in costs.c, two threads at a time in costs_two.c.
 *
 * A further figure is a line in that table, a set in the text above it, and a loop if no other does
 * the same. What has to be said above the sets, a clock for example, is `top`; figures with the
 * same `top` share an instance.
 */
#ifndef WEIR_BENCH_COSTS_H
#define WEIR_BENCH_COSTS_H

#include "bench.h"
#include <semaphore.h>
#include <stdatomic.h>

/* Where who is at work. */
enum { HERE = 0, THERE = 1 };

/* What a work is done on. Each primitive has a cache line of its own, with what it goes by. */
struct object {
    struct {
        _Alignas(64) _Atomic uint64_t tat; /* GCRA, as the plugin has it */
        uint64_t unit_ns, depth_ns;
    } cell;
    _Alignas(64) sem_t semaphore;
    _Alignas(64) pthread_mutex_t mutex;
    weir_pool *pool;
};

/* Something that can be done again and again: with a bare primitive, or by the library. */
struct work {
    const char *name;
    const char *baseline; /* another's name, before it in the table; or NULL: is bare */
    const char *set;      /* of the configuration; or NULL: is bare */
    void (*loop)(struct object *object, unsigned n); /* does it `n` times */
    void (*prepare)(struct object *object);          /* or NULL */
    const char *top; /* a line of the configuration, above the sets; or NULL */
    bool refused;    /* nothing is granted in the loop */
    bool two;        /* measured with two threads as well, if there are two processors */
};

/* Of what both do one may do up to a half, in thousandths, without being the faster. */
enum { SHARES = 500 };

/* A work and what came of it. */
struct lane {
    const struct work *work;
    struct lane *baseline;
    struct object *object;
    struct bench_figure *alone, *two, *single; /* NULL: not wanted */
    uint64_t done;                             /* operations, in all */
    unsigned shares[SHARES + 1];               /* runs by the slower thread's share */
};

enum { LANES_MAX = 32 };

struct lanes {
    struct lane items[LANES_MAX];
    unsigned n;
};

/* costs_work.c: all works, each after its baseline; the last has no name. */
extern const struct work works[];
struct object *object_new(const struct work *work);
/* Requires that what was granted is what was done, and that nothing is left. */
void object_free(struct object *object, const struct work *work, uint64_t done);

/* costs_two.c: a round of all that two threads do at a time. */
void two_round(struct lanes *lanes, unsigned samples);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Measures the memory of sets and acquisitions: the growth of a process, page tables included. Each
 * is measured in a process of its own, which first returns its unused pages to the system.
 *
 *     memory [N]
 *
 * measures with N of each (10000).
 */
#include "bench.h"

#include "weigh.h"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_MAX 10000u /* the text of more sets would be too long */

#define RATE  "{ type: rate, key: tokens, algorithm: gcra, capacity: 10000000, window: 1s }"
#define CALL  "{ type: call, algorithm: gcra, capacity: 10000000, window: 1s }"
#define SLOTS "{ type: resource, key: slots, capacity: 10000000 }"

struct kind {
    const char *name, *limits;
    size_t asked_n; /* 1: requests name tokens; 0: they do not */
};

static const struct kind kinds[] = {{"one rate", RATE, 1},
                                    {"one resource", SLOTS, 0},
                                    {"three limits", RATE ", " CALL ", " SLOTS, 1}};

/* Returns the memory in use, after unused pages were returned: reuse of them would hide growth. */
static double used_now(void)
{
    malloc_trim(0);
    return weigh_now();
}

static weir *open_sets(const struct kind *kind, unsigned n)
{
    size_t size = 64 + n * (strlen(kind->limits) + 48), length;
    char *text = malloc(size);
    struct weir_options options = {.size = sizeof(options), .text = text};
    weir *w;

    require(text);
    length = (size_t)snprintf(text, size, "version: 1\nsets:\n");
    for (unsigned i = 0; i < n; i++)
        length += (size_t)snprintf(text + length, size - length, "  s%u: { limits: [ %s ] }\n", i,
                                   kind->limits);
    w = bench_instance(&options);
    free(text);
    return w;
}

static weir_pool *open_pool(weir *w, unsigned i)
{
    char name[16];
    weir_pool *pool;

    snprintf(name, sizeof(name), "s%u", i);
    require(weir_pool_open(&pool, w, name, 0, NULL) == 0);
    return pool;
}

static weir_acquisition *acquire(const struct kind *kind, weir_pool *pool)
{
    const struct weir_amount token = {"tokens", 1};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &token, .amounts_n = kind->asked_n};
    weir_acquisition *acquisition;

    require(weir_try_acquire(pool, &request, &acquisition, NULL) == 0);
    return acquisition;
}

/* Weighs n sets of a configuration, after the memory of reading it was returned. */
static double weigh_idle(const struct kind *kind, unsigned n)
{
    double before;

    open_sets(kind, 1);
    before = used_now();
    open_sets(kind, n);
    return (used_now() - before) / n;
}

/* Weighs the opening of each of n sets as a pool. */
static double weigh_opened(const struct kind *kind, unsigned n)
{
    weir *w = open_sets(kind, n);
    double before;

    open_pool(w, 0);
    before = used_now();
    for (unsigned i = 1; i < n; i++)
        open_pool(w, i);
    return (used_now() - before) / (n - 1);
}

/* Releases without an update of the rate. */
static void give_back(weir_acquisition *acquisition)
{
    int r = weir_release(&acquisition);

    require(r == 0 || r == -EPROTO);
}

/* Weighs n acquisitions of one set, held by one thread. */
static double weigh_held(const struct kind *kind, unsigned n)
{
    weir *w = open_sets(kind, 1);
    weir_pool *pool = open_pool(w, 0);
    double before;

    acquire(kind, pool);
    before = used_now();
    for (unsigned i = 0; i < n; i++)
        acquire(kind, pool);
    return (used_now() - before) / n;
}

/* Weighs the first call of a thread on each of n sets that it has opened. */
static double weigh_used(const struct kind *kind, unsigned n)
{
    weir *w = open_sets(kind, n);
    weir_pool **pools = calloc(n, sizeof(*pools));
    double before;

    require(pools);
    for (unsigned i = 0; i < n; i++)
        pools[i] = open_pool(w, i);
    give_back(acquire(kind, pools[0]));
    before = used_now();
    for (unsigned i = 1; i < n; i++)
        give_back(acquire(kind, pools[i]));
    return (used_now() - before) / (n - 1);
}

static const struct {
    const char *name;
    double (*weigh)(const struct kind *kind, unsigned n);
} works[] = {{"an idle set", weigh_idle},
             {"a pool of a set", weigh_opened},
             {"a set and a thread that uses it", weigh_used},
             {"an acquisition held", weigh_held}};

struct load {
    size_t work;
    const struct kind *kind;
    unsigned n;
};

static void weigh(const void *argument, void *ret)
{
    const struct load *load = argument;

    *(double *)ret = works[load->work].weigh(load->kind, load->n);
}

static void measure(struct bench *bench, size_t work, const struct kind *kind, unsigned n)
{
    const struct load load = {work, kind, n};
    double bytes;

    weigh_apart(weigh, &load, &bytes, sizeof(bytes));
    bench_value(bench, bytes, "bytes each", "%s, %s", works[work].name, kind->name);
}

int main(int argc, char **argv)
{
    struct bench bench;
    unsigned long n = 10000;

    bench_open(&bench, "memory", 1, argc, argv);
    if (bench.argc > 0)
        n = strtoul(bench.argv[0], NULL, 10);
    require(n >= 2 && n <= N_MAX);
    for (size_t work = 0; work < sizeof(works) / sizeof(works[0]); work++)
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            if (bench_wants(&bench, works[work].name))
                measure(&bench, work, &kinds[i], (unsigned)n);
    while (bench_round(&bench))
        ;
    return bench_close(&bench);
}

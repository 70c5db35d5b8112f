/* SPDX-License-Identifier: MIT */
/* Measures operations on a private set and on a set that processes share. */
#include "process.h"

#include <errno.h>
#include <pthread.h>

enum { BATCH = 500, BATCHES = 60, WARM_UP = 4 };

/* Two sets of each kind: private and shared. Units come back faster than they are taken. */
#define RATE  "{ type: call, algorithm: gcra, capacity: 1000000000, window: 1s }"
#define SPENT "{ type: call, algorithm: gcra, capacity: 1, window: 24h }"
#define SLOTS "{ type: resource, key: slots, capacity: 1000 }"
#define THREE                                                                                      \
    RATE ", { type: call, key: more, algorithm: token_bucket, capacity: 1000000000, window: 1s"    \
         " }, " SLOTS
#define SETS(name, limits)                                                                         \
    "  thread_" name ": { limits: [ " limits " ] }\n"                                              \
    "  process_" name ": { backend: process, lifetime: users, limits: [ " limits " ] }\n"

static const char text[] = "version: 1\nsets:\n" SETS("rate", RATE) SETS("spent", SPENT)
    SETS("slots", SLOTS) SETS("three", THREE);

/* ---- the work ---- */

static void take(weir_pool *pool)
{
    require(weir_take(pool, NULL, NULL) == 0);
}

static void take_in_vain(weir_pool *pool)
{
    require(weir_take(pool, NULL, NULL) == -EAGAIN);
}

static void acquire_and_release(weir_pool *pool)
{
    weir_acquisition *acquisition;

    require(weir_try_acquire(pool, NULL, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

struct work {
    const char *name, *set;
    void (*once)(weir_pool *pool);
    bool alone_only;
};

static const struct work works[] = {
    {"take", "rate", take, false},
    {"take, refused", "spent", take_in_vain, true},
    {"acquire and release", "slots", acquire_and_release, false},
    {"the same, 3 limits", "three", acquire_and_release, false},
};

enum { WORKS = sizeof(works) / sizeof(works[0]), THREAD = 0, PROCESS = 1 };

static const char *const backends[] = {"thread", "process"};

/* ---- figures ---- */

static weir *w;
static weir_pool *pools[WORKS][2];
static struct bench_figure *alone[WORKS][2], *contended[WORKS][2];

static weir_pool *open_pool(weir *of, const struct work *work, int backend)
{
    char name[32];

    snprintf(name, sizeof(name), "%s_%s", backends[backend], work->set);
    return process_pool(of, name);
}

static void make_figures(struct bench *bench, const char *before, const struct work *work,
                         struct bench_figure *ret[2])
{
    char name[BENCH_NAME];

    snprintf(name, sizeof(name), "%s%s", before, work->name);
    if (!bench_wants(bench, name))
        return;
    ret[THREAD] = bench_figure(bench, NULL, "%s, thread", name);
    ret[PROCESS] = bench_figure(bench, ret[THREAD], "%s, process", name);
}

void costs_open(struct bench *bench)
{
    w = process_open(text, 0);
    for (int i = 0; i < WORKS; i++) {
        for (int backend = THREAD; backend <= PROCESS; backend++)
            pools[i][backend] = open_pool(w, &works[i], backend);
        if (works[i].once == take_in_vain)
            for (int backend = THREAD; backend <= PROCESS; backend++)
                take(pools[i][backend]);
        make_figures(bench, "", &works[i], alone[i]);
    }
    for (int i = 0; i < WORKS; i++)
        if (!works[i].alone_only)
            make_figures(bench, "two: ", &works[i], contended[i]);
}

void costs_close(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    for (int i = 0; i < WORKS; i++)
        for (int backend = THREAD; backend <= PROCESS; backend++) {
            require(weir_set_stats(weir_pool_set(pools[i][backend], 0), &stats, NULL, 0) > 0);
            require(stats.held == 0 && stats.waiting == 0);
            weir_pool_close(pools[i][backend]);
        }
    weir_close(w);
}

/* ---- alone ---- */

/* Runs one batch. Returns ns per operation. */
static double run_batch(const struct work *work, weir_pool *pool)
{
    uint64_t begin = clock_now();

    for (int i = 0; i < BATCH; i++)
        work->once(pool);
    return (double)(clock_now() - begin) / BATCH;
}

static void run_alone(const struct work *work, weir_pool *const of[2],
                      struct bench_figure *const figures[2], unsigned n)
{
    for (unsigned i = 0; figures[THREAD] && i < WARM_UP + n; i++)
        for (int backend = THREAD; backend <= PROCESS; backend++) {
            double ns = run_batch(work, of[backend]);

            if (i >= WARM_UP)
                bench_add(figures[backend], ns);
        }
}

/* ---- two at a time ---- */

/* A rival that does the work on the other processor: a thread or a process. */
struct rival {
    const struct work *work;
    weir_pool *pool; /* for a thread */
    atomic_uint runs, ends;
    _Alignas(64) _Atomic uint64_t done; /* operations */
};

static void compete(struct rival *rival, weir_pool *pool)
{
    uint64_t n = 0;

    process_say(&rival->runs, 1);
    while (!atomic_load_explicit(&rival->ends, memory_order_relaxed)) {
        rival->work->once(pool);
        atomic_store_explicit(&rival->done, ++n, memory_order_relaxed);
    }
}

static void *compete_as_thread(void *argument)
{
    struct rival *rival = argument;

    compete(rival, rival->pool);
    return NULL;
}

static void compete_as_process(void *argument)
{
    struct rival *rival = argument;
    weir *own = process_open(text, 0);
    weir_pool *pool = open_pool(own, rival->work, PROCESS);

    bench_pin(THERE);
    compete(rival, pool);
    weir_pool_close(pool);
    weir_close(own);
}

/* Runs one batch beside a rival. Returns ns of one participant per operation, over both. */
static double run_rival_batch(struct rival *rival, weir_pool *pool)
{
    uint64_t done = atomic_load_explicit(&rival->done, memory_order_relaxed);
    double ns = run_batch(rival->work, pool) * BATCH;

    done = atomic_load_explicit(&rival->done, memory_order_relaxed) - done;
    return 2 * ns / (double)(BATCH + done);
}

static void run_batches(struct rival *rival, weir_pool *pool, struct bench_figure *figure,
                        unsigned n)
{
    process_await(&rival->runs, 1);
    for (unsigned i = 0; i < WARM_UP + n; i++) {
        double ns = run_rival_batch(rival, pool);

        if (i >= WARM_UP)
            bench_add(figure, ns);
    }
    process_say(&rival->ends, 1);
}

static void run_threads(struct rival *rival, struct bench_figure *figure, unsigned n)
{
    pthread_t thread = bench_start(THERE, compete_as_thread, rival);

    run_batches(rival, rival->pool, figure, n);
    require(pthread_join(thread, NULL) == 0);
}

static void run_processes(struct rival *rival, struct bench_figure *figure, unsigned n)
{
    pid_t pid = process_start(compete_as_process, rival);

    run_batches(rival, rival->pool, figure, n);
    process_end(pid, 0);
}

static void run_contended(const struct work *work, weir_pool *const of[2],
                          struct bench_figure *const figures[2], unsigned n)
{
    for (int backend = THREAD; figures[THREAD] && backend <= PROCESS; backend++) {
        struct rival *rival = process_memory(sizeof(*rival));

        rival->work = work;
        rival->pool = of[backend];
        (backend == THREAD ? run_threads : run_processes)(rival, figures[backend], n);
        process_memory_free(rival, sizeof(*rival));
    }
}

void costs_round(const struct bench *bench)
{
    unsigned n = bench_samples(bench, BATCHES);

    for (int i = 0; i < WORKS; i++)
        run_alone(&works[i], pools[i], alone[i], n);
    for (int i = 0; i < WORKS; i++)
        run_contended(&works[i], pools[i], contended[i], n);
}

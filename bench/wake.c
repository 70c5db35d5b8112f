/* SPDX-License-Identifier: MIT */
/*
 * Measures the time from a release until the waiter runs, for each way of waiting, beside the bare
 * primitive that carries it; and the lateness of grants that only time makes, beside a bare timer.
 *
 *     wake [--seconds S] [--rounds N] [--samples N] [--only TEXT]
 *
 * Giver and waiter are threads on different processors. Each hand-over finds the waiter asleep, or
 * polling, and is timed from just before the release (or the bare write) until the
 * waiter knows the result, or that its descriptor is readable.
 */
#include "wake.h"

#include "late.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { WAYS = 32, WARM_UP = 5, PASSES = 5, GIVER = 0, WAITER = 1 };

/* Common to all ways. */
struct stage {
    weir *w;
    weir_pool *pool, *aside; /* one resource of capacity 1 each */
};

/* A way and its figure. */
struct lane {
    const struct way *way;
    struct bench_figure *figure;
    bool told; /* reported as unavailable */
};

/* One run of a way: two threads that take turns. */
struct run {
    struct hand hand;
    const struct way *way;
    unsigned n; /* hand-overs */
    uint64_t random;
    int stat_fd; /* /proc/…/stat of the waiter */

    /* Written by the giver; hand-overs are counted from 1. */
    _Alignas(64) atomic_uint held;
    atomic_uint given;
    uint64_t given_ns;

    /* Written by the waiter. */
    _Alignas(64) atomic_int opened; /* 1: yes; or a negative errno */
    atomic_uint asked, had;
    uint64_t had_ns;
    pid_t thread;
};

static void await(atomic_uint *word, unsigned value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        bench_yield();
}

static void say(atomic_uint *word, unsigned value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* ---- the waiter ---- */

static void take_one(struct run *run, unsigned i)
{
    const struct way *way = run->way;
    uint64_t now;

    await(&run->held, i);
    way->ask(&run->hand);
    say(&run->asked, i);
    way->wait(&run->hand);
    now = clock_now();
    require(atomic_load(&run->given) == i && now >= run->given_ns); /* never early */
    run->had_ns = now;
    way->settle(&run->hand);
    say(&run->had, i);
}

static void *waiter(void *argument)
{
    struct run *run = argument;
    int r;

    run->thread = gettid();
    r = run->way->open(&run->hand);
    atomic_store(&run->opened, r < 0 ? r : 1);
    for (unsigned i = 1; r == 0 && i <= run->n; i++)
        take_one(run, i);
    if (r == 0)
        await(&run->held, run->n + 1); /* the giver has finished the last one, too */
    run->way->close(&run->hand);
    return NULL;
}

/* ---- the giver ---- */

/* Returns the state of the waiter by the kernel: 'S' once it sleeps. */
static char state_of_waiter(const struct run *run)
{
    char line[256];
    ssize_t n = pread(run->stat_fd, line, sizeof(line) - 1, 0);
    const char *state;

    require(n > 0);
    line[n] = 0;
    state = strrchr(line, ')');
    require(state && state[1] == ' ');
    return state[2];
}

/*
 * Waits until the waiter sleeps. It is about to wait, so its next sleep is that wait. The kernel
 * reports it a moment before the thread is off its processor, hence the pause. The pause differs
 * each time, so as not to keep step with anything.
 */
static void await_sleep(struct run *run)
{
    while (!run->way->looks && state_of_waiter(run) != 'S')
        bench_yield();
    run->random = run->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    bench_spin(20 * US + (run->random >> 33) % (40 * US));
}

/* Makes one hand-over. Returns its time, ns. */
static uint64_t give_one(struct run *run, unsigned i)
{
    run->way->hold(&run->hand);
    say(&run->held, i);
    await(&run->asked, i);
    await_sleep(run);
    run->given_ns = clock_now();
    say(&run->given, i);
    run->way->give(&run->hand);
    await(&run->had, i);
    return run->had_ns - run->given_ns;
}

static void open_stat(struct run *run)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)run->thread);
    run->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
    require(run->stat_fd >= 0);
}

static int await_open(struct run *run)
{
    int r;

    while ((r = atomic_load(&run->opened)) == 0)
        bench_yield();
    return r < 0 ? r : 0;
}

static void give_all(struct run *run, struct bench_figure *figure)
{
    open_stat(run);
    for (unsigned i = 1; i <= run->n; i++) {
        uint64_t ns = give_one(run, i);

        if (i > WARM_UP)
            bench_add(figure, (double)ns);
    }
    say(&run->held, run->n + 1);
    close(run->stat_fd);
}

/* Runs a lane for one round. */
static int run_lane(const struct lane *lane, const struct stage *stage, unsigned n)
{
    struct run run = {.way = lane->way, .n = WARM_UP + n, .random = clock_now()};
    pthread_t thread;
    int r = 0;

    run.hand = (struct hand){.w = stage->w,
                             .pool = stage->pool,
                             .aside = stage->aside,
                             .event_fd = -1,
                             .epoll_fd = -1,
                             .inner_fd = -1};
    if (run.way->open_giver)
        r = run.way->open_giver(&run.hand);
    if (r < 0) {
        run.way->close(&run.hand);
        return r;
    }
    thread = bench_start(WAITER, waiter, &run);
    r = await_open(&run);
    if (r == 0)
        give_all(&run, lane->figure);
    require(pthread_join(thread, NULL) == 0);
    return r;
}

/* ---- iteration ---- */

struct lanes {
    struct lane items[WAYS];
    unsigned n;
};

static struct bench_figure *figure_of(const struct lanes *lanes, const struct way *way)
{
    for (unsigned i = 0; i < lanes->n; i++)
        if (lanes->items[i].way == way)
            return lanes->items[i].figure;
    return NULL;
}

/* Returns true if a way is wanted by itself or as a baseline. */
static bool wanted(const struct bench *bench, const struct way *const *ways, const struct way *way)
{
    if (bench_wants(bench, way->name))
        return true;
    for (; *ways; ways++)
        if ((*ways)->baseline == way && bench_wants(bench, (*ways)->name))
            return true;
    return false;
}

static void add_lanes(struct bench *bench, struct lanes *lanes, const struct way *const *ways)
{
    for (const struct way *const *at = ways; *at; at++) {
        const struct way *way = *at;

        if (!wanted(bench, ways, way))
            continue;
        require(lanes->n < WAYS);
        lanes->items[lanes->n++] = (struct lane){
            way, bench_figure(bench, figure_of(lanes, way->baseline), "%s", way->name), false};
    }
}

/* Reports once that a way is unavailable. */
static void tell(struct lane *lane, int r)
{
    if (r < 0 && !lane->told)
        bench_skip_errno(lane->way->name, r);
    lane->told |= r < 0;
}

/* Runs a little of each lane, forth and back: the machine drifts by more than the differences that
 * are measured. A machine that gives less time to a process that was busy, say, would favor the
 * first lanes, which are bare. */
static void run_all(struct lanes *lanes, const struct stage *stage, unsigned samples)
{
    for (unsigned i = 0; i < 2 * lanes->n; i++) {
        struct lane *lane = &lanes->items[i < lanes->n ? i : 2 * lanes->n - 1 - i];

        tell(lane, run_lane(lane, stage, samples));
    }
}

static void stage_open(struct stage *stage)
{
    const struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "one", .capacity = 1};

    stage->w = bench_instance(NULL);
    stage->pool = bench_pool(stage->w, "wake", &limit, 1);
    stage->aside = bench_pool(stage->w, "aside", &limit, 1);
}

/* Starts the timer thread, which inherits its processors, before a waiter is bound to one. */
static void start_keeper(struct stage *stage)
{
    weir_acquisition *held, *pending;

    require(weir_try_acquire(stage->pool, NULL, &held, NULL) == 0);
    require(weir_submit(stage->pool, NULL, &pending, NULL) == 1);
    require(weir_release(&pending) == 0);
    require(weir_release(&held) == 0);
}

/* Closes the stage; requires that nothing is held and no waiter is left. */
static void stage_close(struct stage *stage)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(stage->pool, 0), &stats, NULL, 0) == 1);
    require(stats.held == 0 && stats.waiting == 0);
    require(stats.released == stats.granted && stats.canceled == 1);
    require(weir_set_stats(weir_pool_set(stage->aside, 0), &stats, NULL, 0) == 1);
    require(stats.held == 0 && stats.waiting == 0);
    weir_pool_close(stage->aside);
    weir_pool_close(stage->pool);
    weir_close(stage->w);
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct stage stage;
    struct lanes lanes = {.n = 0};

    bench_open(&bench, "wake", 18, argc, argv);
    stage_open(&stage);
    start_keeper(&stage);
    add_lanes(&bench, &lanes, plain_ways);
#ifdef WEIR_BENCH_URING
    add_lanes(&bench, &lanes, uring_ways);
#else
    bench_skip("io_uring", "liburing was missing when this was built");
#endif
    late_open(&bench, stage.w);
    bench_pin(GIVER);
    while (bench_round(&bench)) {
        for (int pass = 0; pass < PASSES; pass++)
            run_all(&lanes, &stage, bench_samples(&bench, 30));
        late_round(bench_samples(&bench, 100), WAITER);
    }
    late_close();
    stage_close(&stage);
    return bench_close(&bench);
}

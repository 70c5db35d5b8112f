/* SPDX-License-Identifier: MIT */
/*
 * Random schedules in which processes stop and go on, on a clock of the test. Each process is an
 * instance; one that is stopped is not asked for anything, and not ticked. The others take, try,
 * submit, cancel, reap and release, and are ticked at each step of the clock. Then
 * - no call is refused for what is free: behind a refusal stands a head that can neither be granted
 *   nor is overdue, or there is too little without any waiters;
 * - while a running process waits, heads are ready or overdue and still there for 75 ms at most,
 * all such times together, and 75 ms more for each process that was stopped meanwhile;
 * - as many as join also leave: granted, timed out or canceled.
 *
 * WEIR_OPERATIONS: how many steps of the clock in all.
 */
#include "api/instance.h"
#include "lib/random.h"
#include "set/set_ops.h"
#include "shared.h"

#include <errno.h>
#include <stdio.h>

#define STEP       MS
#define STEPS      3000
#define DELAY_MAX  (75 * MS)
#define INSTANCES  6
#define PLACES_MAX 100
#define HOLDS_MAX  8
#define SCHEDULES  100

static uint64_t now = 1000 * SECOND;

static uint64_t read_now(void *userdata)
{
    (void)userdata;
    return now;
}

struct process {
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    weir_acquisition *pending[PLACES_MAX]; /* that wait with a descriptor */
    weir_acquisition *held[HOLDS_MAX];
    unsigned submitted, reaped, next_id;
    bool is_stopped, is_waiting;
    uint64_t late_ns, stops; /* of the schedule, when it began to wait */
};

static struct schedule {
    uint64_t seed, random;
    unsigned number, step;
    uint64_t capacity;
    bool is_resource;
    bool has_takes;   /* else only waiters attend to the wait queue */
    uint64_t late_ns; /* how long heads were ready or overdue, in all */
    uint64_t stops;
    struct process processes[INSTANCES];
} run;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("schedule %u, step %u, --seed %lu: not so: %s\n", run.number, run.step,         \
                   run.seed, #condition);                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t below(uint64_t n)
{
    return random_below(&run.random, n);
}

static const char *set_text(void)
{
    static const char *const limits[] = {
        "{ type: rate, key: n, algorithm: gcra, capacity: 1000, window: 1s, burst: 1 }",
        "{ type: rate, key: n, algorithm: token_bucket, capacity: 200, window: 1s, burst: 5 }",
        "{ type: rate, key: n, algorithm: sliding_window, capacity: 10, window: 20ms }",
        "{ type: resource, key: n, capacity: 3 }"};
    static const uint64_t capacities[] = {1, 5, 10, 3};
    static char text[512];
    uint64_t i = below(4);

    run.capacity = capacities[i];
    run.is_resource = i == 3;
    run.has_takes = below(2);
    snprintf(text, sizeof(text),
             "version: 1\nsets:\n  s:\n    backend: process\n    max_waiters: 300\n"
             "    limits:\n      - %s\n",
             limits[i]);
    return text;
}

static void process_open(struct process *process, const char *text)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_now};
    struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = shared_directory(), .clock = &clock};
    struct weir_error error;

    *process = (struct process){.is_stopped = false};
    if (weir_open(&process->w, &options, &error) < 0) {
        printf("weir_open: %s\n", error.message);
        exit(1);
    }
    process->pool = shared_pool(process->w, "s");
    CHECK(weir_queue_open(&process->queue, process->w, 4 * PLACES_MAX) == 0);
}

static weir_set *set_of(const struct process *process)
{
    return weir_pool_set(process->pool, 0);
}

/* ---- what must hold ---- */

struct head {
    bool exists, is_ready, is_overdue;
};

/* As any process sees it. Nothing else runs. */
static struct head look(const struct process *process)
{
    weir_set *set = set_of(process);
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limit;
    struct set_view view;
    struct head head = {false, false, false};

    set_snapshot(ctx, set, &view);
    thread_ctx_return(ctx);
    CHECK(weir_set_stats(set, &stats, &limit, 1) == 1);
    if (view.length) {
        const struct acq_record *r = set_record(set, view.head);
        uint64_t amount = record_load(&r->amounts[0]);
        uint64_t available = run.is_resource ? run.capacity - limit.held : limit.available;

        head.exists = true;
        head.is_ready = amount <= available;
        head.is_overdue = record_load(&r->deadline_ns) <= now;
    }
    return head;
}

static void check_refusal(const struct process *process, uint64_t n)
{
    struct head head = look(process);
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limit;

    CHECK(!head.is_ready && !head.is_overdue);
    CHECK(weir_set_stats(set_of(process), &stats, &limit, 1) == 1);
    if (!head.exists)
        CHECK(n > (run.is_resource ? run.capacity - limit.held : limit.available));
}

static bool waits(const struct process *process)
{
    bool has_pending = process->submitted > process->reaped;

    for (unsigned i = 0; i < PLACES_MAX; i++)
        if (process->pending[i] && weir_acquisition_result(process->pending[i]) == -EINPROGRESS)
            has_pending = true;
    return has_pending && !process->is_stopped;
}

/* After all running processes were ticked. */
static void check_delay(void)
{
    struct head head = look(&run.processes[0]);

    if (head.is_ready || head.is_overdue)
        run.late_ns += STEP;
    for (unsigned i = 0; i < INSTANCES; i++) {
        struct process *process = &run.processes[i];
        bool waited = process->is_waiting;

        process->is_waiting = waits(process);
        if (!process->is_waiting || !waited) {
            process->late_ns = run.late_ns;
            process->stops = run.stops;
        }
        CHECK(run.late_ns - process->late_ns <= DELAY_MAX * (1 + run.stops - process->stops));
    }
}

/* ---- what processes do ---- */

static void hold(struct process *process, weir_acquisition *acquisition)
{
    for (unsigned i = 0; run.is_resource && i < HOLDS_MAX; i++)
        if (!process->held[i]) {
            process->held[i] = acquisition;
            return;
        }
    weir_release(&acquisition);
}

static void reap(struct process *process)
{
    struct weir_completion done[16];
    int n;

    do {
        n = weir_queue_reap(process->queue, done, 16);
        CHECK(n >= 0);
        process->reaped += (unsigned)n;
        for (int i = 0; i < n; i++) {
            CHECK(done[i].result == 0 || done[i].result == -ETIMEDOUT ||
                  done[i].result == -ECANCELED || done[i].result == -ENOBUFS);
            if (done[i].acquisition)
                hold(process, done[i].acquisition);
        }
    } while (n == 16);
    for (unsigned i = 0; i < PLACES_MAX; i++) {
        weir_acquisition **at = &process->pending[i];

        if (!*at || weir_acquisition_result(*at) == -EINPROGRESS)
            continue;
        if (weir_acquisition_result(*at) == 0)
            hold(process, *at);
        else
            weir_release(at);
        *at = NULL;
    }
}

static const struct weir_request *request(struct shared_request *memory)
{
    uint64_t timeout = below(3) ? (1 + below(200)) * MS : WEIR_FOREVER;

    return shared_ask(memory, "n", 1 + below(run.capacity), timeout);
}

static void submit(struct process *process)
{
    struct shared_request memory;
    int r;

    if (below(2)) {
        if (process->submitted - process->reaped >= PLACES_MAX)
            return;
        r = weir_queue_submit(process->queue, process->pool, request(&memory), process->next_id++,
                              NULL, NULL);
        CHECK(r == 0);
        process->submitted++;
        return;
    }
    for (unsigned i = 0; i < PLACES_MAX; i++)
        if (!process->pending[i]) {
            r = weir_submit(process->pool, request(&memory), &process->pending[i], NULL);
            CHECK(r == 0 || r == 1 || r == -ENOBUFS);
            if (r == -ENOBUFS)
                process->pending[i] = NULL;
            return;
        }
}

static void cancel(struct process *process)
{
    weir_acquisition *acquisition = process->pending[below(PLACES_MAX)];

    if (below(2) && process->next_id)
        weir_queue_cancel(process->queue, below(process->next_id));
    else if (acquisition)
        weir_cancel(acquisition);
}

static void take(struct process *process)
{
    uint64_t n = 1 + below(run.capacity);
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r;

    if (run.is_resource || below(2)) {
        r = weir_try_acquire(process->pool, shared_ask(&memory, "n", n, 0), &acquisition, NULL);
        if (r == 0)
            hold(process, acquisition);
    } else {
        r = weir_take(process->pool, shared_ask(&memory, "n", n, 0), NULL);
    }
    CHECK(r == 0 || r == -EAGAIN);
    if (r == -EAGAIN)
        check_refusal(process, n);
}

static void release(struct process *process)
{
    for (unsigned i = 0; i < HOLDS_MAX; i++)
        if (process->held[i] && below(3) == 0)
            weir_release(&process->held[i]);
}

static void act(struct process *process)
{
    switch (below(12)) {
    case 0:
        for (uint64_t n = 1 + below(PLACES_MAX) / (1 + below(PLACES_MAX)); n > 0; n--)
            submit(process);
        break;
    case 1:
        cancel(process);
        break;
    case 2:
    case 3:
        if (run.has_takes)
            take(process);
        break;
    default:
        release(process);
    }
}

static void step(void)
{
    now += STEP;
    for (unsigned i = 0; i < INSTANCES; i++) {
        struct process *process = &run.processes[i];

        if (below(process->is_stopped ? 300 : 600) == 0) {
            process->is_stopped = !process->is_stopped;
            run.stops += process->is_stopped;
        }
        if (process->is_stopped)
            continue;
        CHECK(weir_tick(process->w) >= 0);
        reap(process);
        if (below(4) == 0)
            act(process);
    }
    check_delay();
}

/* All go on, and release whatever they get, until none waits. */
static void finish(void)
{
    struct weir_set_stats stats;
    unsigned left = STEPS;

    do {
        now += 10 * STEP;
        for (unsigned i = 0; i < INSTANCES; i++) {
            struct process *process = &run.processes[i];

            process->is_stopped = false;
            weir_tick(process->w);
            reap(process);
            for (unsigned k = 0; k < HOLDS_MAX; k++)
                weir_release(&process->held[k]);
        }
        stats = shared_stats(run.processes[0].pool);
    } while ((stats.waiting || stats.held) && left-- > 0);
    CHECK(!stats.waiting && !stats.held);
    for (unsigned i = 0; i < INSTANCES; i++) {
        struct process *process = &run.processes[i];

        reap(process);
        CHECK(process->submitted == process->reaped);
        for (unsigned k = 0; k < HOLDS_MAX; k++)
            weir_release(&process->held[k]);
        weir_queue_close(process->queue);
        weir_pool_close(process->pool);
        weir_close(process->w);
    }
}

#define FIRST_PLACES 50u

/* All that wait are behind one that is stopped with many places. */
static void stop_the_first(void)
{
    static const char text[] =
        "version: 1\nsets:\n  s:\n    backend: process\n    limits:\n"
        "      - { type: rate, key: n, algorithm: gcra, capacity: 1000, window: 1s, burst: 1 }\n";
    struct shared_request memory;

    run = (struct schedule){.capacity = 1};
    for (unsigned i = 0; i < INSTANCES; i++)
        process_open(&run.processes[i], text);
    for (unsigned i = 0; i < FIRST_PLACES + INSTANCES - 1; i++) {
        struct process *process = &run.processes[i < FIRST_PLACES ? 0 : i - FIRST_PLACES + 1];

        CHECK(weir_queue_submit(process->queue, process->pool,
                                shared_ask(&memory, "n", 1, WEIR_FOREVER), process->next_id++, NULL,
                                NULL) == 0);
        process->submitted++;
    }
    run.processes[0].is_stopped = true;
    run.stops = 1;
    for (run.step = 0; run.step < STEPS; run.step++) {
        now += STEP;
        for (unsigned i = 1; i < INSTANCES; i++) {
            CHECK(weir_tick(run.processes[i].w) >= 0);
            reap(&run.processes[i]);
        }
        check_delay();
    }
    finish();
}

int main(int argc, char **argv)
{
    uint64_t seed = random_seed_of(argc, argv),
             schedules = 1 + random_operations(SCHEDULES * STEPS) / STEPS;

    printf("--seed %lu\n", seed);
    shared_begin();
    stop_the_first();
    shared_end();
    for (run.number = 0; run.number < schedules; run.number++) {
        const char *text;

        run = (struct schedule){
            .seed = seed, .number = run.number, .random = random_case(seed, run.number)};
        shared_begin();
        text = set_text();
        for (unsigned i = 0; i < INSTANCES; i++)
            process_open(&run.processes[i], text);
        for (run.step = 0; run.step < STEPS; run.step++)
            step();
        finish();
        shared_end();
    }
    return 0;
}

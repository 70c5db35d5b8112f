/* SPDX-License-Identifier: MIT */
/*
 * More threads than processors on one set of two limits, as fast as they can: they take turns
 * (core/state/contention.h), of which only two threads at a time can be part. Checked by a log of
 * all grants: the rate keeps its bound, and no more is held than there is. Each thread comes to its
 * end, and none needs much more of a processor's time than another for what it does.
 *
 *     test_crowd private|shared      WEIR_OPERATIONS of each thread
 */
#include "lib/history.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <weir/weir.h>

enum { THREADS_MAX = 16, SLOTS = 3, STUCK_S = 240 };
/* None comes to less for its time of a processor than so much of what all do, by so many steps. */
enum { SHARE_MIN_PERCENT = 20, OPERATIONS_MIN = 1000 };
#define TOKENS_BURST    1000u
#define TOKENS_CAPACITY UINT64_C(500000)

static char directory[TMPDIR_SIZE];
static weir_pool *pool;
static uint64_t operations;
static atomic_uint held;
static pthread_barrier_t begin;

struct worker {
    pthread_t thread;
    uint64_t random, cpu_ns, granted;
    struct history history;
};

static uint64_t cpu_now(void)
{
    struct timespec t;

    require(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static weir *open_set(const char *backend)
{
    const char text[] = "version: 1\nsets:\n  crowd:\n    backend: %s\n    limits:\n"
                        "      - { type: rate, key: tokens, algorithm: token_bucket,"
                        " capacity: 500k, window: 1s, burst: 1000 }\n"
                        "      - { type: resource, key: slots, capacity: 3 }\n";
    char filled[sizeof(text) + 16];
    struct weir_options options = {
        .size = sizeof(options), .text = filled, .process_dir = directory};
    struct weir_error error = {0};
    weir *w = NULL;

    snprintf(filled, sizeof(filled), text, backend);
    if (weir_open(&w, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        require(!"weir_open");
    }
    require(weir_pool_open(&pool, w, "crowd", WEIR_WORKER_AUTO, NULL) == 0);
    return w;
}

/* Holds a slot, and a token or none, for as long as nothing takes. */
static void hold(weir_acquisition *acquisition, uint64_t tokens)
{
    require(atomic_fetch_add(&held, 1) < SLOTS);
    atomic_fetch_sub(&held, 1);
    if (tokens)
        require(weir_update(acquisition, "tokens", tokens) == 0);
    require(weir_release(&acquisition) == 0 && !acquisition);
}

static void step(struct worker *me)
{
    const uint64_t way = random_below(&me->random, 64);
    const struct weir_amount amounts[] = {{"tokens", way % 2}, {"slots", way >= 24}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2, .timeout_ns = WEIR_FOREVER};
    struct event event = {.lo = clock_now(), .amounts = {(uint32_t)amounts[0].amount}};
    weir_acquisition *acquisition = NULL;
    int r;

    if (way < 24)
        r = weir_take(pool, &request, NULL);
    else if (way < 62)
        r = weir_try_acquire(pool, &request, &acquisition, NULL);
    else
        r = weir_acquire(pool, &request, &acquisition, NULL);
    event.hi = clock_now();
    require(r == 0 || (r == -EAGAIN && way < 62));
    if (r == 0) {
        me->granted++;
        history_add(&me->history, &event);
    }
    if (acquisition)
        hold(acquisition, amounts[0].amount);
}

static void *work(void *argument)
{
    struct worker *me = argument;
    uint64_t before;

    pthread_barrier_wait(&begin);
    before = cpu_now();
    for (uint64_t i = 0; i < operations; i++)
        step(me);
    me->cpu_ns = cpu_now() - before;
    return NULL;
}

/* Requires that none has come to less per time of a processor than a part of what all did. */
static void check_shares(const struct worker *workers, unsigned n)
{
    uint64_t all_ns = 0, most_ns = 0;

    for (unsigned i = 0; i < n; i++) {
        all_ns += workers[i].cpu_ns;
        most_ns = workers[i].cpu_ns > most_ns ? workers[i].cpu_ns : most_ns;
    }
    printf("%2u threads: %" PRIu64 " ns for each operation, of one thread %" PRIu64 "\n", n,
           all_ns / n / operations, most_ns / operations);
    require(operations < OPERATIONS_MIN || most_ns / 100 * SHARE_MIN_PERCENT <= all_ns / n);
}

static void run(const char *backend, unsigned n)
{
    static struct worker workers[THREADS_MAX];
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct history history = {0};
    uint64_t granted = 0;
    weir *w;

    require(tmpdir_make(directory, NULL));
    w = open_set(backend);
    pthread_barrier_init(&begin, NULL, n);
    alarm(STUCK_S);
    for (unsigned i = 0; i < n; i++) {
        workers[i] = (struct worker){.random = random_case(test_seed, i)};
        require(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < n; i++) {
        require(pthread_join(workers[i].thread, NULL) == 0);
        granted += workers[i].granted;
        history_merge(&history, &workers[i].history);
    }
    pthread_barrier_destroy(&begin);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 2);
    require(stats.held == 0 && stats.waiting == 0 && stats.granted == granted);
    require(history_keeps_rate(&history, 0, TOKENS_BURST, TOKENS_CAPACITY, SECOND));
    check_shares(workers, n);
    history_free(&history);
    weir_pool_close(pool);
    weir_close(w);
    require(tmpdir_remove(directory));
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 && strcmp(argv[1], "shared") == 0 ? "process" : "thread";

    seed_begin();
    operations = random_operations(40000);
    for (unsigned n = 2; n <= THREADS_MAX; n += n < 4 ? 1 : n)
        run(backend, n);
    return 0;
}

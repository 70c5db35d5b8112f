/* SPDX-License-Identifier: MIT */
/*
 * The library on a Redis server: two instances, as two nodes would have them, each with threads
 * that block, try, submit, wait by a queue, cancel, take and reserve. Never is more held than there
 * is, every grant has a fencing token of its own, and nothing is held or waits in the end.
 *
 *     remote_crowd PLUGIN SOCKET [ROUNDS]
 */
#include "lib/random.h"
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#define MS         UINT64_C(1000000)
#define LONG_AFTER (20000 * MS) /* a wait that ends then would have been for ever */

enum { NODES = 2, THREADS = 3, CAPACITY = 4, FENCES_MAX = 1 << 20 };

struct node {
    weir *w;
    weir_pool *pool;
    weir_queue *queue;
    pthread_mutex_t queue_lock;
};

static struct node nodes[NODES];
static uint64_t rounds = 150;
static _Atomic uint64_t held, granted, refused, timed_out, canceled, taken;
static _Atomic uint64_t fences_n, fences[FENCES_MAX];

struct asker {
    pthread_t thread;
    struct node *node;
    uint64_t random;
};

static struct weir_request request_of(const struct weir_amount *amounts)
{
    return (struct weir_request){
        .size = sizeof(struct weir_request), .amounts = amounts, .amounts_n = 2};
}

/* What was granted: counts it as held for a moment, then gives it back. */
static void hold(struct asker *asker, weir_acquisition *acquisition, uint64_t amount)
{
    uint64_t fence = 0, n;

    require(weir_acquisition_fence(acquisition, &fence) == 0);
    n = atomic_fetch_add(&fences_n, 1);
    require(n < FENCES_MAX);
    atomic_store(&fences[n], fence);
    require(atomic_fetch_add(&held, amount) + amount <= CAPACITY);
    atomic_fetch_add(&granted, 1);
    if (random_below(&asker->random, 4) == 0)
        poll(NULL, 0, 1);
    atomic_fetch_sub(&held, amount);
    require(weir_release(&acquisition) == 0);
}

static void end_as(int r)
{
    require(r == -EAGAIN || r == -ETIMEDOUT || r == -ECANCELED);
    atomic_fetch_add(r == -EAGAIN ? &refused : r == -ETIMEDOUT ? &timed_out : &canceled, 1);
}

static void block(struct asker *asker, struct weir_request *request, uint64_t amount)
{
    weir_acquisition *acquisition = NULL;
    int r;

    request->timeout_ns =
        random_below(&asker->random, 4) ? LONG_AFTER : 1 + random_below(&asker->random, 2 * MS);
    r = weir_acquire(asker->node->pool, request, &acquisition, NULL);
    require(r != -ETIMEDOUT || request->timeout_ns != LONG_AFTER);
    if (r == 0)
        hold(asker, acquisition, amount);
    else
        end_as(r);
}

static void try(struct asker *asker, struct weir_request *request, uint64_t amount)
{
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(asker->node->pool, request, &acquisition, NULL);

    if (r == 0)
        hold(asker, acquisition, amount);
    else
        end_as(r);
}

/* Waits by the descriptor, or for a moment only. */
static void wait_by_descriptor(struct asker *asker, struct weir_request *request, uint64_t amount)
{
    weir_acquisition *acquisition = NULL;
    struct pollfd fd = {.events = POLLIN};
    int r = weir_submit(asker->node->pool, request, &acquisition, NULL);

    require(r >= 0);
    fd.fd = weir_acquisition_fd(acquisition);
    require(fd.fd >= 0);
    if (poll(&fd, 1, random_below(&asker->random, 3) ? 20000 : 1) == 0) {
        r = weir_cancel(acquisition);
        require(r == 0 || r == -EALREADY);
    }
    r = weir_acquisition_result(acquisition);
    if (r == 0) {
        hold(asker, acquisition, amount);
        return;
    }
    end_as(r);
    require(weir_release(&acquisition) == 0);
}

/* One thread of the node at a time has the queue. */
static void wait_by_queue(struct asker *asker, const struct weir_request *request, uint64_t amount)
{
    struct node *node = asker->node;
    struct weir_completion done;
    struct pollfd fd = {.fd = weir_queue_fd(node->queue), .events = POLLIN};
    int n;

    pthread_mutex_lock(&node->queue_lock);
    require(weir_queue_submit(node->queue, node->pool, request, 7, NULL, NULL) == 0);
    while ((n = weir_queue_reap(node->queue, &done, 1)) == 0)
        require(poll(&fd, 1, 20000) == 1);
    pthread_mutex_unlock(&node->queue_lock);
    require(n == 1 && done.user_data == 7);
    if (done.result == 0)
        hold(asker, done.acquisition, amount);
    else
        end_as(done.result);
}

static void *run(void *argument)
{
    struct asker *asker = argument;

    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t amount = 1 + random_below(&asker->random, CAPACITY);
        const struct weir_amount amounts[] = {{"slots", amount}, {"tokens", 0}};
        const struct weir_amount tokens[] = {{"slots", 0}, {"tokens", 1}};
        struct weir_request request = request_of(amounts), of_tokens = request_of(tokens);

        switch (random_below(&asker->random, 5)) {
        case 0:
            block(asker, &request, amount);
            break;
        case 1:
            try(asker, &request, amount);
            break;
        case 2:
            wait_by_descriptor(asker, &request, amount);
            break;
        case 3:
            wait_by_queue(asker, &request, amount);
            break;
        default:
            atomic_fetch_add(&taken, weir_take(asker->node->pool, &of_tokens, NULL) == 0);
        }
    }
    return NULL;
}

static void open_node(struct node *node, const char *plugin, const char *path)
{
    char set[256];

    snprintf(set, sizeof(set),
             "on_failure: wait, limits: [ { type: resource, key: slots, capacity: %d }, { type: "
             "rate, key: tokens, algorithm: gcra, capacity: 1k, window: 1s, burst: 5 } ]",
             CAPACITY);
    server_set_open(&node->w, &node->pool, plugin, path, "session: 2s", set);
    require(weir_queue_open(&node->queue, node->w, 8) == 0);
    pthread_mutex_init(&node->queue_lock, NULL);
}

/* A set that is new to a young server grants nothing for a session. */
static void await_grace(const struct node *node)
{
    const struct weir_amount amounts[] = {{"slots", CAPACITY}, {"tokens", 0}};
    struct weir_request request = request_of(amounts);
    weir_acquisition *acquisition = NULL;

    request.timeout_ns = LONG_AFTER;
    require(weir_acquire(node->pool, &request, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void check_fences(void)
{
    static uint64_t sorted[FENCES_MAX];
    uint64_t n = atomic_load(&fences_n);

    for (uint64_t i = 0; i < n; i++)
        sorted[i] = atomic_load(&fences[i]);
    qsort(sorted, n, sizeof(*sorted), compare);
    for (uint64_t i = 1; i < n; i++)
        require(sorted[i - 1] < sorted[i]);
}

/* The releases are on their way. */
static void await_quiet(const struct node *node)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];

    do {
        poll(NULL, 0, 1);
        require(weir_set_stats(weir_pool_set(node->pool, 0), &stats, limits, 2) == 2);
    } while (limits[0].held || stats.waiting);
    require(limits[0].available == CAPACITY);
    require(stats.held == 0);
}

int main(int argc, char **argv)
{
    struct asker askers[NODES * THREADS];

    require(argc >= 3);
    if (argc > 3)
        rounds = strtoull(argv[3], NULL, 10);
    seed_begin();
    for (int i = 0; i < NODES; i++)
        open_node(&nodes[i], argv[1], argv[2]);
    await_grace(&nodes[0]);
    for (int i = 0; i < NODES * THREADS; i++) {
        askers[i] = (struct asker){.node = &nodes[i % NODES],
                                   .random = random_case(test_seed, (uint64_t)i)};
        require(pthread_create(&askers[i].thread, NULL, run, &askers[i]) == 0);
    }
    for (int i = 0; i < NODES * THREADS; i++)
        require(pthread_join(askers[i].thread, NULL) == 0);
    check_fences();
    for (int i = 0; i < NODES; i++)
        await_quiet(&nodes[i]);
    printf("%" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64 " timed out, %" PRIu64
           " canceled, %" PRIu64 " taken\n",
           granted, refused, timed_out, canceled, taken);
    for (int i = 0; i < NODES; i++) {
        weir_queue_close(nodes[i].queue);
        weir_pool_close(nodes[i].pool);
        weir_close(nodes[i].w);
    }
    return 0;
}

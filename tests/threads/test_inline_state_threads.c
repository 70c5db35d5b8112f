/* SPDX-License-Identifier: MIT */
/*
 * Threads on a set that is inline while no thread waits. They ask in every way there is, so that a
 * wait queue forms and goes away all the time. Most of them wait for a grant that must come,
 * however long it takes: a waiter that is forgotten as the set changes its form waits a minute.
 * Never is more held than there is, nor granted than a rate allows, and in the end everything can
 * be had again. WEIR_SECONDS: for how long, each; WEIR_SEED.
 */
#include "lib/clock.h"
#include "lib/fixture.h"
#include "lib/history.h"
#include "lib/require.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <weir/weir.h>

#include <cmocka.h>

#define THREADS  6
#define PATIENCE (60 * SECOND) /* no waiter waits that long, unless it was forgotten */

static struct {
    weir *w;
    weir_pool *pool;
    uint64_t until_ns;
    uint32_t capacity; /* of the resource; 0: it is a rate */
    _Atomic int64_t held;
    _Atomic uint64_t gave_up;
    struct history history;
} run;

struct worker {
    uint64_t number, random;
    weir_queue *queue;
    struct history history;
};

static void wait_for(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    require(fd >= 0);
    while (poll(&poll_fd, 1, (int)(PATIENCE / MS)) < 0)
        require(errno == EINTR);
    require(poll_fd.revents == POLLIN);
}

/* Until it is granted, without a timeout of its own. */
static int submit_and_wait(const struct weir_request *request, weir_acquisition **ret)
{
    int r = weir_submit(run.pool, request, ret, NULL);

    if (r != 1)
        return r;
    wait_for(weir_acquisition_fd(*ret));
    return weir_acquisition_result(*ret);
}

/* What was granted, but not seen, goes back to a rate. */
static int submit_and_cancel(struct worker *worker, const struct weir_request *request,
                             weir_acquisition **ret)
{
    struct refund refund = {.lo = clock_now(), .amounts = {(uint32_t)request->amounts->amount}};
    int r = weir_submit(run.pool, request, ret, NULL);

    if (r != 1)
        return r;
    if (random_below(&worker->random, 2))
        sched_yield();
    r = weir_cancel(*ret);
    require(r == 0 || r == -EALREADY);
    r = weir_acquisition_result(*ret);
    refund.hi = clock_now();
    if (r < 0 && !run.capacity)
        history_add_refund(&worker->history, &refund);
    if (r < 0)
        require(r == -ECANCELED && weir_release(ret) == 0);
    return r;
}

static int queue_and_wait(struct worker *worker, const struct weir_request *request,
                          weir_acquisition **ret)
{
    struct weir_completion completion;
    int n;

    require(weir_queue_submit(worker->queue, run.pool, request, 1, NULL, NULL) == 0);
    while ((n = weir_queue_reap(worker->queue, &completion, 1)) == 0)
        wait_for(weir_queue_fd(worker->queue));
    require(n == 1);
    *ret = completion.acquisition;
    return completion.result;
}

static int ask(struct worker *worker, struct weir_request *request, weir_acquisition **ret)
{
    switch (random_below(&worker->random, 8)) {
    case 0:
        request->timeout_ns = random_below(&worker->random, 100) * US;
        return weir_acquire(run.pool, request, ret, NULL);
    case 1:
    case 2:
        return weir_try_acquire(run.pool, request, ret, NULL);
    case 3:
        return submit_and_wait(request, ret);
    case 4:
        return submit_and_cancel(worker, request, ret);
    case 5:
        return queue_and_wait(worker, request, ret);
    default:
        return weir_acquire(run.pool, request, ret, NULL);
    }
}

static void use(struct worker *worker, uint32_t amount, uint64_t asked_ns,
                weir_acquisition *granted)
{
    struct event event = {.lo = asked_ns, .hi = clock_now(), .amounts = {amount}};

    if (run.capacity)
        require(atomic_fetch_add(&run.held, amount) + amount <= run.capacity);
    else
        history_add(&worker->history, &event);
    if (random_below(&worker->random, 8) == 0)
        sched_yield();
    if (run.capacity)
        atomic_fetch_sub(&run.held, amount);
    else
        require(weir_update(granted, "limit", amount) == 0);
    require(weir_release(&granted) == 0);
}

static void step(struct worker *worker)
{
    uint32_t amount = 1 + (uint32_t)random_below(&worker->random, 2);
    const struct weir_amount amounts[] = {{"limit", amount}};
    struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .timeout_ns = PATIENCE};
    weir_acquisition *acquisition = NULL;
    uint64_t asked_ns = clock_now();
    int r = ask(worker, &request, &acquisition);

    if (r == 0) {
        use(worker, amount, asked_ns, acquisition);
        return;
    }
    require(r == -EAGAIN || r == -ECANCELED || (r == -ETIMEDOUT && request.timeout_ns != PATIENCE));
    atomic_fetch_add(&run.gave_up, r != -EAGAIN);
    if (random_below(&worker->random, 4) == 0)
        pause_ns(random_below(&worker->random, 50) * US); /* no thread may wait meanwhile */
}

/* A quarter of the time belongs to one thread alone, which finds no waiters. */
static bool rests(uint64_t number)
{
    return number && clock_now() / (5 * MS) % 4 == 0;
}

/* Returns whether the set did change its form: some waited, some gave up waiting, and many did not
 * have to. */
static bool has_changed_form(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(run.pool, 0), &stats, NULL, 0) == 1);
    return stats.granted_waited > 0 && stats.granted > stats.granted_waited && run.gave_up > 0;
}

/* Goes on until it has: a machine that stood still may begin after the time. */
static void *work(void *argument)
{
    struct worker *worker = argument;

    while (clock_now() < run.until_ns || !has_changed_form())
        if (rests(worker->number))
            pause_ns(MS);
        else
            step(worker);
    return NULL;
}

static void begin(const char *limit, uint32_t capacity)
{
    char text[256];
    struct weir_error error = {0};

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { limits: [ %s ] } }\n", limit);
    run.capacity = capacity;
    run.gave_up = 0;
    run.until_ns = clock_now() + number_from("WEIR_SECONDS", 1) * SECOND;
    if (weir_open(&run.w, &(struct weir_options){.size = sizeof(struct weir_options), .text = text},
                  &error) < 0)
        fail_msg("%s", error.message);
    require(weir_pool_open(&run.pool, run.w, "main", 0, NULL) == 0);
}

static void run_threads(void)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .random = random_case(test_seed, i)};
        require(weir_queue_open(&workers[i].queue, run.w, 1) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        require(pthread_join(threads[i], NULL) == 0);
        weir_queue_close(workers[i].queue);
        history_merge(&run.history, &workers[i].history);
    }
}

static void end(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(run.pool, 0), &stats, NULL, 0) == 1);
    print_message("granted %" PRIu64 ", after waiting %" PRIu64 ", gave up %" PRIu64 "\n",
                  stats.granted, stats.granted_waited, run.gave_up);
    require(stats.held == 0 && stats.waiting == 0);
    require(stats.granted == stats.released);
    weir_pool_close(run.pool);
    weir_close(run.w);
}

static void resource(uint32_t capacity)
{
    const struct weir_amount all[] = {{"limit", capacity}};
    const struct weir_request request = {.size = sizeof(request), .amounts = all, .amounts_n = 1};
    weir_acquisition *acquisition = NULL;
    char limit[80];

    snprintf(limit, sizeof(limit), "{ type: resource, key: limit, capacity: %" PRIu32 " }",
             capacity);
    begin(limit, capacity);
    run_threads();
    require(weir_try_acquire(run.pool, &request, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == 0);
    end();
}

static void a_resource_of_two(void **state)
{
    (void)state;
    resource(2);
}

static void a_resource_of_five(void **state)
{
    (void)state;
    resource(5);
}

#define BURST 4u
#define PER_S 20000u

static void a_rate(void **state)
{
    (void)state;
    begin("{ type: rate, key: limit, algorithm: gcra, capacity: 20000, window: 1s, burst: 4 }", 0);
    run_threads();
    require(history_keeps_rate(&run.history, 0, BURST, PER_S, SECOND));
    history_free(&run.history);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_resource_of_two),
        leak_checked_test(a_resource_of_five),
        leak_checked_test(a_rate),
    };

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * Threads that share a set of limits and block in weir_acquire until it is their turn: a worker
 * does a few jobs, each for a call, some tokens and a connection, all at once or not at all. Then
 * two callers that do not wait so long.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <weir/weir.h>

#define WORKERS         6
#define JOBS_PER_WORKER 5
#define CONNECTIONS     3 /* as in the configuration */
#define TOKENS_ASKED    40
#define TOKENS_USED     25
#define MS              ((uint64_t)1000000)

static const char text[] =
    "version: 1\n"
    "sets:\n"
    "  api:\n"
    "    config: { region: eu-central-1 }\n"
    "    limits:\n"
    "      - { type: call, algorithm: gcra, capacity: 200, window: 1s, burst: 10 }\n"
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 500, window: 1s,\n"
    "          burst: 200 }\n"
    "      - { type: resource, key: connections, capacity: 3 }\n";

static weir_pool *pool;
static atomic_int busy, busy_most, failures;

static void work(uint64_t ns)
{
    struct timespec left = {.tv_nsec = (long)ns};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Does one job: acquires everything it needs, works, reports the use, and releases. */
static int job(void)
{
    const struct weir_amount tokens = {"tokens", TOKENS_ASKED};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &tokens, .amounts_n = 1, .timeout_ns = 10000 * MS};
    weir_acquisition *acquisition = NULL;
    int together, most, e = weir_acquire(pool, &request, &acquisition, NULL);

    if (e < 0)
        return e;
    together = atomic_fetch_add(&busy, 1) + 1;
    most = atomic_load(&busy_most);
    while (together > most && !atomic_compare_exchange_weak(&busy_most, &most, together))
        ;
    work(5 * MS);
    atomic_fetch_sub(&busy, 1);
    e = weir_update(acquisition, "tokens", TOKENS_USED);
    if (e == 0)
        return weir_release(&acquisition);
    weir_release(&acquisition);
    return e;
}

static void *worker(void *unused)
{
    (void)unused;
    for (int i = 0; i < JOBS_PER_WORKER; i++)
        if (job() != 0)
            atomic_fetch_add(&failures, 1);
    return NULL;
}

static void run_workers(void)
{
    pthread_t threads[WORKERS];
    int n = 0;

    while (n < WORKERS && pthread_create(&threads[n], NULL, worker, NULL) == 0)
        n++;
    atomic_fetch_add(&failures, WORKERS - n);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    printf("%d workers did %d jobs each, %d of them failed, never more than 3 at a time: %s\n",
           WORKERS, JOBS_PER_WORKER, atomic_load(&failures),
           atomic_load(&busy_most) <= 3 ? "yes" : "no");
}

static void expect(const char *what, int result, int expected)
{
    printf("%s: %s\n", what, result == 0 ? "granted" : strerror(-result));
    if (result != expected)
        atomic_fetch_add(&failures, 1);
}

/* Takes all connections: one caller gives up after a while, another does not even wait. */
static void run_impatient(void)
{
    const struct weir_amount all[] = {{"tokens", 0}, {"connections", CONNECTIONS}};
    const struct weir_amount none_left[] = {{"tokens", 0}, {"connections", 1}};
    const struct weir_amount many[] = {{"tokens", 200}, {"connections", 0}};
    const struct weir_amount too_many[] = {{"tokens", 201}};
    struct weir_request request = {.size = sizeof(request), .amounts = all, .amounts_n = 2};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *holder = NULL, *other = NULL;

    expect("all connections", weir_acquire(pool, &request, &holder, NULL), 0);
    request.amounts = none_left;
    request.timeout_ns = 30 * MS;
    expect("one more, with a timeout", weir_acquire(pool, &request, &other, NULL), -ETIMEDOUT);
    expect("one more, at once", weir_try_acquire(pool, &request, &other, NULL), -EAGAIN);
    weir_release(&holder);
    expect("one more, now that they are back", weir_acquire(pool, &request, &other, NULL), 0);
    weir_release(&other);

    request.timeout_ns = WEIR_FOREVER;
    request.amounts = many;
    expect("200 tokens", weir_acquire(pool, &request, &other, NULL), 0);
    weir_update(other, "tokens", 200);
    weir_release(&other);
    request.max_wait_ns = MS;
    expect("200 more, within 1 ms", weir_acquire(pool, &request, &other, &refusal), -EAGAIN);
    printf("    %s says: %s\n", refusal.key, refusal.retry_after_ns > MS ? "later" : "?");
    request.amounts = too_many;
    request.amounts_n = 1;
    expect("more than the burst", weir_acquire(pool, &request, &other, NULL), -ERANGE);
}

int main(void)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    weir *w = NULL;
    int e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "api", 0, &error);
    if (e < 0) {
        fprintf(stderr, "blocking: %s\n", error.message[0] ? error.message : strerror(-e));
        return 1;
    }
    run_workers();
    run_impatient();
    weir_pool_close(pool);
    weir_close(w);
    return atomic_load(&failures) == 0 && atomic_load(&busy_most) <= CONNECTIONS ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
/*
 * Processes of many threads take from one rate on a Redis server for a while, by an algorithm that
 * they decide themselves or by one of the server's. Checks that no more was granted than the rate
 * allows, and prints how many decisions there were in a second, and calls of the server for each.
 *
 *     remote_foreign PLUGIN SOCKET ALGORITHM NODES THREADS MS RATE
 */
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

#define SECOND      UINT64_C(1000000000)
#define MS          UINT64_C(1000000)
#define THREADS_MAX 64
#define BURST       100

static struct {
    _Atomic uint64_t granted, refused, failed;
} * counts; /* of all processes */

static uint64_t end_ns;
static weir_pool *pool;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void *take(void *unused)
{
    (void)unused;
    while (now_ns() < end_ns) {
        struct weir_refusal refusal = {.size = sizeof(refusal)};
        int r = weir_take(pool, NULL, &refusal);

        require(r == 0 || r == -EAGAIN || r == -EHOSTUNREACH);
        atomic_fetch_add(r == 0         ? &counts->granted
                         : r == -EAGAIN ? &counts->refused
                                        : &counts->failed,
                         1);
    }
    return NULL;
}

static _Noreturn void node(char **argv, const char *limits, size_t threads_n)
{
    pthread_t threads[THREADS_MAX];
    weir *w;

    server_set_open(&w, &pool, argv[1], argv[2], "timeout: 60s, session: 60s", limits);
    for (size_t i = 0; i < threads_n; i++)
        require(pthread_create(&threads[i], NULL, take, NULL) == 0);
    for (size_t i = 0; i < threads_n; i++)
        pthread_join(threads[i], NULL);
    weir_pool_close(pool);
    weir_close(w);
    _exit(0);
}

/* How many functions the server was called for. */
static uint64_t calls_of(redisContext *link)
{
    redisReply *reply = redisCommand(link, "INFO commandstats");
    const char *at = reply && reply->str ? strstr(reply->str, "cmdstat_fcall:calls=") : NULL;
    uint64_t n = at ? strtoull(at + strlen("cmdstat_fcall:calls="), NULL, 10) : 0;

    freeReplyObject(reply);
    return n;
}

int main(int argc, char **argv)
{
    char limits[256];
    redisContext *link;
    uint64_t begin_ns, ms, rate, decided;
    size_t nodes;
    int status;

    require(argc == 8);
    nodes = strtoul(argv[4], NULL, 10);
    ms = strtoull(argv[6], NULL, 10);
    rate = strtoull(argv[7], NULL, 10);
    require(strtoul(argv[5], NULL, 10) <= THREADS_MAX);
    snprintf(limits, sizeof(limits),
             "limits: [ { type: call, key: k, algorithm: %s, capacity: %" PRIu64
             ", window: 1s, burst: %d } ]",
             argv[3], rate, BURST);
    counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(counts != MAP_FAILED);
    link = redisConnectUnix(argv[2]);
    require(link && !link->err);
    begin_ns = now_ns();
    end_ns = begin_ns + ms * MS;
    for (size_t i = 0; i < nodes; i++) {
        pid_t pid = fork();

        require(pid >= 0);
        if (pid == 0)
            node(argv, limits, strtoul(argv[5], NULL, 10));
    }
    for (size_t i = 0; i < nodes; i++) {
        require(wait(&status) > 0);
        require(status == 0);
    }
    decided = counts->granted + counts->refused;
    printf("%s, %zu nodes, %s threads: %" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64
           " failed; %" PRIu64 " decisions in a second, %" PRIu64 " calls for 100\n",
           argv[3], nodes, argv[5], counts->granted, counts->refused, counts->failed,
           decided * 1000 / ms, decided ? calls_of(link) * 100 / decided : 0);
    require(counts->granted > 0);
    require(counts->granted <= BURST + (now_ns() - begin_ns) / 1000 * rate / 1000000 + 1);
    redisFree(link);
    return 0;
}

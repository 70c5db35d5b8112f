/* SPDX-License-Identifier: MIT */
/*
 * Rounds of limits that instances decide, on a Redis server that is stopped and goes on: more
 * releases come up than a commit takes, while a request waits; and a commit is on its way for
 * longer than its window. A sliding window that is idle for most of its length between two bursts,
 * and an amount that is too large.
 *
 *     remote_rounds PLUGIN SOCKET PID
 */
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <weir/weir.h>

#define MS          UINT64_C(1000000)
#define PATIENCE_MS 60000 /* that a busy machine may take for anything */

enum { SINGLES = 127, UNITS = SINGLES + 3, CROWDS = 3 };
enum { WINDOW_MS = 2000, BURST = 20 };

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / MS;
}

static void sleep_until(uint64_t ms)
{
    while (now_ms() < ms)
        poll(NULL, 0, 1);
}

/* Acquires; what was released last may be on its way yet. */
static weir_acquisition *acquire(weir_pool *pool, uint64_t n)
{
    const struct weir_amount amounts[] = {{"units", n}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .timeout_ns = 60000 * MS};
    weir_acquisition *ret = NULL;

    require(weir_acquire(pool, &request, &ret, NULL) == 0);
    return ret;
}

static weir_acquisition *submit(weir_pool *pool, uint64_t n)
{
    const struct weir_amount amounts[] = {{"units", n}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .timeout_ns = 60000 * MS};
    weir_acquisition *ret = NULL;

    require(weir_submit(pool, &request, &ret, NULL) == 1);
    return ret;
}

static struct weir_set_stats stats_of(weir_pool *pool)
{
    struct weir_set_stats ret = {.size = sizeof(ret)};

    require(weir_set_stats(weir_pool_set(pool, 0), &ret, NULL, 0) >= 0);
    return ret;
}

/* The release of one is on its way to the server, which is stopped, as the others come up: the last
 * of them takes two places of a commit, and the request that waits one. */
static void release_a_crowd(weir_pool *pool, pid_t server)
{
    weir_acquisition *singles[SINGLES], *pair, *head;

    for (int i = 0; i < SINGLES; i++)
        singles[i] = acquire(pool, 1);
    pair = acquire(pool, 2);
    head = submit(pool, UNITS);
    while (stats_of(pool).waiting == 0)
        poll(NULL, 0, 1);
    require(kill(server, SIGSTOP) == 0);
    for (int i = 0; i < SINGLES; i++)
        require(weir_release(&singles[i]) == 0);
    require(weir_return(pair, "units", 1) == 0);
    require(weir_release(&pair) == 0);
    require(kill(server, SIGCONT) == 0);
    require(poll(&(struct pollfd){.fd = weir_acquisition_fd(head), .events = POLLIN}, 1,
                 PATIENCE_MS) == 1);
    require(weir_acquisition_result(head) == 0);
    require(weir_release(&head) == 0);
}

static void check_crowds(const char *plugin, const char *path, pid_t server)
{
    char set[192];
    uint64_t begin_ms = now_ms();
    weir *w;
    weir_pool *pool;

    snprintf(set, sizeof(set),
             "limits: [ { type: resource, key: units, algorithm: aimd, capacity: %d, floor: %d, "
             "initial: %d } ]",
             UNITS, UNITS, UNITS);
    server_set_open(&w, &pool, plugin, path, "prefix: crowds, timeout: 60s, session: 60s", set);
    for (int i = 0; i < CROWDS; i++)
        release_a_crowd(pool, server);
    while (stats_of(pool).held > 0)
        poll(NULL, 0, 1);
    require(now_ms() - begin_ms < PATIENCE_MS);
    weir_pool_close(pool);
    weir_close(w);
}

/* Takes as many as there are, at most what the window has. Notes when it began to take each one,
 * and when it had it. */
static size_t burst(weir_pool *pool, uint64_t (*times)[2])
{
    size_t n = 0;
    int r = 0;

    while (r == 0 && n < BURST) {
        uint64_t asked_ms = now_ms();

        r = weir_take(pool, NULL, NULL);
        require(r == 0 || r == -EAGAIN);
        if (r == 0) {
            times[n][0] = asked_ms;
            times[n++][1] = now_ms();
        }
    }
    return n;
}

/* An instant may be estimated, and lags behind then, but not by half a window. */
static void check_idle_window(const char *plugin, const char *path)
{
    char set[192];
    uint64_t times[1 + 2 * BURST][2], begin_ms;
    size_t n = 1;
    weir *w;
    weir_pool *pool;

    snprintf(set, sizeof(set),
             "limits: [ { type: call, key: calls, algorithm: copy_of_sliding_window, capacity: %d, "
             "window: %dms } ]",
             BURST, WINDOW_MS);
    server_set_open(&w, &pool, plugin, path, "timeout: 60s, session: 60s", set);
    times[0][0] = begin_ms = now_ms();
    require(weir_take(pool, NULL, NULL) == 0);
    times[0][1] = now_ms();
    sleep_until(begin_ms + WINDOW_MS * 3 / 4);
    n += burst(pool, times + n);
    sleep_until(times[0][1] + WINDOW_MS + 1);
    n += burst(pool, times + n);
    require(n > BURST);
    for (size_t i = 0; i + BURST < n; i++)
        require(times[i + BURST][1] - times[i][0] >= WINDOW_MS / 2);
    weir_pool_close(pool);
    weir_close(w);
}

/* A commit reaches the server a window after it was decided. What it grants is used from then on,
 * so it does not count as of before, or another window were full at once. */
static void check_late_commit(const char *plugin, const char *path, pid_t server)
{
    char set[192];
    const struct weir_amount all[] = {{"units", BURST}};
    const struct weir_request request = {.size = sizeof(request), .amounts = all, .amounts_n = 1};
    weir_acquisition *first = NULL, *second = NULL;
    uint64_t resumed_ms;
    weir *w;
    weir_pool *pool;
    int r;

    snprintf(set, sizeof(set),
             "limits: [ { type: rate, key: units, algorithm: copy_of_sliding_window, "
             "capacity: %d, window: %dms } ]",
             BURST + 1, WINDOW_MS);
    server_set_open(&w, &pool, plugin, path, "prefix: late, timeout: 60s, session: 60s", set);
    require(weir_release(&(weir_acquisition *){acquire(pool, 1)}) ==
            -EPROTO); /* the text is known */
    require(kill(server, SIGSTOP) == 0);
    first = submit(pool, BURST);
    sleep_until(now_ms() + WINDOW_MS + WINDOW_MS / 2);
    require(kill(server, SIGCONT) == 0);
    resumed_ms = now_ms();
    require(poll(&(struct pollfd){.fd = weir_acquisition_fd(first), .events = POLLIN}, 1,
                 PATIENCE_MS) == 1);
    require(weir_acquisition_result(first) == 0);
    r = weir_try_acquire(pool, &request, &second, NULL);
    require(r == -EAGAIN || (r == 0 && now_ms() - resumed_ms >= WINDOW_MS / 2));
    weir_release(&first);
    weir_release(&second);
    weir_pool_close(pool);
    weir_close(w);
}

/* More than the protocol has numbers for is refused, and no other request is. */
static void check_huge_amount(const char *plugin, const char *path)
{
    const struct weir_amount amounts[] = {{"units", UINT64_C(1) << 55}};
    const struct weir_request huge = {.size = sizeof(huge), .amounts = amounts, .amounts_n = 1};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *none = NULL, *one;
    weir *w;
    weir_pool *pool;

    server_set_open(&w, &pool, plugin, path, "prefix: huge, timeout: 60s, session: 60s",
                    "limits: [ { type: rate, key: units, algorithm: copy_of_fixed_window, "
                    "capacity: 72057594037927936, window: 1h } ]");
    require(weir_try_acquire(pool, &huge, &none, &refusal) == -ERANGE);
    one = acquire(pool, 1);
    require(weir_release(&one) == -EPROTO); /* its use was not reported */
    weir_pool_close(pool);
    weir_close(w);
}

int main(int argc, char **argv)
{
    require(argc == 4);
    check_idle_window(argv[1], argv[2]);
    check_huge_amount(argv[1], argv[2]);
    check_late_commit(argv[1], argv[2], (pid_t)strtol(argv[3], NULL, 10));
    check_crowds(argv[1], argv[2], (pid_t)strtol(argv[3], NULL, 10));
    return 0;
}

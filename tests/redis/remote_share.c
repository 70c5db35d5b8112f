/* SPDX-License-Identifier: MIT */
/*
 * `on_failure: local_share` on a Redis server that is stopped and goes on. Two instances are two
 * nodes. While the server is stopped each grants half of the limits; what was held before is lost
 * with its session. Afterwards the server decides again, and one node can have all.
 *
 *     remote_share PLUGIN SOCKET PID
 */
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#define MS          UINT64_C(1000000)
#define PATIENCE_MS 60000 /* that a busy machine may take for anything */

enum { NODES = 2, CAPACITY = 9, PART = CAPACITY / NODES };

static struct node {
    weir *w;
    weir_pool *pool;
} nodes[NODES];
static pid_t server;

static void open_node(struct node *node, const char *plugin, const char *path)
{
    char set[128];

    snprintf(set, sizeof(set),
             "on_failure: local_share, limits: [ { type: resource, key: slots, capacity: %d } ]",
             CAPACITY);
    server_set_open(&node->w, &node->pool, plugin, path, "session: 1s, timeout: 200ms", set);
}

static int try_acquire(const struct node *node, uint64_t amount, weir_acquisition **ret)
{
    const struct weir_amount amounts[] = {{"slots", amount}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1};

    return weir_try_acquire(node->pool, &request, ret, NULL);
}

/* Acquires; a server that was just started grants nothing for a session. */
static weir_acquisition *acquire(const struct node *node, uint64_t amount)
{
    weir_acquisition *acquisition = NULL;

    for (int i = 0; i < PATIENCE_MS && try_acquire(node, amount, &acquisition) < 0; i++)
        poll(NULL, 0, 1);
    require(acquisition);
    return acquisition;
}

static uint64_t granted_alone(const struct node *node)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    int r = 0;

    for (int i = 0; i < PATIENCE_MS; i++) {
        r = weir_set_stats(weir_pool_set(node->pool, 0), &stats, NULL, 0);
        if (r >= 0)
            return stats.granted_alone;
        poll(NULL, 0, 1);
    }
    fprintf(stderr, "weir_set_stats: %d\n", r);
    exit(1);
}

static void await_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    require(fd >= 0);
    require(poll(&poll_fd, 1, PATIENCE_MS) == 1);
}

/* Returns whether a node, while the server is stopped, has a part of the limits and no more. */
static int has_a_part(const struct node *node)
{
    weir_acquisition *acquisition = NULL;
    int r = try_acquire(node, PART + 1, &acquisition);

    require(r == 0 || r == -EHOSTUNREACH);
    require(weir_release(&acquisition) == 0);
    return r < 0;
}

/* Stops the server once all nodes know how many they are, which heartbeats tell. */
static void stop_server(void)
{
    for (;;) {
        require(kill(server, SIGSTOP) == 0);
        if (has_a_part(&nodes[0]) && has_a_part(&nodes[1]))
            return;
        require(kill(server, SIGCONT) == 0);
        poll(NULL, 0, 300);
    }
}

/* Takes the whole part of a node: no more is granted. */
static void exhaust(const struct node *node, weir_acquisition *taken[PART])
{
    weir_acquisition *more = NULL;
    int r;

    for (int i = 0; i < PART; i++)
        taken[i] = acquire(node, 1);
    r = try_acquire(node, 1, &more);
    if (r != -EAGAIN)
        fprintf(stderr, "one more than the part: %d\n", r);
    require(r == -EAGAIN);
    require(weir_acquisition_result(taken[0]) == 0);
    require(weir_acquisition_lost_fd(taken[0]) == -EOPNOTSUPP);
}

int main(int argc, char **argv)
{
    weir_acquisition *before, *taken[NODES][PART], *all;
    uint64_t alone[NODES];

    require(argc == 4);
    server = (pid_t)strtol(argv[3], NULL, 10);
    for (int i = 0; i < NODES; i++)
        open_node(&nodes[i], argv[1], argv[2]);
    before = acquire(&nodes[0], CAPACITY - 1);
    all = acquire(&nodes[1], 1);
    require(weir_release(&all) == 0);
    stop_server();
    for (int i = 0; i < NODES; i++)
        alone[i] = granted_alone(&nodes[i]);
    await_readable(weir_acquisition_lost_fd(before));
    require(weir_acquisition_result(before) == -EOWNERDEAD);
    for (int i = 0; i < NODES; i++)
        exhaust(&nodes[i], taken[i]);
    for (int i = 0; i < NODES; i++)
        require(granted_alone(&nodes[i]) == alone[i] + PART);
    require(kill(server, SIGCONT) == 0);
    all = acquire(&nodes[0], CAPACITY); /* more than a part: the server decides again */
    require(weir_acquisition_lost_fd(all) >= 0);
    require(weir_release(&all) == 0);
    require(granted_alone(&nodes[0]) == alone[0] + PART);
    for (int i = 0; i < NODES * PART; i++)
        require(weir_release(&taken[i / PART][i % PART]) == 0);
    require(weir_release(&before) == -EOWNERDEAD);
    for (int i = 0; i < NODES; i++) {
        weir_pool_close(nodes[i].pool);
        weir_close(nodes[i].w);
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* A small world for faults. */
#include "whole_set.h"
#include "lib/require.h"
#include <errno.h>
#include <poll.h>

const char world_text[] =
    "version: 1\n"
    "sets:\n"
    "  set:\n"
    "    limits:\n"
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 500, window: 1s,\n"
    "          burst: 4 }\n"
    "      - { type: call, algorithm: gcra, capacity: 100M, window: 1s, burst: 100 }\n"
    "      - { type: resource, key: db, capacity: 3 }\n"
    "    config: { region: here }\n"
    "pools:\n"
    "  pool: { sets: [set] }\n";

#define REQUEST(list, n)                                                                           \
    {                                                                                              \
        .size = sizeof(struct weir_request), .amounts = list, .amounts_n = n,                      \
        .timeout_ns = WEIR_FOREVER                                                                 \
    }

static const struct weir_amount all[] = {{"tokens", 1}, {"db", 1}};
static const struct weir_amount db[] = {{"tokens", 0}, {"db", 1}};
static const struct weir_amount every_db[] = {{"tokens", 0}, {"db", DB_CAPACITY}};
static const struct weir_amount tokens[] = {{"tokens", 1}, {"db", 0}};
static const struct weir_amount every_token[] = {{"tokens", TOKENS_BURST}, {"db", 0}};

const struct weir_request want_all = REQUEST(all, 2), want_db = REQUEST(db, 2),
                          want_every_db = REQUEST(every_db, 2), want_tokens = REQUEST(tokens, 2),
                          want_every_token = REQUEST(every_token, 2);

void world_open(struct whole_set *world)
{
    struct weir_options options = {.size = sizeof(options), .text = world_text};
    struct weir_error error = {0};
    int r = weir_open(&world->w, &options, &error);

    if (r < 0)
        fprintf(stderr, "%s\n", error.message);
    require(r == 0);
    require(weir_pool_open(&world->pool, world->w, "set", 0, NULL) == 0);
}

void world_close(struct whole_set *world)
{
    world->w = weir_close(world->w);
    world->pool = weir_pool_close(world->pool);
}

int world_await(const struct whole_set *world, weir_acquisition *acquisition)
{
    /* The fd is asked for, and time moved on, again and again: whatever failed once works then. */
    for (int i = 0; i < 2000; i++) {
        struct pollfd poll_fd = {.fd = weir_acquisition_fd(acquisition), .events = POLLIN};

        poll(&poll_fd, 1, 5);
        weir_tick(world->w);
        if (poll_fd.revents & POLLIN)
            return weir_acquisition_result(acquisition);
    }
    return weir_acquisition_result(acquisition);
}

static void check_counts(const struct whole_set *world)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[3];

    require(weir_set_stats(weir_pool_set(world->pool, 0), &stats, limits, 3) == 3);
    require(stats.waiting == 0);
    require(stats.held == 0);
    require(stats.granted == stats.released + stats.taken);
    require(limits[2].held == 0);
    require(weir_set_holders(weir_pool_set(world->pool, 0), NULL, 0) == 0);
}

void world_check_whole(const struct whole_set *world)
{
    weir_acquisition *a = NULL, *b = NULL;

    check_counts(world);
    require(weir_try_acquire(world->pool, &want_every_db, &a, NULL) == 0);
    require(weir_submit(world->pool, &want_db, &b, NULL) == 1);
    require(weir_release(&a) == 0);
    require(world_await(world, b) == 0);
    require(weir_release(&b) == 0);
    require(weir_acquire(world->pool, &want_every_token, &a, NULL) == 0);
    require(weir_acquire(world->pool, &want_tokens, &b, NULL) == 0); /* has to wait */
    require(weir_update(a, "tokens", TOKENS_BURST) == 0 && weir_update(b, "tokens", 1) == 0);
    require(weir_release(&a) == 0 && weir_release(&b) == 0);
    check_counts(world);
}

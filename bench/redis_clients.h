/* SPDX-License-Identifier: MIT */
/* What the benchmark `redis` does on bare connections: the functions of weir, called one by one,
 * and the call sequences of two semaphores. */
#ifndef WEIR_BENCH_REDIS_CLIENTS_H
#define WEIR_BENCH_REDIS_CLIENTS_H

#include "redis_raw.h"

#include <stdint.h>

enum { PIPELINE = 16, CLIENTS = 16 /* at most */, SEMAPHORE_SLOTS = 4 };

struct client {
    struct raw *raw;
    char run[64], node[32], inbox[48];
    uint64_t serial;
};

/* Opens the i-th client. Its set grants nothing while the server is young: see client_try(). */
void client_open(struct client *client, const struct raw_server *server, unsigned i);
void client_close(struct client *client);

/* Opens a session, or renews it, for three seconds. An acquire opens one again that has ended, as
 * on a machine that stood still. */
void client_begin(struct client *client);

/* One unit of each of two limits, a resource and a bucket. It must be granted. */
void client_acquire(struct client *client);
void client_release(struct client *client);
/* As client_acquire(), but returns false if it is refused. */
bool client_try(struct client *client);
/* A unit of the bucket. It must be granted. */
void client_take(struct client *client);
/* Acquires a pipeline of tickets in one write, and releases them in another. */
void client_pipeline(struct client *client);

/* The Ruby gem redis-semaphore: a list of free slots, a hash of those that are in use. */
void list_open(struct client *client);
void list_acquire(struct client *client);
void list_release(struct client *client);

/* J. L. Carlson: Redis in Action, 2013, 6.3.2: sorted sets by time and by a counter. */
void sorted_acquire(struct client *client);
void sorted_release(struct client *client);

#endif

/* SPDX-License-Identifier: MIT */
/* A thread that is blocked in weir_acquire, on the pool of the world. */
#ifndef WEIR_TESTS_BLOCKED_H
#define WEIR_TESTS_BLOCKED_H

#include "lib/world.h"
#include <pthread.h>
#include <stdatomic.h>

struct blocked {
    pthread_t thread;
    struct weir_request request; /* its own, for as long as the call takes */
    weir_acquisition *acquisition;
    struct weir_refusal refusal;
    int result; /* 1 until the call returns */
    _Atomic bool returned;
};

/* Starts a thread that acquires. */
void blocked_start(struct blocked *blocked, const struct weir_request *request);

/* Starts it, and returns once it sleeps and `waiting` requests wait. */
void blocked_enqueue(struct blocked *blocked, const struct weir_request *request, uint64_t waiting);

/* Waits for the end of the thread, and compares what its call returned. */
void blocked_join(struct blocked *blocked, int expected);

#endif

/* SPDX-License-Identifier: MIT */
/* A worker: a process that asks a set in every way there is, as fast as it can, and writes into its
 * account what it got. It may be killed anywhere. */
#ifndef WEIR_TESTS_WORKER_H
#define WEIR_TESTS_WORKER_H

#include <stdint.h>

enum doing {
    DOING_NOTHING,
    DOING_OPEN,
    DOING_CLOSE,
    DOING_ACQUIRE,
    DOING_TRY,
    DOING_TAKE,
    DOING_RESERVE,
    DOING_SUBMIT,
    DOING_CANCEL,
    DOING_ABANDON,
    DOING_AWAIT,
    DOING_QUEUE,
    DOING_HOLD,
    DOING_RELEASE,
    DOING_REST
};

extern const char *const doing_names[];

/* Works until it is killed, or at times ends by itself with 0. */
void worker_run(int worker, uint64_t random);

#endif

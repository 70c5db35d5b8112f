/* SPDX-License-Identifier: MIT */
/* Operations on sets, for the core: see backend.h. Any thread, without the lock. */
#ifndef WEIR_REDIS_SET_H
#define WEIR_REDIS_SET_H

#include "redis_connection.h"

int redis_set_open(void *connection, const struct weir_backend_set *set, void **ret_set,
                   struct weir_reason *reterr);
void redis_set_close(void *set);
int redis_set_ask(void *set, const struct weir_backend_ask *ask);
int redis_set_wait(void *set, uint64_t token, uint64_t until_ns);
void redis_set_cancel(void *set, uint64_t token);
void redis_set_release(void *set, const struct weir_backend_release *how);
void redis_set_return_part(void *set, uint64_t hold, const uint64_t *left);
void redis_set_redefine(void *set, void *next);
int redis_set_is_held(void *set, uint64_t hold);
int redis_set_snapshot(void *set, const void *subject, size_t subject_size, uint64_t until_ns,
                       struct weir_backend_snapshot *ret);

/* The rest with the connection's lock. */

/* Asks the server of a set, or of a subject, by `call`, as soon as its session can send, and again
 * as long as that returns -EAGAIN. Returns what it has returned last, or a code. */
int redis_set_call(struct redis_set *set, const void *subject, size_t subject_size,
                   struct redis_waiter *waiter, uint64_t until_ns,
                   int (*call)(struct redis_waiter *waiter, uint64_t until_ns));
/* Sends what was asked, and waits for the answer. Returns the waiter's result, or -ETIMEDOUT. */
int redis_set_await(struct redis_waiter *waiter, uint64_t until_ns);

#endif

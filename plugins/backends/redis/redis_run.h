/* SPDX-License-Identifier: MIT */
/* The thread of `run`: keeps the links, and does what is due at a time. */
#ifndef WEIR_REDIS_RUN_H
#define WEIR_REDIS_RUN_H

#include "redis_connection.h"

/* Returns after redis_run_stop. Any thread; without the lock. */
void redis_run(struct redis_connection *connection);
void redis_run_stop(struct redis_connection *connection);
/* Takes down the links, once `run` has returned. */
void redis_run_end(struct redis_connection *connection);
/* Connects apart from all else, and sees whether the functions can be called. */
int redis_run_check(struct redis_connection *connection, uint64_t until_ns,
                    struct weir_reason *reterr);

#endif

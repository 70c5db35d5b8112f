/* SPDX-License-Identifier: MIT */
/* Batches: units that the core takes ahead of use. */
#ifndef WEIR_REDIS_BATCHES_H
#define WEIR_REDIS_BATCHES_H

#include "redis_connection.h"
#include "redis_reply.h"

/* Operations on sets, for the core: see backend.h. Any thread, without the lock. */
int redis_batches_ask(void *set, uint32_t limit, uint64_t wanted, uint64_t tag);
void redis_batches_give_back(void *set, uint32_t limit, uint64_t units, uint64_t at);

/* With the lock. */

/* Reports a refusal to the core; `retry_ns`: when to ask again, or UINT64_MAX. */
void redis_batches_refuse(const struct redis_call *call, int code, uint64_t retry_ns);
/* Acts on the reply to a call, which is not an error. Returns 0, or -EPROTO. */
int redis_batches_take(const struct redis_call *call, const struct redis_reply *reply);
/* Gives back what the core does not need, where it is due. Returns when there will be something
 * again. */
uint64_t redis_batches_tick(struct redis_set *set, uint64_t now_ns);

#endif

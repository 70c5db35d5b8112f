/* SPDX-License-Identifier: MIT */
/*
 * Sentinels: servers that know which one is the master of a name, and make a replica the master if
 * it fails. The URL names them; the first one that answers is believed, and asked first the next
 * time. The server that it names has to say of itself that it is a master.
 */
#ifndef WEIR_REDIS_SENTINEL_H
#define WEIR_REDIS_SENTINEL_H

#include "redis_connection.h"

/* Finds the master, without the lock. Returns 0 and its address; or a code, and `why`. */
int redis_sentinel_find(const struct redis_options *options, struct redis_sentinels *sentinels,
                        struct redis_link_how *how, struct redis_url *ret);
void redis_sentinel_forget(struct redis_sentinels *sentinels);

#endif

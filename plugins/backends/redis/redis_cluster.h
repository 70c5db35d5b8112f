/* SPDX-License-Identifier: MIT */
/*
 * Redis Cluster: which server has which key.
 *
 * A key has one of 16384 slots, and each slot a server. A table of them is read from any server, by
 * CLUSTER SLOTS, and corrected by each MOVED. A session goes where the table says when it begins,
 * and later where its server says:
 *
 * - MOVED: the slot is elsewhere.
 * - ASK: the slot is on its way elsewhere, and this key is not here. The session goes there, and
 *   has each of its calls preceded by ASKING. Its heartbeats do without, and so find out when the
 *   slot has arrived: until then they are sent again.
 * - TRYAGAIN, CLUSTERDOWN: it stays, and waits a while.
 *
 * A session that is sent on over and over waits longer each time. If its server cannot be reached,
 * it goes where the table says, which is read again and again meanwhile.
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_CLUSTER_H
#define WEIR_REDIS_CLUSTER_H

#include "redis_connection.h"
#include "redis_slot.h"

/* Returns the server of a slot, as far as it is known, or the one that will know. */
struct redis_server *redis_cluster_route(const struct redis_connection *connection, uint16_t slot);

/* A server has said that it is one of a cluster. Returns 0, or -ENOMEM. */
int redis_cluster_begin(struct redis_connection *connection);
/* Acts on an error reply, if it is one of a cluster. Returns 1 if so: what was asked has to be sent
 * again, when the session can send. */
int redis_cluster_redirect(struct redis_server *server, const struct redis_call *call,
                           const struct redis_reply *reply);
/* Learns from MOVED about any key. Returns the server that it names, or NULL: it is nonsense, or
 * there is no memory. */
struct redis_server *redis_cluster_learn(struct redis_server *server,
                                         const struct redis_reply *reply);
/* A server cannot be reached: has the others asked. */
void redis_cluster_miss(struct redis_server *server);

/* In the thread of `run`: has the table read if that is due, by a job, and frees servers that
 * nothing needs. Returns when it is to be called again. */
uint64_t redis_cluster_keep(struct redis_connection *connection);

#endif

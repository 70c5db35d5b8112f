/* SPDX-License-Identifier: MIT */
/*
 * A server of a connection: how its links are made, kept, and given up.
 *
 *     redis_server_new ──► redis_server_keep, over and over ──► redis_server_free
 *
 * All but redis_server_new and redis_server_check are for the thread of `run`.
 */
#ifndef WEIR_REDIS_SERVER_H
#define WEIR_REDIS_SERVER_H

#include "redis_connection.h"

#include <sys/epoll.h>

/* Adds a server. Returns it, or NULL if there is no memory. The caller has the lock, or none needs
 * it yet. */
struct redis_server *redis_server_new(struct redis_connection *connection,
                                      const struct redis_url *url);
/* Takes down the links, and frees the server. No other thread is there any more. */
void redis_server_free(struct redis_server *server);

/* Has the links made that are wanted and due, each by a job. Returns when it is to be called again.
 * The caller has the lock. */
uint64_t redis_server_keep(struct redis_server *server);
/* Returns 1 if nothing needs the server. The caller has the lock. */
int redis_server_is_free(const struct redis_server *server);
/* Gives up links that are silent for too long. Returns when to look again. The caller has the lock.
 */
uint64_t redis_server_tick(struct redis_server *server, uint64_t now_ns);
/* Acts on what has come by a link, if it is one of this server. The caller has the lock. */
void redis_server_serve(struct redis_server *server, const struct epoll_event *event);
/* Returns why a server that is down cannot be asked: -EACCES, it does not let the user in;
 * otherwise -ENOTCONN, and it is away. The caller has the lock. */
int redis_server_refusal(const struct redis_server *server);
/* Notes whether the server can be asked, and tells the core. The caller has the lock. */
void redis_server_set_down(struct redis_server *server, int is_down);
/* Logs what went wrong, once until something else does. The caller has the lock. */
void redis_server_complain(struct redis_server *server, const char *why, int code);

/* With Sentinels: asks them now and then whether the master still is one; a master that was
 * replaced may go on for a while. Returns when it is to be called again. The caller has the lock.
 */
uint64_t redis_server_verify(struct redis_server *server);
/* Returns when to try again after so many attempts: at once the first time. */
uint64_t redis_server_retry_ns(struct redis_connection *connection, uint32_t attempts);

/* Connects apart from all else, and sees whether the functions can be called. `how` has the waiting
 * and the deadline. */
int redis_server_check(struct redis_connection *connection, struct redis_link_how *how,
                       const struct redis_url *url);

#endif

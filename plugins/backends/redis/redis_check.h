/* SPDX-License-Identifier: MIT */
/* Sees how a server has the sets defined, for `weir check --connect`. */
#ifndef WEIR_REDIS_CHECK_H
#define WEIR_REDIS_CHECK_H

#include "redis_connection.h"

/* Asks a server, over a link that was greeted, for the definitions of the sets without subjects.
 * Returns 0, and adds words about them to `how->note`; -EEXIST and `how->why`: a set is defined
 * otherwise there; or another code. A set that it does not have, or may not tell of, is none. */
int redis_check_sets(struct redis_connection *connection, struct redis_link *link,
                     struct redis_link_how *how);

#endif

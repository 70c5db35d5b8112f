/* SPDX-License-Identifier: MIT */
/*
 * Publishing: a thread of the instance tells its private sets to processes of the user that ask at
 * a socket (shm/publish_socket.h), in the format of api/published.h. No call counts or keeps
 * anything for that. The thread has a context as any that uses the instance, from the first answer
 * on.
 */
#ifndef WEIR_CORE_API_PUBLISHER_H
#define WEIR_CORE_API_PUBLISHER_H

#include "set/instance_base.h"

/* Starts publishing, unless the options are against it. What the system refuses is a warning in the
 * log. Returns 0 or -ENOMEM. */
int publisher_open(weir *w, const struct weir_options *options);

/* Ends it. `in_child`: closes a forked child's copies. Any instance. */
void publisher_close(weir *w, bool in_child);

#endif

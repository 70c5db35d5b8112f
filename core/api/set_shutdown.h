/* SPDX-License-Identifier: MIT */
/* Shutting a set down, as its instance closes. */
#ifndef WEIR_CORE_API_SET_SHUTDOWN_H
#define WEIR_CORE_API_SET_SHUTDOWN_H

#include "set/set.h"

/*
 * Ends all waits of this process in the set with RECORD_SHUT_DOWN; of a private set, ends all
 * grants. Cannot fail. The instance is marked as closed before. No locks are held.
 */
void set_shutdown(struct thread_ctx *ctx, weir_set *set);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Guards: whoever waits on a set that processes share looks at it now and then, the sooner the
 * nearer it is to the head. Nothing should come of it; but another process may have been stopped
 * between granting and waking, or stand at the head and sleep through its instant.
 */
#ifndef WEIR_CORE_PEER_STALL_CHECK_H
#define WEIR_CORE_PEER_STALL_CHECK_H

#include "set/hooks.h"
#include "set/set.h"

/*
 * The look: does what the head should have seen to, but for whose process: grants to it if it is
 * due, and ends its wait if that should have ended a while ago. `record` waits in this process as long
 * as its word is `word`: a set in whose line it is not then is broken.
 */
void stall_check_run(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);

/* When to look next, for who joined the line with this ticket; after an operation of the actor's. */
uint64_t stall_check_deadline(const struct thread_ctx *ctx, uint32_t ticket, uint64_t now_ns);

/* A kept record has joined the line and become `word`; the same after each look at it. */
void stall_check_arm(struct thread_ctx *ctx, weir_set *set, uint32_t waiter, uint64_t word,
                     const struct decision *decision);
void stall_check_rearm(struct thread_ctx *ctx, weir_set *set, uint32_t waiter);

#endif

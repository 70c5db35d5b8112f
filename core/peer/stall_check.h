/* SPDX-License-Identifier: MIT */
/* Stall checks: each waiter of a shared set checks the set periodically, the head most often.
 * Normally a check finds nothing. It covers a process that is stopped between grant and
 * notification, and one that sleeps through the time at which its head becomes ready. */
#ifndef WEIR_CORE_PEER_STALL_CHECK_H
#define WEIR_CORE_PEER_STALL_CHECK_H

#include "set/hooks.h"
#include "set/set.h"

/* Grants to the head if it is ready, and ends its wait if its deadline passed at least one period
 * ago, whichever process it belongs to. `record` waits in this process while its word is `word`; if
 * it is not in the wait queue then, the set is marked broken. */
void stall_check_run(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);

/* Returns the time of the next check for the waiter with this ticket. */
uint64_t stall_check_deadline(struct thread_ctx *ctx, weir_set *set, uint32_t ticket,
                              uint64_t now_ns);

/* Schedules the next check of a waiter that has the word `word`, if it still waits. The proxy's
 * `granted_ns` keeps the ticket. */
void stall_check_arm(struct thread_ctx *ctx, weir_set *set, uint32_t waiter, uint64_t word);

#endif

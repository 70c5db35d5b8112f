/* SPDX-License-Identifier: MIT */
/*
 * Guards: whoever waits on a set that processes share looks at it now and then, the sooner the
 * nearer it is to the head. Nothing should come of it; but another process may have been stopped
 * between granting and waking, or stand at the head and sleep through its instant.
 */
#ifndef WEIR_CORE_PEER_STALL_CHECK_H
#define WEIR_CORE_PEER_STALL_CHECK_H

#include "set/set.h"

/* How long the head waits before it looks; the n-th in line waits n times as long. */
#define GUARD_NS UINT64_C(25000000)

/*
 * The look: does what the head should have seen to, but for whose process: grants to it if it is
 * due, and ends its wait if that should have ended a while ago. `record` waits in this process as long
 * as its word is `word`: a set in whose line it is not then is broken.
 */
void guard_look(struct actor *actor, weir_set *set, uint32_t record, uint64_t word);

/* When to look next, for who joined the line with this ticket; after an operation of the actor's. */
uint64_t guard_instant(const struct actor *actor, uint32_t ticket, uint64_t now_ns);

/* A kept record has joined the line and become `word`; the same after each look at it. */
void guard_begin(struct actor *actor, weir_set *set, uint32_t kept, uint64_t word,
                 const struct verdict *verdict);
void guard_again(struct actor *actor, weir_set *set, uint32_t kept);

#endif

/* SPDX-License-Identifier: MIT */
/* Recovery of dead threads: another thread finishes and undoes what a dead thread had begun. */
#ifndef WEIR_CORE_PEER_THREAD_RECOVERY_H
#define WEIR_CORE_PEER_THREAD_RECOVERY_H

#include "set/thread_ctx.h"

/*
 * Recovers generation `generation` of the dead thread with head `dead`; no thread runs on its
 * behalf or ever will.
 * 1. Completes the version that it was publishing.
 * 2. Cancels its waits and releases what it held, as if all of it had been used.
 * 3. Grants waiters of its active set, and repeats the notifications that it may have owed.
 * 4. Ends the generation; from then on the thread context may be claimed again.
 *
 * Its records become FREE but enter no free list; that is up to their owner. `ctx` is the caller's,
 * and is prepared for a set on demand. Takes the instance's lock, briefly. Returns 0; -EALREADY
 * (that generation was recovered before); -ENOMEM; -EUCLEAN (the set is broken).
 */
int thread_recovery_run(struct thread_ctx *ctx, const struct region *region, uint32_t dead,
                        uint64_t generation);

#endif

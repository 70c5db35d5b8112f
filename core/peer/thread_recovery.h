/* SPDX-License-Identifier: MIT */
/*
 * Recovery: what somebody else does for an actor that died. Everything here is an ordinary
 * operation of the recovering actor, each of which counts exactly once because it names the word of
 * the record that it ends. So any number may recover one actor at once, and one that dies midway is
 * recovered like any other; whoever comes after it does the rest.
 */
#ifndef WEIR_CORE_PEER_THREAD_RECOVERY_H
#define WEIR_CORE_PEER_THREAD_RECOVERY_H

#include "set/thread_ctx.h"

/*
 * Recovers life `generation` of the actor whose head is `dead` in the region, which must be dead: no thread runs
 * on its behalf, nor ever will. In this order: the version that it was publishing is completed;
 * what it waited for is withdrawn, what it held is given back, as if all of it had been used; the
 * set that it worked on is served, and those it may have decided about without telling them are
 * woken again; its generation moves on, after which the actor may be used anew. Records end FREE,
 * but in no list of free ones: whoever knows whose they are puts them there.
 *
 * `actor` is the caller's, prepared for every set that the dead may have used, or memory must be
 * available. Takes the instance's lock, briefly. Returns 0; -EALREADY (that life was recovered
 * before); -ENOMEM; -EUCLEAN (the set is broken).
 */
int thread_recovery_run(struct thread_ctx *ctx, const struct region *region, uint32_t dead,
                        uint64_t generation);

#endif

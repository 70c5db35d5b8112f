/* SPDX-License-Identifier: MIT */
/* Cleanup after dead participants: releases what they held, cancels what they waited for. */
#ifndef WEIR_CORE_PEER_PEER_CLEANUP_H
#define WEIR_CORE_PEER_PEER_CLEANUP_H

#include "set/hooks.h"
#include "set/set.h"

/*
 * Cleans up after all dead participants of the set. Returns how many this call found dead; if it is
 * not 0, the set has changed. Any thread, no locks held. Does not wait for another thread that is
 * at it. `ctx`: the calling thread's context if it is in use, else NULL; its copy of the set is
 * outdated after.
 */
int peer_reap(struct thread_ctx *ctx, weir_set *set);

/* Cleans up in all sets from number `first` on with so many slots in use that dead peers may be
 * among them. For a thread that has just added these sets. */
void peer_reap_crowded(weir *w, uint32_t first);

/* peer_reap_if_due() runs peer_reap() at most once per interval, in ns, for a request that is about
 * to be refused. peer_reap_is_due() tells whether it would. Relaxed: the time is a hint. */
#define PEER_REAP_INTERVAL_NS UINT64_C(1000000)

static inline bool peer_reap_is_due(const weir_set *set, uint64_t now_ns)
{
    uint64_t before = atomic_load_explicit(&set->participant->last_reap_ns, memory_order_relaxed);

    return now_ns - before >= PEER_REAP_INTERVAL_NS || now_ns < before;
}

#endif

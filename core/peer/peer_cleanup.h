/* SPDX-License-Identifier: MIT */
/* Burial: what the living do for processes that died while they took part in a set. */
#ifndef WEIR_CORE_PEER_PEER_CLEANUP_H
#define WEIR_CORE_PEER_PEER_CLEANUP_H

#include "set/hooks.h"
#include "set/set.h"

/*
 * Looks who has died, and gives back all that they held and waited for. Returns how many were
 * found dead by this call, each of which has changed the set. Any thread, without locks; who comes
 * while another thread is at it does not wait for that. `actor`: the thread's own, if it is using
 * it; what it has read of the set is another version's afterwards. NULL: it is not.
 */
int peer_reap(struct thread_ctx *ctx, weir_set *set);

/*
 * Looks so in all sets from number `first` on in which so many places are taken that some may be of
 * the dead, whom nobody was in need of: for whoever has just added the sets.
 */
void peer_reap_crowded(weir *w, uint32_t first);

/* The same, but at most once in a millisecond: for whoever is about to be refused; and whether that is
 * over. */
#define PEER_REAP_INTERVAL_NS UINT64_C(1000000)

static inline bool peer_reap_is_due(const weir_set *set, uint64_t now_ns)
{
    uint64_t before = atomic_load_explicit(&set->participant->last_reap_ns, memory_order_relaxed);

    return now_ns - before >= PEER_REAP_INTERVAL_NS || now_ns < before;
}

#endif

/* SPDX-License-Identifier: MIT */
/* Finds dead peers and releases what they left behind. */
#include "peer/peer.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "shm/doorbell.h"
#include "shm/participant.h"
#include "shm/peer_id.h"
#include <errno.h>

#define PEER_SLOTS_CROWDED    32u               /* slots beyond which peer_reap_crowded() looks */
#define PEER_REAP_INTERVAL_NS UINT64_C(1000000) /* between two peer_reap_if_due() that look */

/* Cleans up after one dead process. Any number of threads may do that at once, and one that dies
 * midway leaves the rest to the next. The slot goes last, because everything else names it. */
static bool peer_cleanup_run(struct thread_ctx *ctx, weir_set *set, uint32_t slot, uint64_t peer_id)
{
    const struct segment *segment = set->participant->segment;
    uint32_t peer_key = peer_key_make(peer_id, slot);

    WEIR_INVARIANT(ctx->w == set->w);
    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        const struct segment_thread *dead_thread = segment_thread(segment, i);
        /* Generation before key: the next owner of the thread context starts another one. */
        uint64_t generation =
            atomic_load_explicit(&dead_thread->head.generation, memory_order_seq_cst);
        int r;

        SCHED_POINT();
        if (atomic_load_explicit(&dead_thread->peer_key, memory_order_seq_cst) != peer_key)
            continue;
        r = thread_recovery_run(ctx, set->region, segment_thread_unit(segment, i), generation);
        if (r == -ENOMEM || r == -EUCLEAN)
            return false;
        SCHED_POINT();
    }
    doorbell_remove_all(segment->directory_fd, segment->file_stem, &peer_key);
    SCHED_POINT();
    participant_release_slots(segment, slot, peer_id);
    return true;
}

/* Returns the next dead peer. The lock covers only this step. */
static bool peer_cleanup_next_dead(struct participant *participant, uint32_t *ret_slot,
                                   uint64_t *ret_life)
{
    const struct segment *segment = participant->segment;
    uint64_t registrations;
    int found;

    if (pthread_mutex_trylock(&participant->watch_lock) != 0)
        return false;
    registrations =
        atomic_load_explicit(&segment_header(segment)->registrations, memory_order_seq_cst);
    peer_watch_sync(&participant->peer_watch, segment_peer(segment, 0), segment_peers_n(segment),
                    registrations);
    found = peer_watch_next(&participant->peer_watch, ret_slot, ret_life);
    pthread_mutex_unlock(&participant->watch_lock);
    return found > 0;
}

/* Consumes the report of a death even if the set is broken, lest the kernel repeats it. */
int peer_reap(struct thread_ctx *ctx, weir_set *set)
{
    uint32_t slot;
    struct thread_ctx *by;
    uint64_t peer_id;
    bool cleaned = true;
    int n = 0;

    WEIR_INVARIANT(set->participant);
    WEIR_INVARIANT(!ctx || ctx->w == set->w);
    for (; cleaned && peer_cleanup_next_dead(set->participant, &slot, &peer_id); n++) {
        if (set_is_broken(set))
            return 0;
        by = ctx ? ctx : thread_ctx_borrow(set);
        cleaned = peer_cleanup_run(by, set, slot, peer_id);
        if (!ctx)
            thread_ctx_return(by);
    }
    return n;
}

void peer_reap_crowded(weir *w, uint32_t first)
{
    for (uint32_t i = first, n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i < n;
         i++) {
        weir_set *set = instance_set(w, i);

        if (set_is_shared(set) && set->participant->slot >= PEER_SLOTS_CROWDED)
            peer_reap(NULL, set);
    }
}

/* Relaxed: the time is a hint. */
int peer_reap_if_due(struct thread_ctx *ctx, weir_set *set, uint64_t now_ns)
{
    _Atomic uint64_t *last_reap_ns = &set->participant->last_reap_ns;
    uint64_t before = atomic_load_explicit(last_reap_ns, memory_order_relaxed);

    if (now_ns >= before && now_ns - before < PEER_REAP_INTERVAL_NS)
        return 0;
    atomic_store_explicit(last_reap_ns, now_ns, memory_order_relaxed);
    return peer_reap(ctx, set);
}

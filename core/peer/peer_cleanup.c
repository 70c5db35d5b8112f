/* SPDX-License-Identifier: MIT */
/* Finds dead peers and releases what they left behind. */
#include "peer/peer.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "shm/doorbell_cache.h"
#include "shm/participant.h"
#include "shm/peer_id.h"
#include "state/version.h"
#include "state/wait_queue.h"
#include <errno.h>

#define PEER_SLOTS_CROWDED    32u               /* slots beyond which peer_reap_crowded() looks */
#define PEER_REAP_INTERVAL_NS UINT64_C(1000000) /* between two peer_reap_if_due() that look */

/* Returns whether a dead process is responsible for what a thread context with this owner did: it
 * owns the context, or did so until a process took it over that has not recovered it yet. */
static bool peer_cleanup_concerns(uint64_t owner, uint32_t peer_key)
{
    return peer_key_is_until((uint32_t)owner, peer_key) ||
           peer_key_is_until((uint32_t)(owner >> 32), peer_key);
}

/* Cleans up after a dead process, and those that its slot was taken over from. Any number of
 * threads may do that at once, and one that dies midway leaves the rest to the next. The slot goes
 * last, because everything else names it. */
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
        if (!peer_cleanup_concerns(
                atomic_load_explicit(&dead_thread->peer_key, memory_order_seq_cst), peer_key))
            continue;
        r = thread_recovery_run(ctx, set->region, segment_thread_unit(segment, i), generation);
        if (r < 0 && r != -EALREADY)
            return false;
        SCHED_POINT();
    }
    participant_remove_doorbells(segment, slot, peer_id);
    doorbell_cache_forget(set->participant->doorbells, peer_key);
    SCHED_POINT();
    participant_release_slots(segment, slot, peer_id, true);
    return true;
}

bool peer_recover_inherited(struct thread_ctx *ctx, weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t unit = thread_ctx_for_set(ctx, set->number)->unit, i = 0;
    uint64_t generation;
    int r;

    if (!segment_thread_of_unit(segment, unit, &i))
        return false;
    generation =
        atomic_load_explicit(&segment_thread(segment, i)->head.generation, memory_order_seq_cst);
    r = thread_recovery_run(ctx, set->region, unit, generation);
    if (r < 0 && r != -EALREADY)
        return false;
    participant_settle_thread(set->participant, i);
    return true;
}

/* Returns the next dead peer. The lock covers only this step. A thread that has to know waits for
 * it. */
static bool peer_cleanup_next_dead(weir_set *set, enum probe_round round, bool must_know,
                                   uint32_t *ret_slot, uint64_t *ret_life)
{
    struct participant *participant = set->participant;
    const weir_set *newest = set_newest(set);
    const struct probe_plan plan = {
        .round = round,
        .head = (uint32_t)version_peek_content(set->region, newest->head_unit, CONTENT_ENDS),
        .is_keyed = set->is_keyed};
    int found;

    if (must_know)
        pthread_mutex_lock(&participant->watch_lock);
    else if (pthread_mutex_trylock(&participant->watch_lock) != 0)
        return false;
    found = participant_next_dead(participant, &plan, ret_slot, ret_life);
    pthread_mutex_unlock(&participant->watch_lock);
    return found > 0;
}

/* Consumes the report of a death even if the set is broken, lest the kernel repeats it. */
static int peer_cleanup_all(struct thread_ctx *ctx, weir_set *set, enum probe_round round)
{
    uint32_t slot;
    struct thread_ctx *by;
    uint64_t peer_id;
    bool cleaned = true, must_know = round == PROBE_NOW;
    int n = 0;

    WEIR_INVARIANT(set->participant);
    WEIR_INVARIANT(!ctx || ctx->w == set->w);
    for (; cleaned && peer_cleanup_next_dead(set, round, must_know, &slot, &peer_id); n++) {
        round = PROBE_ON;
        if (set_is_broken(set))
            return 0;
        by = ctx ? ctx : thread_ctx_borrow(set);
        cleaned = peer_cleanup_run(by, set, slot, peer_id);
        if (!ctx)
            thread_ctx_return(by);
    }
    return n + participant_check_name(set->participant, false);
}

int peer_reap(struct thread_ctx *ctx, weir_set *set)
{
    return peer_cleanup_all(ctx, set, PROBE_IF_DUE);
}

int peer_make_room(struct thread_ctx *ctx, weir_set *set)
{
    return peer_cleanup_all(ctx, set, PROBE_NOW);
}

/* Returns whether so much of the segment is in use that dead processes may have some of it: slots,
 * or all announcement slots, without which operations on a resource take longer. */
static bool peer_is_crowded(const weir_set *set)
{
    bool lacks = set->inline_format == INLINE_DCAS;

    for (uint32_t i = 0; i < DCAS_SLOTS && lacks; i++)
        lacks = shm_load_relaxed(&set->announce_slots->owners[i]) != 0; /* a hint */
    return lacks || set->participant->slot >= PEER_SLOTS_CROWDED;
}

/* By the spare context, which recovers what it has taken over. */
static void peer_reap_if_crowded(weir_set *set)
{
    const struct participant *participant = set->participant;
    struct thread_ctx *spare = thread_ctx_lock_spare(set);

    if (peer_slot_predecessor(segment_peer(participant->segment, participant->slot)))
        peer_cleanup_all(spare, set, PROBE_NOW);
    else if (peer_is_crowded(set))
        peer_cleanup_all(spare, set, PROBE_IF_DUE);
    thread_ctx_return_slow(spare);
}

void peer_reap_crowded(weir *w, uint32_t first)
{
    for (uint32_t i = first, n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i < n; i++)
        if (set_is_shared(instance_set(w, i)))
            peer_reap_if_crowded(instance_set(w, i));
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

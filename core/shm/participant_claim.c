/* SPDX-License-Identifier: MIT */
/* Claims of a participant: a peer slot of a segment and thread contexts, also those of dead
 * processes; and what every owner of something in a segment is claimed and released by. */
#include "shm/participant_internal.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/nameless.h"
#include "shm/peer_id.h"
#include "shm/segment.h"
#include <errno.h>

#define PARTICIPANT_SLOT_TRIES 16 /* while others change slots */
/* How long it holds that all slots are in use by living processes. */
#define PARTICIPANT_FULL_NS UINT64_C(100000000)

/* ---- slots ---- */

/* Claims the first free slot. Returns -EUSERS if there is none. */
static int participant_find_free_slot(struct participant *participant, uint64_t self_id)
{
    const struct segment *segment = participant->segment;

    for (uint32_t i = 0; i < SEGMENT_PEERS_MAX; i++) {
        int r = i < segment_peers_n(segment) ? 0 : segment_alloc_peer(segment, i);

        if (r < 0)
            return r;
        participant->slot = i;
        if (peer_slot_claim(segment_peer(segment, i), self_id, &participant->peer_id))
            return 0;
    }
    return -EUSERS;
}

/* Takes slot `i` over if its process is dead, or claims it if it has become free. Returns 1; 0 (the
 * process is alive); or -EAGAIN (another process has changed the slot meanwhile). The doorbells of
 * the dead process go first: they have the name of a process that no other will look for. */
static int participant_take_slot(struct participant *participant, uint32_t i, uint64_t self_id)
{
    const struct segment *segment = participant->segment;
    struct peer_slot *slot = segment_peer(segment, i);
    uint64_t id = atomic_load_explicit(&slot->id, memory_order_seq_cst);

    participant->slot = i;
    if (!peer_id_pid(id))
        return peer_slot_claim(slot, self_id, &participant->peer_id) ? 1 : -EAGAIN;
    if (!peer_id_is_dead(id))
        return 0;
    participant_remove_doorbells(segment, i, id);
    SCHED_POINT();
    return peer_slot_take_over(slot, id, self_id, &participant->peer_id) ? 1 : -EAGAIN;
}

/* Returns whether another process has found just now that no slot is of a dead one. The time may be
 * anything in a damaged segment. Relaxed: it is a hint. */
static bool participant_is_known_full(const struct segment *segment, uint64_t now_ns)
{
    uint64_t full_ns = shm_load_relaxed(&segment_header(segment)->full_ns);

    return full_ns <= now_ns && now_ns - full_ns < PARTICIPANT_FULL_NS;
}

/* Takes over the slot of a dead process. Begins anywhere, lest several processes want the same one.
 * Returns 0; -EUSERS (all are alive); or -EAGAIN (slots were changed meanwhile). */
static int participant_take_dead_slot(struct participant *participant, uint64_t self_id)
{
    const struct segment *segment = participant->segment;
    uint32_t n = segment_peers_n(segment), first = (uint32_t)os_random();
    uint64_t now_ns = os_now_ns();
    bool changed = false;

    if (participant_is_known_full(segment, now_ns))
        return -EUSERS;
    for (uint32_t i = 0; i < n; i++) {
        int r = participant_take_slot(participant, (first + i) % n, self_id);

        if (r > 0)
            return 0;
        changed |= r < 0;
    }
    if (changed)
        return -EAGAIN;
    shm_store_relaxed(&segment_header(segment)->full_ns, now_ns); /* a hint */
    return -EUSERS;
}

/* Claims a free slot, or that of a dead process. The latter also if the file system is full. */
static int participant_find_slot(struct participant *participant, uint64_t self_id)
{
    int r = 0, taken = -EAGAIN;

    for (int i = 0; i < PARTICIPANT_SLOT_TRIES && taken == -EAGAIN; i++) {
        r = participant_find_free_slot(participant, self_id);
        taken = r < 0 ? participant_take_dead_slot(participant, self_id) : 0;
    }
    return taken == 0 ? 0 : r;
}

int participant_claim_slot(struct participant *participant, uint64_t self_id)
{
    struct segment *segment = participant->segment;
    int r = participant_find_slot(participant, self_id);

    if (r < 0)
        return r;
    participant->peer_key = peer_key_make(participant->peer_id, participant->slot);
    participant->peer_id_at = &segment_peer(segment, participant->slot)->id;
    /* Those of earlier owners are gone. */
    atomic_store_explicit(&segment_peer(segment, participant->slot)->doorbells, 0,
                          memory_order_seq_cst);
    atomic_store_explicit(&segment_peer(segment, participant->slot)->direct_doorbells, 0,
                          memory_order_seq_cst);
    atomic_fetch_add_explicit(&segment_header(segment)->registrations, 1, memory_order_seq_cst);
    SCHED_POINT();
    r = segment_confirm_attach(segment);
    if (r == 0 && nameless_segment_is(segment))
        r = -ESTALE; /* removed by another program: later ones make it anew, and so does this one */
    if (r < 0)
        peer_slot_free(segment_peer(segment, participant->slot), participant->peer_id);
    return r;
}

/* ---- thread contexts, and owners of anything ---- */

/* Relaxed load: only a filter. */
bool participant_claim_owner(_Atomic uint64_t *owner, uint32_t peer_key)
{
    WEIR_INVARIANT(peer_key != 0);
    return !shm_load_relaxed(owner) && shm_cas_seq_cst(owner, 0, peer_key);
}

/*
 * Starts a new generation, which no recovering thread can have read under the dead owner:
 * 1. A ends generation g of the dead thread, so g + 1 is current.
 * 2. B reads g + 1 and still finds the dead owner's key.
 * 3. A releases the thread context, and C claims it.
 * 4. B recovers g + 1. Since C uses g + 2, that does nothing to C.
 */
static void participant_begin_generation(struct segment_thread *ctx)
{
    atomic_fetch_add_explicit(&ctx->head.generation, 1, memory_order_seq_cst);
    SCHED_POINT();
}

/* Relaxed load: only a filter. */
void participant_release_owner(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead)
{
    uint64_t value = shm_load_relaxed(owner);

    if (value == peer_key || (is_dead && peer_key_is_until((uint32_t)value, peer_key)))
        shm_cas_seq_cst(owner, value, 0);
}

/* Notes that thread context `i` is this participant's. Returns 0 or -EUCLEAN. */
static int participant_note_thread(struct participant *participant, uint32_t i)
{
    uint64_t *own = &participant->own_threads[i / 64], bit = UINT64_C(1) << i % 64;

    if (*own & bit) {
        participant_mark_broken(participant); /* a peer has released it, and perhaps used it */
        return -EUCLEAN;
    }
    *own |= bit;
    return 0;
}

void participant_release_thread(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead)
{
    uint64_t value = atomic_load_explicit(owner, memory_order_seq_cst);

    if (!is_dead && (uint32_t)value == peer_key && value != peer_key)
        shm_cas_seq_cst(owner, value, value >> 32);
    else
        participant_release_owner(owner, peer_key, is_dead);
}

int participant_claim_thread(struct participant *participant, uint32_t *ret)
{
    const struct segment *segment = participant->segment;

    for (uint32_t i = 0; i < segment->layout.sizes.threads_n; i++) {
        int r = i < segment_threads_n(segment) ? 0 : segment_alloc_thread(segment, i);

        if (r < 0)
            return r;
        if (!participant_claim_owner(&segment_thread(segment, i)->peer_key, participant->peer_key))
            continue;
        r = participant_note_thread(participant, i);
        if (r == 0)
            participant_begin_generation(segment_thread(segment, i));
        *ret = i;
        return r;
    }
    return -ENOSPC;
}

/* Returns whether the process of an owner key is dead, in its slot or replaced in it. */
static bool participant_key_is_dead(const struct segment *segment, uint32_t peer_key)
{
    uint64_t id = peer_slot_find(segment_peer(segment, 0), segment_peers_n(segment), peer_key);
    uint32_t slot = peer_key % SEGMENT_PEERS_MAX;

    if (id)
        return peer_id_is_dead(id);
    id = peer_slot_predecessor(segment_peer(segment, slot));
    return id && peer_key_is_until(peer_key, peer_key_make(id, slot));
}

/* Takes a thread context over from a dead process. Returns 0; -ENOSPC (all are alive); -EAGAIN
 * (contexts were released meanwhile); or -EUCLEAN. */
static int participant_take_dead_thread(struct participant *participant, uint32_t *ret)
{
    const struct segment *segment = participant->segment;
    uint32_t living = participant->peer_key; /* the last one that was found alive */
    bool changed = false;

    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        _Atomic uint64_t *owner = &segment_thread(segment, i)->peer_key;
        uint64_t value = shm_load_relaxed(owner); /* only a filter */
        uint32_t peer_key = (uint32_t)value;

        changed |= peer_key == 0;
        if (!peer_key || peer_key == living)
            continue;
        if (!participant_key_is_dead(segment, peer_key)) {
            living = peer_key;
            continue;
        }
        if (shm_cas_seq_cst(owner, value, thread_owner_make(peer_key, participant->peer_key))) {
            *ret = i;
            return participant_note_thread(participant, i);
        }
        changed = true;
    }
    return changed ? -EAGAIN : -ENOSPC;
}

int participant_claim_spare_thread(struct participant *participant, uint32_t *ret,
                                   bool *ret_is_inherited)
{
    int r = 0, taken = -EAGAIN;

    *ret_is_inherited = false;
    for (int i = 0; i < PARTICIPANT_SLOT_TRIES && taken == -EAGAIN; i++) {
        r = participant_claim_thread(participant, ret);
        if (r == 0 || r == -EUCLEAN)
            return r;
        taken = participant_take_dead_thread(participant, ret);
    }
    *ret_is_inherited = taken == 0;
    return taken == 0 || taken == -EUCLEAN ? taken : r;
}

/* The owner first: from then on no other process begins to recover the context. */
void participant_settle_thread(const struct participant *participant, uint32_t i)
{
    struct segment_thread *ctx = segment_thread(participant->segment, i);
    uint64_t value = atomic_load_explicit(&ctx->peer_key, memory_order_seq_cst);

    WEIR_INVARIANT((uint32_t)value == participant->peer_key);
    shm_cas_seq_cst(&ctx->peer_key, value, participant->peer_key);
    SCHED_POINT();
    participant_begin_generation(ctx);
}

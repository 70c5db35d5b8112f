/* SPDX-License-Identifier: MIT */
/* Chooses key sets for keys: one that is unbound, a new one, or one that another key gives up. */
#include "keyed/key_set_internal.h"
#include "set/instance_base.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include <errno.h>

/* Bound on the key sets that one operation examines for one to reclaim. */
#define RECLAIM_MAX 64u

/* ---- unbound key sets: a stack, which is only a hint where to look first (Treiber 1986) ---- */

/* The links of a key set in the stack. */
struct unbound_link {
    _Atomic uint32_t *unbound_next, *unbound_listed;
};

static struct unbound_link key_set_unbound_link(const struct keyed *keyed, uint32_t number)
{
    struct segment_key_set *shared;
    struct key_set *key_set;

    if (keyed->segment) {
        shared = segment_key_set(keyed->segment, number);
        return (struct unbound_link){&shared->unbound_next, &shared->unbound_listed};
    }
    key_set = *stable_array_at(&keyed->key_sets, number);
    return (struct unbound_link){&key_set->unbound_next, &key_set->unbound_listed};
}

/* Replaces the first of the stack. The tag in the upper half of the word guards against ABA. */
static bool key_set_swap_first(struct keyed *keyed, uint64_t top, uint32_t first)
{
    return shm_cas_seq_cst(&keyed->shared_state->unbound_list, top,
                           ((top >> 32) + 1) << 32 | first);
}

void key_set_push_unbound(struct keyed *keyed, uint32_t number)
{
    struct unbound_link link = key_set_unbound_link(keyed, number);
    uint64_t top;

    WEIR_INVARIANT(number < keyed->key_sets_max);
    if (atomic_exchange_explicit(link.unbound_listed, 1, memory_order_seq_cst))
        return;
    SCHED_POINT();
    do {
        top = atomic_load_explicit(&keyed->shared_state->unbound_list, memory_order_seq_cst);
        atomic_store_explicit(link.unbound_next, (uint32_t)top, memory_order_seq_cst);
    } while (!key_set_swap_first(keyed, top, number + 1));
}

/*
 * A thread that pops a key set clears `unbound_listed`, then checks whether the key set is unbound.
 * A thread that ends a binding commits first, then pushes the key set unless it is listed. So an
 * unbound key set is listed, or a thread is about to bind it.
 */
static bool key_set_pop_unbound(struct keyed *keyed, uint32_t *ret)
{
    struct unbound_link link;
    uint64_t top;
    uint32_t next;

    do {
        top = atomic_load_explicit(&keyed->shared_state->unbound_list, memory_order_seq_cst);
        *ret = (uint32_t)top - 1;
        if (*ret >= key_sets_n(keyed))
            return false;
        link = key_set_unbound_link(keyed, *ret);
        next = atomic_load_explicit(link.unbound_next, memory_order_seq_cst);
        SCHED_POINT();
    } while (!key_set_swap_first(keyed, top, next));
    atomic_store_explicit(link.unbound_listed, 0, memory_order_seq_cst);
    return true;
}

/* ---- choices: each returns 1, -ENOBUFS (there is none) or what key_set_begin() says ---- */

static int key_set_begin_number(struct keyed_slot *slot, uint32_t number)
{
    struct key_set *key_set = key_set_by_number(slot->keyed, number, NULL);

    return key_set ? key_set_begin(slot, key_set) : -ENOMEM;
}

static int key_set_choose_unbound(struct keyed_slot *slot)
{
    uint32_t number;

    for (uint32_t i = 0; i < RECLAIM_MAX && key_set_pop_unbound(slot->keyed, &number); i++) {
        int r = key_set_begin_number(slot, number);

        if (r != 0)
            return r;
    }
    return -ENOBUFS;
}

static int key_set_choose_new(struct keyed_slot *slot)
{
    weir *w = slot->keyed->set->w;
    uint32_t number;
    int r;

    do {
        pthread_mutex_lock(&w->lock);
        number = key_sets_n(slot->keyed);
        r = key_set_make(slot->keyed, number);
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
            return r == -ENOSPC ? -ENOMEM : r; /* like every other lack of memory in a segment */
        r = key_set_begin_number(slot, number);
    } while (r == 0); /* another thread has bound it already */
    return r;
}

/* The key that loses its key set if no key gives one up. */
struct reclaim_candidate {
    struct key_set *key_set;
    struct key_entry entry;
    uint64_t instant;
};

/* Evicts the candidate's key. A lost race leaves the amount of room unchanged. */
static int reclaim_evict(struct keyed_slot *slot, const struct reclaim_candidate *best)
{
    struct keyed *keyed = slot->keyed;
    int r;

    if (!best->key_set || keyed->eviction == KEY_EVICT_NONE)
        return -ENOBUFS;
    if (!key_set_may_remove(slot->ctx, keyed, best->entry.word, KEY_EVICTABLE) ||
        !key_entry_remove(&best->entry))
        return -ESTALE;
    atomic_fetch_add_explicit(&keyed->shared_state->evicted, 1, memory_order_relaxed);
    r = key_set_begin(slot, best->key_set);
    return r == 0 ? -ESTALE : r;
}

static int key_set_choose_reclaimed(struct keyed_slot *slot)
{
    struct keyed *keyed = slot->keyed;
    uint32_t all = key_sets_n(keyed), n = all < RECLAIM_MAX ? all : RECLAIM_MAX;
    struct reclaim_candidate best = {0}, next;

    for (uint32_t i = 0; i < n; i++) {
        /* Relaxed: the hand only spreads the scans. */
        uint32_t index = atomic_fetch_add_explicit(&keyed->clock_hand, 1, memory_order_relaxed);
        enum key_use use = KEY_PINNED;
        int r;

        next.key_set = key_set_by_number(keyed, index % all, NULL);
        if (next.key_set)
            use = key_set_reclaim(slot->ctx, next.key_set, &next.entry, &next.instant);
        if (use == KEY_AS_NEW && (r = key_set_begin(slot, next.key_set)) != 0)
            return r;
        if (use == KEY_EVICTABLE &&
            (!best.key_set || (keyed->eviction == KEY_EVICT_OLDEST && next.instant < best.instant)))
            best = next;
    }
    return reclaim_evict(slot, &best);
}

int key_set_bind(struct keyed_slot *slot)
{
    int r = key_set_choose_unbound(slot), lacks;

    if (r == -ENOBUFS)
        r = key_set_choose_new(slot);
    lacks = r;
    if (r == -ENOBUFS || r == -ENOMEM)
        r = key_set_choose_reclaimed(slot);
    if (r < 0)
        keyed_slot_drop(slot);
    return r == -ENOBUFS ? lacks : r;
}

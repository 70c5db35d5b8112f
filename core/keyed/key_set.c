/* SPDX-License-Identifier: MIT */
/* Makes key sets, finds them by number, and chooses them for keys. */
#include "keyed/keyed_internal.h"
#include "set/instance_base.h"
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

/* Bound on the key sets that one operation examines for one to reclaim. */
#define RECLAIM_MAX 64u

/* Copies all settings of the template set; a shared key set has its state in the segment. */
static void key_set_init(struct key_set *key_set, struct keyed *keyed, uint32_t number)
{
    const weir_set *template = keyed->set;
    weir_set *set = &key_set->set;

    WEIR_INVARIANT(number < KEY_SETS_MAX);
    key_set->keyed = keyed;
    key_set->number = number;
    key_set->unbound = &key_set->own_unbound;
    set->w = template->w;
    set->ops = template->ops;
    set->region = template->region;
    set->number = template->number; /* for the counters, which are the template set's */
    set->record_units = template->record_units;
    set->limits = template->limits;
    set->config = template->config;
    set->config_n = template->config_n;
    set->timeout_ns = template->timeout_ns;
    set->max_wait_ns = template->max_wait_ns;
    set->max_waiters = template->max_waiters;
    set->strict = template->strict;
    set->fair = template->fair;
    set->per_limit = template->per_limit;
    set->reorders = template->reorders;
    set->backend = template->backend;
    set->is_later = template->is_later;
    if (!keyed->segment)
        return;
    set->participant = template->participant;
    set->is_robust = true;
    set->head_unit = segment_key_set_unit(keyed->segment, number);
    set->block_class = template->block_class;
    set->deflated_ns = &set->own_deflated_ns;
}

static _Atomic(struct key_set *) *key_set_slot(const struct keyed_store *store, uint32_t number)
{
    return (_Atomic(struct key_set *) *)(void *)stable_array_at(&store->key_sets, number);
}

struct key_set *key_set_known(const struct keyed *keyed, uint32_t number)
{
    if (number >= atomic_load_explicit(&keyed->store->key_sets_known_n, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(key_set_slot(keyed->store, number), memory_order_acquire);
}

/* Makes the state of a private key set: that of the one before it, or none yet. Of a successor, all
 * have an origin: records of their keys may be of an earlier definition. */
static int key_set_make_state(struct key_set *key_set, struct key_set *before)
{
    weir_set *set = &key_set->set;
    struct set_origin *origin = NULL;
    int r;

    if (key_set->keyed->set->origin && !(origin = os_alloc(1, sizeof(*origin))))
        return -ENOMEM;
    if (before) {
        origin->predecessor = &before->set;
        key_set->unbound = before->unbound;
        set->origin = origin; /* the state comes from there */
    }
    r = set_storage_make(set, &(struct set_storage_plan){0}, NULL);
    if (r < 0)
        os_free(origin);
    else
        set->origin = origin;
    return r;
}

/* Returns why no key set can be made of this definition, or 0. One of a segment has its state
 * there: what waits for it has to end at the end of the instance, too. */
static int key_set_obstacle(const struct keyed *keyed)
{
    const weir *w = keyed->set->w;

    if (!keyed->segment && instance_is_closed(keyed->set->w))
        return -ESHUTDOWN;
    if (set_successor(keyed->set))
        return -ESTALE;
    return w->key_sets_n < KEY_SET_ID_BIT ? 0 : -ENOMEM;
}

/* Makes a key set known in this process, `before` by an earlier definition. The instance's lock is
 * held. The release stores pair with the acquire loads of key_set_known(). Returns 0, -ENOMEM,
 * -ESTALE (there is a later definition) or -ESHUTDOWN. */
static int key_set_add(struct keyed *keyed, uint32_t number, struct key_set *before)
{
    struct keyed_store *store = keyed->store;
    weir *w = keyed->set->w;
    struct key_set *key_set = os_alloc(1, sizeof(*key_set));
    int r = key_set ? key_set_obstacle(keyed) : -ENOMEM;

    WEIR_INVARIANT(instance_lock_is_held(w));
    WEIR_INVARIANT(key_set_known(keyed, number) == before);
    if (r == 0)
        r = stable_array_reserve(&store->key_sets, number + 1);
    if (r == 0)
        r = stable_array_reserve(&w->key_sets, w->key_sets_n + 1);
    if (r == 0) {
        key_set_init(key_set, keyed, number);
        if (!keyed->segment)
            r = key_set_make_state(key_set, before);
    }
    if (r < 0) {
        os_free(key_set);
        return r;
    }
    atomic_fetch_add_explicit(&store->key_sets_made, 1, memory_order_relaxed);
    key_set->before = before;
    if (before && !keyed->segment)
        keyed_owe(keyed, keyed->owed_n - 1);
    key_set->set.id = KEY_SET_ID_BIT | w->key_sets_n;
    *stable_array_at(&w->key_sets, w->key_sets_n++) = &key_set->set;
    if (before)
        atomic_store_explicit(&before->set.successor, &key_set->set, memory_order_seq_cst);
    atomic_store_explicit(key_set_slot(store, number), key_set, memory_order_release);
    if (atomic_load_explicit(&store->key_sets_known_n, memory_order_seq_cst) <= number)
        atomic_store_explicit(&store->key_sets_known_n, number + 1, memory_order_release);
    return 0;
}

/* Returns whether another key set leaves room for the successors of all that there are. */
static bool key_set_leaves_room(const struct keyed *keyed)
{
    struct promised_sets promised = keyed->set->w->promised;

    if (keyed->segment || !promised.all)
        return true;
    version_promise(&promised, keyed->set->block_class, 1, 0);
    return version_has_room(keyed->set->region, &promised);
}

/* Makes one more key set, under the instance's lock. Returns 0; -ENOBUFS (at the maximum); -ENOMEM
 * or -ESHUTDOWN; in a segment, the error of the system. */
static int key_set_make(struct keyed *keyed, uint32_t number)
{
    int r;

    WEIR_INVARIANT(instance_lock_is_held(keyed->set->w));
    if (number >= keyed->key_sets_max || !key_set_leaves_room(keyed))
        return -ENOBUFS;
    if (keyed->segment)
        return segment_alloc_key_set(keyed->segment, number);
    r = key_set_add(keyed, number, NULL);
    if (r == 0)
        atomic_store_explicit(&keyed->shared_state->key_sets_high, number + UINT64_C(1),
                              memory_order_seq_cst);
    return r;
}

uint32_t key_sets_n(const struct keyed *keyed)
{
    return segment_scan_count(&keyed->shared_state->key_sets_high, keyed->key_sets_max);
}

struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage)
{
    struct key_set *key_set = key_set_known(keyed, number);
    weir *w = keyed->set->w;

    if (key_set && key_set->keyed == keyed)
        return key_set;
    if (storage && keyed->segment) {
        memset(storage, 0, sizeof(*storage));
        key_set_init(storage, keyed, number);
        storage->set.id = KEY_SET_ID_BIT;
        return storage;
    }
    pthread_mutex_lock(&w->lock);
    key_set = key_set_known(keyed, number);
    if ((!key_set || key_set->keyed != keyed) && key_set_add(keyed, number, key_set) == 0)
        key_set = key_set_known(keyed, number);
    pthread_mutex_unlock(&w->lock);
    return key_set && key_set->keyed == keyed ? key_set : NULL;
}

struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage)
{
    uint32_t number = (uint32_t)(word >> BINDING_BITS & (KEY_SETS_MAX - 1));

    if (!key_word_is_key_set(word) || number >= key_sets_n(keyed))
        return NULL;
    return key_set_by_number(keyed, number, storage);
}

/* The definition may be left before the key set is known by it; then there is a later one. */
weir_set *key_set_newest(const weir_set *set)
{
    const struct key_set *key_set = (const struct key_set *)set;
    struct key_set *newest;
    weir_set *template;

    do {
        template = set_newest(key_set->keyed->set);
        newest = key_set_by_number(keyed_of(template), key_set->number, NULL);
    } while (!newest && set_newest(template) != template);
    return newest ? &newest->set : set_newest(set);
}

/* ---- the set that a record names ---- */

weir_set *key_set_of_record(weir_set *template, const struct acq_record *r, struct key_set *storage)
{
    uint32_t id = record_set_number(r);

    if (!template->is_keyed || !(id & KEY_SET_ID_BIT))
        return template;
    id &= ~KEY_SET_ID_BIT;
    return id < key_sets_n(keyed_of(template))
               ? &key_set_by_number(keyed_of(template), id, storage)->set
               : template;
}

static void key_set_free(struct key_set *key_set)
{
    while (key_set) {
        struct key_set *before = key_set->before;

        os_free(key_set->set.origin);
        os_free(key_set);
        key_set = before;
    }
}

void key_sets_free(struct keyed_store *store)
{
    uint32_t n = atomic_load_explicit(&store->key_sets_known_n, memory_order_seq_cst);

    for (uint32_t i = 0; i < n; i++)
        key_set_free(atomic_load_explicit(key_set_slot(store, i), memory_order_seq_cst));
    stable_array_free(&store->key_sets);
}

/* ---- unbound key sets: a stack, which is only a hint where to look first (Treiber 1986) ---- */

static struct unbound_link *key_set_unbound_link(const struct keyed *keyed, uint32_t number)
{
    return keyed->segment ? &segment_key_set(keyed->segment, number)->unbound
                          : key_set_known(keyed, number)->unbound;
}

/* Replaces the first of the stack. The tag in the upper half of the word guards against ABA. */
static bool key_set_swap_first(struct keyed *keyed, uint64_t top, uint32_t first)
{
    WEIR_INVARIANT(keyed->segment || first <= KEY_SETS_MAX);
    return shm_cas_seq_cst(&keyed->shared_state->unbound_list, top,
                           ((top >> 32) + 1) << 32 | first);
}

void key_set_push_unbound(struct keyed *keyed, uint32_t number)
{
    struct unbound_link *link = key_set_unbound_link(keyed, number);
    uint64_t top;

    WEIR_INVARIANT(number < keyed->key_sets_max && number < KEY_SETS_MAX);
    if (atomic_exchange_explicit(&link->is_listed, 1, memory_order_seq_cst))
        return;
    SCHED_POINT();
    do {
        top = atomic_load_explicit(&keyed->shared_state->unbound_list, memory_order_seq_cst);
        atomic_store_explicit(&link->next, (uint32_t)top, memory_order_seq_cst);
    } while (!key_set_swap_first(keyed, top, number + 1));
}

/*
 * A thread that pops a key set clears `is_listed`, then checks whether the key set is unbound.
 * A thread that ends a binding commits first, then pushes the key set unless it is listed. So an
 * unbound key set is listed, or a thread is about to bind it.
 */
static bool key_set_pop_unbound(struct keyed *keyed, uint32_t *ret)
{
    struct unbound_link *link;
    uint64_t top;
    uint32_t next;

    do {
        top = atomic_load_explicit(&keyed->shared_state->unbound_list, memory_order_seq_cst);
        *ret = (uint32_t)top - 1;
        if (*ret >= key_sets_n(keyed))
            return false;
        link = key_set_unbound_link(keyed, *ret);
        next = atomic_load_explicit(&link->next, memory_order_seq_cst);
        SCHED_POINT();
    } while (!key_set_swap_first(keyed, top, next));
    atomic_store_explicit(&link->is_listed, 0, memory_order_seq_cst);
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

        if (r < 0)
            key_set_push_unbound(slot->keyed, number); /* for another key */
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
        uint32_t index =
            atomic_fetch_add_explicit(&keyed->store->clock_hand, 1, memory_order_relaxed);
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

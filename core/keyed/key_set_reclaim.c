/* SPDX-License-Identifier: MIT */
/* Reclaims a key set when all are in use. */
#include "keyed/key_set_internal.h"
#include "shm/segment.h"

#include <errno.h>

/* The best key set examined so far. */
struct reclaim_candidate {
    struct key_set *key_set;
    struct key_entry entry;
    uint64_t instant;
};

static void reclaim_consider(struct reclaim_candidate *best, const struct keyed *keyed,
                             struct key_set *key_set, const struct key_entry *entry,
                             uint64_t instant)
{
    if (!best->key_set || (keyed->eviction == KEY_EVICT_OLDEST && instant < best->instant))
        *best = (struct reclaim_candidate){key_set, *entry, instant};
}

/* Returns whether the key set is unbound now, at no key's loss. Otherwise it may become a
 * candidate. */
static bool reclaim_try(const struct bind_request *request, struct key_set *key_set,
                        struct reclaim_candidate *best)
{
    struct keyed *keyed = request->keyed;
    struct key_entry entry;
    struct txn txn;
    uint64_t instant;
    bool abandoned;

    txn_begin(&txn, request->ctx, &key_set->set);
    if (set_is_broken(&key_set->set))
        return false;
    abandoned =
        key_set_is_abandoned(&txn); /* then its CAS of the key's word happened or never will */
    key_set_help(keyed, &txn);
    if (!key_set_is_named(keyed, &txn, &entry))
        return key_set_phase_of(&txn) == PHASE_UNBOUND ||
               (key_set_phase_of(&txn) == PHASE_BINDING && abandoned && key_set_end_binding(&txn));
    if (key_set_phase_of(&txn) == PHASE_UNBOUND && key_set_restore_entry(keyed, &txn, &entry))
        return true;
    if (key_set_fits_word(keyed, &txn) &&
        key_set_is_quiet(&txn)) /* the last operation did not unbind it */
        return key_set_end_binding(&txn) && key_set_restore_entry(keyed, &txn, &entry);
    switch (key_set_use_of(&txn, &instant)) {
    case KEY_AS_NEW:
        return key_set_end_binding(&txn) &&
               key_set_remove_entry(&entry, &keyed->shared_state->forgotten);
    case KEY_EVICTABLE:
        reclaim_consider(best, keyed, key_set, &entry, instant);
        return false;
    default:
        return false;
    }
}

/* Another thread won the race, so the amount of room is unchanged: try again. */
static int reclaim_lost_race(void)
{
    return -EINPROGRESS;
}

int key_set_reclaim(struct bind_request *request)
{
    struct keyed *keyed = request->keyed;
    uint32_t all = key_sets_n(keyed), n = all < RECLAIM_MAX ? all : RECLAIM_MAX;
    struct reclaim_candidate best = {0};
    int r;

    for (uint32_t i = 0; i < n; i++) {
        /* Relaxed: the hand only spreads the scans. */
        uint32_t index = atomic_fetch_add_explicit(&keyed->clock_hand, 1, memory_order_relaxed);
        struct key_set *key_set = key_set_by_number(keyed, index % all, NULL);

        if (key_set && reclaim_try(request, key_set, &best) &&
            (r = key_set_try_bind(request, key_set)) != 0)
            return r < 0 ? r : 0;
    }
    if (!best.key_set || keyed->eviction == KEY_EVICT_NONE)
        return -ENOBUFS;
    if (!key_set_may_remove(request->ctx, keyed, best.entry.word, KEY_EVICTABLE) ||
        !key_set_remove_entry(&best.entry, &keyed->shared_state->evicted))
        return reclaim_lost_race();
    r = key_set_try_bind(request, best.key_set);
    return r == 1 ? 0 : r < 0 ? r : reclaim_lost_race();
}

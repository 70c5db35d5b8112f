/* SPDX-License-Identifier: MIT */
/* Reports counters and sums over all keys of a keyed set. */
#include "keyed/keyed_internal.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "keyed/key_set.h"
#include "set/instance_base.h"
#include <errno.h>

uint64_t keyed_waiters_n(struct thread_ctx *ctx, const weir_set *set)
{
    struct set_view view;
    struct key_set storage;
    uint64_t waiting = 0;

    WEIR_INVARIANT(set->keyed && ctx->w == set->w);
    for (uint32_t i = 0; i < key_sets_n(set->keyed); i++) {
        set_snapshot(ctx, &key_set_by_number(set->keyed, i, &storage)->set, &view);
        waiting += view.length;
    }
    return waiting;
}

int weir_set_subjects(weir_set *set, struct weir_subjects_stats *ret)
{
    static const char *const policies[] = {
        [KEY_EVICT_NONE] = "none", [KEY_EVICT_OLDEST] = "oldest", [KEY_EVICT_RANDOM] = "random"};
    const struct keyed *keyed = set->keyed;
    struct key_entry entry;
    uint64_t keys = 0, key_sets = 0;

    if (instance_is_forked(set->w))
        return -ECHILD;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (!keyed)
        return 0;
    for (uint64_t i = 0; i < key_table_slots(&keyed->table); i++) {
        bool is_used = key_table_at(&keyed->table, i, &entry);

        keys += is_used;
        key_sets += is_used && key_word_is_key_set(entry.word);
    }
    *ret = (struct weir_subjects_stats){
        .size = sizeof(*ret),
        .known = keys,
        .live = key_sets,
        .max = keyed->max_keys,
        .room = keyed->capacity,
        .memory = keyed->memory_size + key_sets_n(keyed) * key_set_size(set),
        .memory_max = keyed->memory_max,
        .evict = policies[keyed->eviction],
        .forgotten = atomic_load_explicit(&keyed->shared_state->forgotten, memory_order_relaxed),
        .evicted = atomic_load_explicit(&keyed->shared_state->evicted, memory_order_relaxed),
        .refused = atomic_load_explicit(&keyed->shared_state->refused, memory_order_relaxed),
    };
    return 1;
}

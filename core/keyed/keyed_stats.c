/* SPDX-License-Identifier: MIT */
/* Keyed sets: what is told of all keys together. */
#include "keyed/keyed_internal.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include <errno.h>

uint64_t keyed_waiting(struct actor *actor, const weir_set *set)
{
    struct live storage;
    uint64_t waiting = 0;

    for (uint32_t i = 0; i < lives_n(set->keyed); i++)
        waiting += set_snapshot(actor, &live_numbered(set->keyed, i, &storage)->set);
    return waiting;
}

int weir_set_keyed(weir_set *set, struct weir_keyed_stats *ret)
{
    static const char *const policies[] = {
        [KEY_EVICT_NONE] = "none", [KEY_EVICT_OLDEST] = "oldest", [KEY_EVICT_RANDOM] = "random"};
    const struct keyed *keyed = set->keyed;
    struct key_entry entry;
    uint64_t keys = 0, lives = 0;

    if (instance_forked(set->w))
        return -ECHILD;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (!keyed)
        return 0;
    for (uint64_t i = 0; i < key_table_slots(&keyed->table); i++) {
        bool there = key_table_at(&keyed->table, i, &entry);

        keys += there;
        lives += there && word_is_live(entry.word);
    }
    *ret = (struct weir_keyed_stats){
        .size = sizeof(*ret),
        .keys = keys,
        .live = lives,
        .max_keys = keyed->max_keys,
        .room = keyed->keys,
        .memory = keyed->memory_size + lives_n(keyed) * live_size(set),
        .memory_max = keyed->memory_max,
        .evict = policies[keyed->eviction],
        .forgotten = atomic_load_explicit(&keyed->common->forgotten, memory_order_relaxed),
        .evicted = atomic_load_explicit(&keyed->common->evicted, memory_order_relaxed),
        .refused = atomic_load_explicit(&keyed->common->refused, memory_order_relaxed),
    };
    return 1;
}

/* SPDX-License-Identifier: MIT */
/* Answers observers: when a key could be granted an amount, and sums over all keys. */
#include "keyed/key_set_internal.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "set/instance_base.h"
#include <errno.h>
#include <string.h>

static void keyed_forecast_states(struct acquire_op *op, const struct limits *limits,
                                  const uint64_t *states, const struct weir_instant *at)
{
    struct decision *ret = &op->decision;

    *ret = (struct decision){.now_ns = at->now_ns};
    /* If only a resource is short, it is the limiting one, although it has no forecast. */
    limits_ready_at(limits, states, at, op->amounts, true, &ret->limiting);
    ret->forecast_ns = limits_ready_at(limits, states, at, op->amounts, false, &ret->limiting);
}

void keyed_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    weir_set *set = key_set_template(op->set);
    const struct key_digest key = record ? keyed_record_key(set, record) : op->key;
    struct keyed_slot slot = {.keyed = keyed_of(set), .ctx = op->ctx, .key = &key};
    uint64_t *states = op->ctx->content; /* as room for a new key's */
    struct weir_instant at;

    WEIR_INVARIANT(op->ctx->w == set->w);
    while (keyed_slot_find(&slot)) {
        uint64_t word = slot.entry.word;
        struct key_set storage, *key_set;

        if (!key_word_is_key_set(word) && keyed_is_valid(slot.keyed, word)) {
            at = clock_instant(&set->w->clock, set->limits.reads_wall);
            keyed_forecast_states(op, &set->limits, &word, &at);
            return;
        }
        key_set = key_set_at(slot.keyed, word, &storage);
        if (key_set)
            set_forecast(op->ctx, &key_set->set, op->amounts, walk, &op->decision);
        /* A word that named a key set all the time: its states were the key's. */
        if (key_set && keyed_slot_is_same(&slot))
            return;
        if (set_is_broken(set) || !key_set_repair(&slot)) {
            op->decision = (struct decision){.now_ns = clock_now_ns(&set->w->clock),
                                             .forecast_ns = WEIR_NEVER};
            return;
        }
    }
    at = clock_instant(&set->w->clock, set->limits.reads_wall);
    memset(states, 0, (set->limits.state_words - KEY_SET_WORDS) * sizeof(*states));
    limits_init(&set->limits, states, &at);
    keyed_forecast_states(op, &set->limits, states, &at);
}

int weir_set_subjects(weir_set *set, struct weir_subjects_stats *ret)
{
    static const char *const policies[] = {
        [KEY_EVICT_NONE] = "none", [KEY_EVICT_OLDEST] = "oldest", [KEY_EVICT_RANDOM] = "random"};
    const struct keyed *keyed = set->is_keyed ? keyed_of(set) : NULL;
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

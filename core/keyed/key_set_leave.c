/* SPDX-License-Identifier: MIT */
/* Classifies keys for eviction, and unbinds key sets from their keys. */
#include "keyed/key_set_internal.h"
#include "shm/segment.h"

/* ---- classification ---- */

bool key_states_are_new(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (!limit_is_new(&limits->items[i], states + limits->items[i].state_offset, at))
            return false;
    return true;
}

enum key_use key_states_use(const struct limits *limits, const uint64_t *states,
                            const struct weir_instant *at, uint64_t *ret_instant)
{
    uint64_t recovered = at->now_ns;

    if (key_states_are_new(limits, states, at))
        return KEY_AS_NEW;
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t ready = 0;

        if (limit->type != WEIR_LIMIT_RESOURCE)
            ready = limit_ready_at(limit, states + limit->state_offset, at, limit->capacity);
        else if (!limit_is_new(limit, states + limit->state_offset, at))
            return KEY_PINNED;
        recovered = ready > recovered ? ready : recovered;
    }
    *ret_instant = recovered;
    return KEY_EVICTABLE;
}

/* An unbound key set has no waiters. */
enum key_use key_set_use_of(const struct txn *txn, uint64_t *ret_instant)
{
    if (key_set_phase_of(txn) != PHASE_UNBOUND && !key_set_is_quiet(txn))
        return KEY_PINNED;
    return key_states_use(&txn->set->limits, txn_states(txn), &txn->at, ret_instant);
}

enum key_use key_set_use(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                         uint64_t *ret_instant)
{
    struct key_set storage;
    struct txn txn;

    if (!key_set_read(&txn, ctx, keyed, word, &storage))
        return KEY_PINNED;
    return key_set_use_of(&txn, ret_instant);
}

/* ---- unbinding ---- */

/* Raises `*instant` to at least `to`. The load is relaxed because the CAS validates it. */
static void key_set_raise_ns(_Atomic uint64_t *instant, uint64_t to)
{
    uint64_t expected = atomic_load_explicit(instant, memory_order_relaxed);

    while (expected < to && !atomic_compare_exchange_weak(instant, &expected, to))
        ;
}

bool key_set_remove_entry(const struct key_entry *entry, _Atomic uint64_t *counter)
{
    if (!key_entry_remove(entry))
        return false;
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return true;
}

bool key_set_restore_entry(struct keyed *keyed, const struct txn *txn, struct key_entry *entry)
{
    const uint64_t *states = txn_states(txn);

    if (key_states_are_new(&txn->set->limits, states, &txn->at)) {
        key_set_remove_entry(entry, &keyed->shared_state->forgotten);
        return true;
    }
    if (!key_set_fits_word(keyed, txn))
        return false;
    key_set_raise_ns(&keyed->shared_state->unbound_ns, txn->at.now_ns);
    key_entry_swap(entry, *states);
    return true;
}

bool key_set_may_remove(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                        enum key_use use)
{
    struct key_set storage;
    struct txn txn;
    enum key_use now;
    uint64_t instant;

    if (!key_set_read(&txn, ctx, keyed, word, &storage))
        return false;
    now = key_set_use_of(&txn, &instant);
    if (now == KEY_PINNED || (use == KEY_AS_NEW && now != use))
        return false;
    if (key_set_phase_of(&txn) != PHASE_UNBOUND && !key_set_end_binding(&txn))
        return false;
    /* The caller replaces the entry at once. */
    key_set_push_unbound(keyed, key_set_of(txn.set)->number);
    return true;
}

void key_set_unbind_if_idle(struct thread_ctx *ctx, struct key_set *key_set)
{
    struct keyed *keyed = key_set->keyed;
    struct key_entry entry;
    struct txn txn;

    txn_begin(&txn, ctx, &key_set->set);
    if (key_set_phase_of(&txn) == PHASE_UNBOUND || !key_set_is_quiet(&txn))
        return;
    if (!key_set_fits_word(keyed, &txn) &&
        !key_states_are_new(&txn.set->limits, txn_states(&txn), &txn.at))
        return;
    if (key_set_is_named(keyed, &txn, &entry) && key_set_end_binding(&txn) &&
        key_set_restore_entry(keyed, &txn, &entry))
        key_set_push_unbound(keyed, key_set->number);
}

void key_set_record_freed(struct thread_ctx *ctx, weir_set *set)
{
    key_set_unbind_if_idle(ctx, key_set_of(set));
}

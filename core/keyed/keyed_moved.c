/* SPDX-License-Identifier: MIT */
/* Subjects that change their definition: conversion of what a key has, also without a request. */
#include "base/invariant.h"
#include "keyed/keyed_internal.h"
#include "set/instance_base.h"
#include "set/try_now.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <string.h>

void keyed_begin_change(weir_set *set)
{
    const weir_set *before = set->origin->predecessor;

    keyed_of(set)->change_at =
        clock_instant(&set->w->clock, set->limits.clock_needs | before->limits.clock_needs);
    keyed_owe(keyed_of(before), 0);
    keyed_owe(keyed_of(set), key_sets_n(keyed_of(set)));
}

const struct keyed *keyed_before(const struct keyed *keyed, uint32_t changes)
{
    for (; changes && keyed->set->origin; changes--)
        keyed = keyed_of(keyed->set->origin->predecessor);
    return changes ? NULL : keyed;
}

const struct keyed *keyed_definition_of(const struct keyed *keyed, uint64_t id)
{
    uint32_t age = key_table_age(&keyed->table, id);

    return age > keyed->definition || age >= KEY_TAGS / 2 ? NULL : keyed_before(keyed, age);
}

bool keyed_may_be_later(const struct keyed *keyed)
{
    if (keyed->segment && !keyed_is_outdated(keyed))
        participant_mark_broken(keyed->set->participant); /* no correct process writes this */
    return !set_is_broken(keyed->set);
}

uint32_t keyed_oldest(const struct keyed *keyed)
{
    uint64_t oldest = atomic_load_explicit(&keyed->shared_state->oldest, memory_order_seq_cst);

    WEIR_INVARIANT(keyed->segment);
    return oldest < keyed->definition ? (uint32_t)oldest : keyed->definition;
}

bool keyed_lacks_tags(const struct keyed *keyed)
{
    return keyed->definition - atomic_load_explicit(&keyed->oldest, memory_order_relaxed) >=
           KEY_TAGS / 2 - 1;
}

void keyed_owe(struct keyed *keyed, uint32_t n)
{
    WEIR_INVARIANT(instance_lock_is_held(keyed->set->w));
    version_promise(&keyed->set->w->promised, keyed->set->block_class, n, keyed->owed_n);
    keyed->owed_n = n;
}

void keyed_plan_owed(const struct keyed *keyed, uint32_t block_class,
                     struct promised_sets *promised)
{
    version_promise(promised, keyed->set->block_class, 0, keyed->owed_n);
    version_promise(promised, block_class, key_sets_n(keyed), 0);
}

void keyed_open_template(struct thread_ctx *ctx, struct keyed *keyed)
{
    struct txn txn;

    if (!keyed->segment || atomic_load_explicit(&keyed->is_opened, memory_order_relaxed))
        return;
    txn_begin(&txn, ctx, keyed->set);
    atomic_store_explicit(&keyed->is_opened, true, memory_order_relaxed);
}

/* ---- conversion ---- */

/* Returns the instant at which a definition has succeeded the one before it. In a segment the first
 * process that needs it decides: after the set has moved, so no earlier decision is later. */
static struct weir_instant keyed_change_at(const struct keyed *keyed)
{
    weir_set *set = keyed->set;
    struct weir_instant at;
    uint64_t opened_ns;

    if (!keyed->segment)
        return keyed->change_at;
    at = clock_instant(&set->w->clock,
                       set->limits.clock_needs | set->origin->predecessor->limits.clock_needs);
    if (!segment_definition_opened_ns(keyed->segment, set->head_unit))
        segment_definition_note_opened(keyed->segment, set->head_unit, at.now_ns ? at.now_ns : 1);
    opened_ns = segment_definition_opened_ns(keyed->segment, set->head_unit);
    if (opened_ns <= CLOCK_MAX_NS)
        at.now_ns = opened_ns;
    else
        participant_mark_broken(set->participant);
    return at;
}

/* Finds the next definitions after `from`, the last one first, at most CONVERT_PATH. They are found
 * from the later one: another thread may be about to store what succeeds the earlier one. */
#define CONVERT_PATH 128u
static uint32_t keyed_path(const struct keyed *from, const struct keyed *to,
                           const struct keyed *ret[static CONVERT_PATH])
{
    uint32_t age = to->definition - from->definition, n = age < CONVERT_PATH ? age : CONVERT_PATH;

    ret[0] = keyed_before(to, age - n);
    for (uint32_t i = 1; i < n; i++)
        ret[i] = keyed_before(ret[i - 1], 1);
    return n;
}

/* Whether a key is forgotten as good as new must not show. So one that could have been begins anew
 * with the change; one with a reservation ahead could not. */
bool keyed_convert(const struct thread_ctx *ctx, const struct keyed *to, const struct keyed *from,
                   const uint64_t *states, uint64_t last_ns, uint64_t *ret)
{
    const size_t n = to->set->limits.state_words - KEY_SET_WORDS;
    const struct keyed *path[CONVERT_PATH], *next;
    uint32_t path_n = 0;
    bool is_new = false;

    WEIR_INVARIANT(from->definition < to->definition && thread_ctx_is_ready(ctx, to->set));
    for (uint32_t i = 0; from->definition != to->definition; i ^= 1) {
        uint64_t *converted = ctx->converted[i], instant;
        struct weir_instant at;
        bool is_ahead;

        path_n = path_n ? path_n : keyed_path(from, to, path);
        next = path[--path_n];
        at = keyed_change_at(next);
        is_ahead = at.now_ns < last_ns;
        if (is_ahead)
            at.now_ns = last_ns;
        is_new = !is_ahead && key_states_use(from->set, states, &at, &instant) == KEY_AS_NEW;
        if (is_new) {
            memset(converted, 0, next->set->limits.state_words * sizeof(*converted));
            limits_init(&next->set->limits, converted, &at);
        } else {
            successor_convert(next->set, states, &at, converted);
        }
        states = converted;
        from = next;
    }
    memcpy(ret, states, n * sizeof(*ret));
    return is_new;
}

void key_set_convert(const struct thread_ctx *ctx, const weir_set *set, uint64_t *before,
                     uint64_t last_ns, uint64_t *states)
{
    weir_set *predecessor = set->origin->predecessor;
    const struct keyed *from = key_set_of(predecessor)->keyed;

    keyed_convert(ctx, keyed_of(key_set_owner(set)), from, before, last_ns, states);
    *key_binding_behind(set, states) = *key_binding_behind(predecessor, before);
}

/* Returns whether states decide like those of a new key since the change. Else a subject that is
 * not asked for would stay by a definition before it. */
static bool keyed_is_new_by_now(const struct keyed *keyed, const uint64_t *states)
{
    struct weir_instant at = clock_instant(&keyed->set->w->clock, keyed->set->limits.clock_needs);
    uint64_t instant;

    return key_states_use(keyed->set, states, &at, &instant) == KEY_AS_NEW &&
           !keyed_is_outdated(keyed);
}

/* Gives an entry of definition `of` this one. A word that names a key set is the same by every
 * definition. Returns false if a key set has to be bound to the key first. A lost race leaves the
 * entry to the thread that has changed it. */
static bool keyed_renew(struct thread_ctx *ctx, const struct keyed *keyed, const struct keyed *of,
                        struct key_entry *entry)
{
    uint64_t word = entry->word, *states = ctx->content;
    bool is_new, fits;

    WEIR_INVARIANT(of != keyed);
    if (!key_word_is_key_set(word)) {
        if (!keyed_is_valid(of, word))
            return true;
        is_new = keyed_convert(ctx, keyed, of, &word, 0, states);
        fits = keyed->fits_inline && !key_word_is_key_set(*states);
        if (is_new || (!fits && keyed_is_new_by_now(keyed, states))) {
            keyed_note_removal(keyed, clock_now_ns(&keyed->set->w->clock)); /* later than it was */
            if (key_entry_remove(entry))
                atomic_fetch_add_explicit(&keyed->shared_state->forgotten, 1, memory_order_relaxed);
            return true;
        }
        if (!fits)
            return false;
        word = *states;
    }
    key_entry_retag(&keyed->table, entry, word);
    return true;
}

int keyed_slot_renew(struct keyed_slot *slot)
{
    const struct keyed *of = keyed_definition_of(slot->keyed, slot->entry.id);

    WEIR_INVARIANT(!slot->is_claim);
    if (!of)
        return keyed_may_be_later(slot->keyed) ? -ESTALE : -EUCLEAN;
    if (!keyed_renew(slot->ctx, slot->keyed, of, &slot->entry))
        return key_set_bind(slot);
    return set_is_broken(slot->keyed->set) ? -EUCLEAN : 1;
}

/* ---- changes without a request ---- */

void keyed_take_over_waiters(struct thread_ctx *ctx, struct keyed *keyed, uint32_t number)
{
    struct key_set storage, *key_set = key_set_known(keyed, number);
    struct thread_ctx *own;

    if (keyed->segment) {
        key_set_take_over(ctx, key_set_by_number(keyed, number, &storage));
        return;
    }
    /* One that has no state yet is about to take over the queue of that before it. */
    if (!key_set || (key_set->keyed != keyed && !try_now_has_queue(&key_set->set)))
        return;
    key_set = key_set_by_number(keyed, number, NULL);
    if (!key_set)
        return; /* out of memory: they go on by the earlier definition */
    own = moved_borrow_ctx(ctx, &key_set->set);
    set_grant_waiters(own, &key_set->set);
    moved_return_ctx(ctx, own);
}

/* Gives what a slot has this definition. A claim by an earlier one, the tag of which is to come
 * back, is withdrawn: the thread that has it was stopped, and begins again. Returns false, and the
 * definition, if the entry keeps an earlier one: the subject is not known, so no key set can be
 * bound to it. */
static bool keyed_take_over_slot(struct thread_ctx *ctx, const struct keyed *keyed,
                                 const struct key_table *table, uint64_t slot,
                                 const struct keyed **ret)
{
    struct key_entry entry;

    for (;;) { /* another thread may change it by the earlier definition */
        bool is_used = key_table_at(table, slot, &entry);

        *ret = entry.id ? keyed_definition_of(keyed, entry.id) : NULL;
        if (!*ret || *ret == keyed || set_is_broken(keyed->set))
            return true;
        if (!is_used)
            key_claim_drop(&entry);
        else if (!keyed_renew(ctx, keyed, *ret, &entry))
            return false;
    }
}

/* The fence orders the store of the successor before the loads, as keyed_slot_claim() orders
 * claims. */
void keyed_take_over(weir_set *set)
{
    struct keyed *keyed = keyed_of(set);
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    uint32_t oldest = keyed->definition;
    const struct keyed *of, *before = keyed->memory ? keyed_before(keyed, 1) : NULL;

    if (before && atomic_load_explicit(&before->is_populated, memory_order_relaxed))
        keyed_populate(set);
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < key_sets_n(keyed) && !set_is_broken(set); i++)
        keyed_take_over_waiters(ctx, keyed, i);
    for (const struct key_table *table = &keyed->table; table; table = table->more) {
        for (uint64_t i = 0; i < key_table_slots(table); i++)
            if (!keyed_take_over_slot(ctx, keyed, table, i, &of) && of->definition < oldest)
                oldest = of->definition;
    }
    atomic_store_explicit(&keyed->oldest, oldest, memory_order_relaxed);
    if (keyed->segment && !keyed_is_outdated(keyed) && !set_is_broken(set))
        shm_raise_seq_cst(&keyed->shared_state->oldest, oldest);
    thread_ctx_return(ctx);
}

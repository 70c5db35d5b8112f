/* SPDX-License-Identifier: MIT */
/* Live sets: what a key that has one is good for, and how it comes to have it no longer. */
#include "keyed/key_set_internal.h"

#include "base/mutant.h"

/* ---- what can go ---- */

bool states_are_new(const struct limits *limits, const uint64_t *states,
                    const struct weir_instant *at)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (!limit_is_new(&limits->items[i], states + limits->items[i].state_at, at))
            return false;
    return true;
}

enum key_use states_use(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at, uint64_t *ret_instant)
{
    uint64_t recovered = at->now_ns;

    if (states_are_new(limits, states, at) && !MUTANT(454))
        return KEY_AS_NEW;
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t ready = 0;

        if (limit->type != WEIR_LIMIT_RESOURCE)
            ready = limit_ready_at(limit, states + limit->state_at, at, limit->capacity);
        else if (!limit_is_new(limit, states + limit->state_at, at) && !MUTANT(455))
            return KEY_HELD;
        recovered = ready > recovered ? ready : recovered;
    }
    *ret_instant = recovered;
    return KEY_LIVE;
}

/* Once it is idle, nobody is in line. */
enum key_use live_use_of(const struct operation *op, uint64_t *ret_instant)
{
    if (phase_of(op) != LIVE_IDLE && !is_quiet(op))
        return KEY_HELD;
    return states_use(&op->set->limits, operation_states(op), &op->at, ret_instant);
}

enum key_use live_use(struct actor *actor, struct keyed *keyed, uint64_t word,
                      uint64_t *ret_instant)
{
    struct live storage;
    struct operation op;

    if (!live_read_named(&op, actor, keyed, word, &storage))
        return KEY_HELD;
    return live_use_of(&op, ret_instant);
}

/* ---- and goes ---- */

static void raise(_Atomic uint64_t *instant, uint64_t to)
{
    uint64_t before = atomic_load_explicit(instant, memory_order_relaxed);

    while (before < to && !atomic_compare_exchange_weak(instant, &before, to))
        ;
}

bool live_forget(const struct key_entry *entry, _Atomic uint64_t *counter)
{
    if (!key_entry_forget(entry))
        return false;
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return true;
}

bool live_end_name(struct keyed *keyed, const struct operation *op, struct key_entry *entry)
{
    const uint64_t *states = operation_states(op);

    if (states_are_new(&op->set->limits, states, &op->at) || MUTANT(461)) {
        live_forget(entry, &keyed->common->forgotten);
        return true;
    }
    if (!is_word(keyed, op))
        return false;
    raise(&keyed->common->quiet_ns, op->at.now_ns);
    key_entry_swap(entry, *states);
    return true;
}

bool live_let_go(struct actor *actor, struct keyed *keyed, uint64_t word, enum key_use use)
{
    struct live storage;
    struct operation op;
    enum key_use now;
    uint64_t instant;

    if (!live_read_named(&op, actor, keyed, word, &storage))
        return false;
    now = live_use_of(&op, &instant);
    if (now == KEY_HELD || (use == KEY_AS_NEW && now != use))
        return false;
    if (phase_of(&op) != LIVE_IDLE && !MUTANT(601) && !live_end_loan(&op))
        return false;
    live_push_idle(keyed, live_of(op.set)->number); /* whoever replaces the entry does so at once */
    return true;
}

void live_leave(struct actor *actor, struct live *live)
{
    struct keyed *keyed = live->keyed;
    struct key_entry entry;
    struct operation op;

    operation_read(&op, actor, &live->set);
    if (phase_of(&op) == LIVE_IDLE || !is_quiet(&op))
        return;
    if (!is_word(keyed, &op) && !states_are_new(&op.set->limits, operation_states(&op), &op.at))
        return;
    if (live_is_named(keyed, &op, &entry) && (MUTANT(607) || live_end_loan(&op)) &&
        live_end_name(keyed, &op, &entry))
        live_push_idle(keyed, live->number);
}

void live_leave_record(struct actor *actor, weir_set *set)
{
    live_leave(actor, live_of(set));
}

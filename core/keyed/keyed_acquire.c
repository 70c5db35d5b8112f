/* SPDX-License-Identifier: MIT */
/* Acquires from keyed sets. */
#include "base/backoff.h"
#include "keyed/keyed_internal.h"
#include "limit/counters.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include <errno.h>

/* Arguments of one acquisition. */
struct keyed_acquire_args {
    struct acquire_op *op;
    struct keyed *keyed;
    weir_set *set; /* the template set */
    uint32_t record;
    enum wait_mode mode;
    uint64_t max_wait_ns;
    bool gives_up; /* true after ATTEMPTS_MAX attempts to find room */
};

/* Moves the record, and the acquisition that has it, to this set. */
static void keyed_move_to(const struct keyed_acquire_args *acq, weir_set *set)
{
    struct acquire_op *op = acq->op;

    WEIR_INVARIANT(key_set_template(set) == acq->set);
    op->set = set;
    if (op->acquisition_set)
        *op->acquisition_set = set;
    if (acq->record)
        key_set_mark_record(set, acq->record, op->ctx->thread);
}

/* Refuses for lack of room for a key or a key set, or because the set is broken. Returns
 * -EINPROGRESS if dead participants were found, as their room may be free now. */
static int keyed_refuse_room(const struct keyed_acquire_args *acq, int r)
{
    struct acquire_op *op = acq->op;
    weir_set *set = acq->set;
    uint64_t now_ns = clock_now_ns(&set->w->clock);

    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    if (r == -ENOBUFS && set_is_shared(set) && peer_reap_if_due(op->ctx, set, now_ns))
        return -EINPROGRESS;
    if (r == -ENOBUFS) {
        atomic_fetch_add_explicit(&acq->keyed->shared_state->refused, 1, memory_order_relaxed);
        counter_add(&thread_ctx_counters(op->ctx, acq->set->number)->refused_full, 1);
    }
    return r;
}

/* Acquires from the key set that the entry names. */
static int keyed_acquire_key_set(const struct keyed_acquire_args *acq, struct key_set *key_set,
                                 struct key_entry *entry)
{
    struct acquire_op *op = acq->op;
    int r;

    WEIR_INVARIANT(key_set->keyed == acq->keyed);
    WEIR_INVARIANT(key_word_is_key_set(entry->word));
    keyed_move_to(acq, &key_set->set);
    op->ctx->binding = key_word_binding(entry->word);
    r = key_set_try_take(op->ctx, key_set, op->amounts, acq->record, &op->decision);
    if (r == -EINPROGRESS)
        r = set_acquire_inflated(op->ctx, &key_set->set, op->amounts, acq->record, acq->mode,
                                 acq->max_wait_ns, &op->decision);
    if (r >= 0 && acq->record)
        return r;
    keyed_move_to(acq, acq->set);
    if (r == -ESTALE) {
        r = key_set_repair(op->ctx, acq->keyed, &op->key, entry);
        return r == -EINPROGRESS ? r : keyed_refuse_room(acq, r);
    }
    if (r < 0 || acq->keyed->fits_inline)
        key_set_unbind_if_idle(op->ctx, key_set);
    return r;
}

/* Binds a key set with this state to the key of an entry, and acquires from it. `state` NULL: the
 * entry is a claim, and the key starts in the initial state. */
static int keyed_acquire_promoted(const struct keyed_acquire_args *acq, struct key_entry *entry,
                                  const uint64_t *state)
{
    struct acquire_op *op = acq->op;
    struct key_set *key_set;
    int r = -ENOBUFS;

    if (!acq->gives_up)
        r = keyed_promote(acq->keyed, op->ctx, &op->key, entry, state, &key_set);
    if (r == 0)
        return keyed_acquire_key_set(acq, key_set, entry);
    if (r == -EINPROGRESS)
        return r;
    if (!state)
        key_claim_drop(entry);
    return keyed_refuse_room(acq, r);
}

/* Completes a grant that was made in the key's word. The set has one limit. */
static void keyed_grant(const struct keyed_acquire_args *acq, uint64_t now_ns)
{
    struct acquire_op *op = acq->op;
    struct counters *counters = thread_ctx_counters(op->ctx, acq->set->number);

    WEIR_INVARIANT(acq->set->limits.n == 1);
    WEIR_INVARIANT(op->amounts[0] <= acq->set->limits.items->capacity);
    if (acq->record) {
        struct acq_record *r = record_at(acq->set->region, acq->record);
        uint64_t held = record_next_word(record_load(&r->word), RECORD_HELD);

        WEIR_INVARIANT(set_is_shared(acq->set) ||
                       record_state(record_load(&r->word)) == RECORD_FREE);
        record_store(&r->granted_ns, now_ns);
        record_store(&r->enqueued_ns, now_ns);
        atomic_store_explicit(&r->word, held, memory_order_release);
        SCHED_POINT();
    }
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    counter_add(&counters->granted, 1);
    counter_add(&counters->limits[0].granted, op->amounts[0]);
    if (!acq->record)
        counter_add(&counters->taken, 1);
}

/* Handles an amount that the state does not grant before `ready`; the wait queue is empty. Refuses,
 * or binds a key set and enqueues there. */
static int keyed_refuse(const struct keyed_acquire_args *acq, struct key_entry *entry,
                        uint64_t now_ns, uint64_t ready)
{
    const struct limit *limit = acq->set->limits.items;
    struct acquire_op *op = acq->op;

    WEIR_INVARIANT(acq->set->limits.n == 1);
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = ready, .limiting = limit};
    if (ready == WEIR_NEVER) {
        set_count_refusal(op->ctx, acq->set, -ERANGE, limit->key);
        return -ERANGE;
    }
    if (acq->mode == MODE_PROBE)
        return -EAGAIN;
    if (acq->mode != MODE_TRY)
        return keyed_acquire_promoted(acq, entry, &entry->word);
    if (limit->type == WEIR_LIMIT_RESOURCE)
        op->decision.forecast_ns = now_ns; /* no forecast */
    set_count_busy(op->ctx, acq->set, limit);
    return -EAGAIN;
}

/*
 * Acquires by the state in the key's word. The clock was read before the word, so that the clock
 * read does not lengthen the time to the CAS. An earlier instant grants no more. It may grant less
 * if another thread used a later one, so before a refusal the clock is read again.
 */
static int keyed_acquire_word(const struct keyed_acquire_args *acq, struct key_entry *entry,
                              struct weir_instant at)
{
    const struct keyed *keyed = acq->keyed;
    const struct limit *limit = acq->set->limits.items;
    uint64_t amount = acq->op->amounts[0];
    enum key_swap swap = KEY_CHANGED;
    bool is_late = false; /* the instant is later than the load of the word */

    do {
        uint64_t state = entry->word, quiet_ns, ready;

        if (key_word_is_key_set(state))
            return -EINPROGRESS;
        if (!keyed_is_valid(keyed, state))
            return keyed_refuse_room(acq, -EUCLEAN);
        quiet_ns = atomic_load_explicit(&keyed->shared_state->unbound_ns, memory_order_acquire);
        if (at.now_ns < quiet_ns && quiet_ns < GRANT_MARKER)
            at.now_ns = quiet_ns; /* another thread has read this from the clock */
        ready = limit_try_take(limit, &state, &at, amount);
        if (ready > at.now_ns && is_late)
            return keyed_refuse(acq, entry, at.now_ns, ready);
        if (ready > at.now_ns) {
            at = clock_instant(&acq->set->w->clock, acq->set->limits.reads_wall);
            is_late = true;
            continue;
        }
        if (key_word_is_key_set(state))
            return keyed_acquire_promoted(acq, entry, &entry->word);
        swap = key_entry_swap(entry, state);
        is_late = false;
    } while (swap == KEY_CHANGED);
    if (swap != KEY_SWAPPED)
        return -EINPROGRESS;
    keyed_grant(acq, at.now_ns);
    return 0;
}

/* Acquires by the state of a new key. */
static int keyed_acquire_claim(const struct keyed_acquire_args *acq, struct key_entry *entry)
{
    const weir_set *set = acq->set;
    const struct limit *limit = set->limits.items;
    uint64_t amount = acq->op->amounts[0], state = 0, ready;
    /* After the claim: see key_table.h. */
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.reads_wall);
    bool grants;

    WEIR_INVARIANT(acq->keyed->fits_inline && set->limits.n == 1);
    limits_init(&set->limits, &state, &at);
    ready = limit_try_take(limit, &state, &at, amount);
    if (ready == WEIR_NEVER) {
        key_claim_drop(entry);
        return keyed_refuse(acq, NULL, at.now_ns, ready);
    }
    /* Otherwise the key starts with a refusal, and its time runs from now on. */
    grants = ready <= at.now_ns;
    if (key_word_is_key_set(state))
        return keyed_acquire_promoted(acq, entry, NULL);
    if (!key_claim_commit(entry, state))
        return -EINPROGRESS;
    if (!grants)
        return -EINPROGRESS;
    keyed_grant(acq, at.now_ns);
    return 0;
}

static int keyed_acquire_entry(const struct keyed_acquire_args *acq, struct key_entry *entry,
                               const struct weir_instant *at)
{
    struct key_set *key_set;

    if (!key_word_is_key_set(entry->word))
        return keyed_acquire_word(acq, entry, *at);
    key_set = key_set_at(acq->keyed, entry->word, NULL);
    if (key_set)
        return keyed_acquire_key_set(acq, key_set, entry);
    if (key_set_repair(acq->op->ctx, acq->keyed, &acq->op->key, entry) == -EUCLEAN)
        return keyed_refuse_room(acq, -EUCLEAN);
    return keyed_refuse_room(acq, -ENOMEM);
}

static int keyed_acquire_once(const struct keyed_acquire_args *acq)
{
    struct acquire_op *op = acq->op;
    struct keyed *keyed = acq->keyed;
    const weir_set *set = acq->set;
    const struct weir_instant at = clock_instant(&set->w->clock, set->limits.reads_wall);
    struct key_entry entry;

    if (set_is_broken(set))
        return keyed_refuse_room(acq, -EUCLEAN);
    if (key_table_find(&keyed->table, &op->key, &entry))
        return keyed_acquire_entry(acq, &entry, &at);
    switch (keyed_claim(keyed, op->ctx, &op->key, &at, &entry)) {
    case KEY_FOUND:
        return keyed_acquire_entry(acq, &entry, &at);
    case KEY_FULL:
        return keyed_refuse_room(acq, -ENOBUFS);
    default:
        return keyed->fits_inline ? keyed_acquire_claim(acq, &entry)
                                  : keyed_acquire_promoted(acq, &entry, NULL);
    }
}

/* Bound on the attempts. Several threads may repeatedly take the last key set from each other if it
 * is as good as new each time. */
#define ATTEMPTS_MAX 256u

int keyed_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode, uint64_t max_wait_ns)
{
    struct keyed_acquire_args acq = {op, op->set->keyed, op->set, record, mode, max_wait_ns, false};
    unsigned turn = 0;

    WEIR_INVARIANT(acq.keyed && !set_is_key_set(acq.set));
    for (uint32_t attempt = 0;; spin_backoff(&turn)) {
        int r = keyed_acquire_once(&acq);

        if (r != -EINPROGRESS)
            return r;
        if (instance_is_closed(acq.set->w))
            return keyed_refuse_room(&acq, -ESHUTDOWN);
        acq.gives_up = ++attempt >= ATTEMPTS_MAX;
    }
}

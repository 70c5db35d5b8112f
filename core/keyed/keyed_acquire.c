/* SPDX-License-Identifier: MIT */
/* Acquires from keyed sets. */
#include "base/backoff.h"
#include "keyed/keyed_internal.h"
#include "limit/counters.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/waiter.h"
#include <errno.h>

/* Bound on the attempts to get a key set. Several threads may repeatedly take the last one from
 * each other if it is as good as new each time. */
#define ATTEMPTS_MAX 256u

/* One acquisition. Its steps return whether the request is decided, as `result` says. If it is not,
 * nothing has happened to it, and the key must be found again. */
struct keyed_acquire_op {
    struct acquire_op *op;
    struct keyed_slot slot;
    weir_set *set; /* the template set */
    uint32_t record;
    enum wait_mode mode;
    uint64_t max_wait_ns;
    uint32_t attempts;
    int result;
};

static bool keyed_decide(struct keyed_acquire_op *acq, int result)
{
    acq->result = result;
    return true;
}

/* Refuses since there is a later definition, or the set was removed. */
static bool keyed_refuse_outdated(struct keyed_acquire_op *acq)
{
    return keyed_decide(acq, set_is_shared(acq->set) ? set_acquire_closed(acq->set) : -ESTALE);
}

/* Marks a record, and its proxy record in this process, as belonging to a key set or its template
 * set. In a segment the record names the key set by its number, which is valid in all processes.
 * Otherwise the record has the instance's id of the set. `thread`: kernel id stored with it. */
static void keyed_mark_record(const weir_set *set, uint32_t record, uint32_t thread)
{
    struct acq_record *r = record_at(set->region, record);
    uint64_t id = set->id;
    uint32_t waiter;

    WEIR_INVARIANT(record);
    if (set_is_shared(set)) {
        waiter = participant_waiter(set->participant, record);
        if (waiter)
            shm_store_release(&waiter_at(set->w, waiter)->set, id << 32);
        if (set_is_key_set(set))
            id = KEY_SET_ID_BIT | ((const struct key_set *)set)->number;
    }
    shm_store_release(&r->set, id << 32 | thread); /* any thread may look the set up by it */
}

/* Moves the record, and the acquisition that has it, to this set. */
static void keyed_move_to(const struct keyed_acquire_op *acq, weir_set *set)
{
    struct acquire_op *op = acq->op;

    WEIR_INVARIANT(key_set_template(set) == acq->set);
    op->set = set;
    if (op->acquisition_set)
        *op->acquisition_set = set;
    if (acq->record)
        keyed_mark_record(set, acq->record, op->ctx->thread);
}

/* Refuses for lack of room for a key or a key set, or because the set is broken; but the latest
 * definition decides what is lacking. Undecided if dead participants were found, as their room may
 * be free now. */
static bool keyed_refuse_room(struct keyed_acquire_op *acq, int code)
{
    struct acquire_op *op = acq->op;
    weir_set *set = acq->set;
    uint64_t now_ns = clock_now_ns(&set->w->clock);

    if (keyed_is_outdated(acq->slot.keyed))
        return keyed_refuse_outdated(acq);
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    if ((code == -ENOBUFS || code == -ENOMEM) && set_is_shared(set) &&
        peer_reap_if_due(op->ctx, set, now_ns))
        return false;
    if (code == -ENOBUFS) {
        atomic_fetch_add_explicit(&acq->slot.keyed->shared_state->refused, 1, memory_order_relaxed);
        counter_add(&thread_ctx_counters(op->ctx, set->number)->refused_full, 1);
    }
    return keyed_decide(acq, code);
}

/* Lets a request wait by the latest definition, which came as it was enqueued. The definition was
 * published before the waiters were looked for, and is looked for after the request was enqueued:
 * so one of the two threads finds the other's. */
static void keyed_wait_as_newest(const struct keyed_acquire_op *acq, const struct key_set *key_set)
{
    const weir_set *newest;

    if (!atomic_load_explicit(&acq->set->successor, memory_order_seq_cst))
        return;
    newest = set_newest(acq->set);
    if (newest != acq->set)
        keyed_take_over_waiters(acq->op->ctx, keyed_of(newest), key_set->number);
}

/* Acquires from the key set that the key's word names. */
static bool keyed_acquire_key_set(struct keyed_acquire_op *acq)
{
    struct acquire_op *op = acq->op;
    uint64_t word = acq->slot.entry.word;
    struct key_set *key_set = key_set_at(acq->slot.keyed, word, NULL);
    int r = -ESTALE;

    if (key_set) {
        keyed_move_to(acq, &key_set->set);
        op->ctx->binding = key_word_binding(word);
        r = set_acquire(op, acq->record, acq->mode, acq->max_wait_ns);
        if (r == 1)
            keyed_wait_as_newest(acq, key_set);
        if (r >= 0 && acq->record)
            return keyed_decide(acq, r);
        keyed_move_to(acq, acq->set);
    }
    if ((r == -ESTALE || r == -ESHUTDOWN) && keyed_is_outdated(acq->slot.keyed))
        return keyed_refuse_outdated(acq);
    if (r == -ESTALE && !key_set_repair(&acq->slot))
        return keyed_refuse_room(acq, -EUCLEAN);
    if (r == -ESTALE)
        return !key_set &&
               keyed_refuse_room(acq, instance_is_closed(acq->set->w) ? -ESHUTDOWN : -ENOMEM);
    if (r < 0 || acq->slot.keyed->fits_inline)
        key_set_unbind_if_idle(op->ctx, &key_set->set);
    return keyed_decide(acq, r);
}

/* Binds a key set to the key, and acquires from it. */
static bool keyed_acquire_promoted(struct keyed_acquire_op *acq)
{
    int r;

    if (acq->attempts >= ATTEMPTS_MAX) {
        keyed_slot_drop(&acq->slot);
        return keyed_refuse_room(acq, -ENOBUFS);
    }
    r = key_set_bind(&acq->slot);
    if (r == 1)
        return keyed_acquire_key_set(acq);
    return r != -ESTALE && keyed_refuse_room(acq, r);
}

/* Completes a grant that was made in the key's word. */
static void keyed_grant(const struct keyed_acquire_op *acq, uint64_t now_ns)
{
    struct acquire_op *op = acq->op;

    WEIR_INVARIANT(set_listed_n(acq->set) == 1);
    if (acq->record) {
        struct acq_record *r = record_at(acq->set->region, acq->record);
        uint64_t held = record_next_word(record_load(&r->word), RECORD_HELD);

        WEIR_INVARIANT(set_is_shared(acq->set) ||
                       record_state(record_load(&r->word)) == RECORD_FREE);
        record_store(&r->granted_ns, now_ns);
        record_store(&r->enqueued_ns, now_ns);
        shm_store_release(&r->word, held);
    }
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    set_count_grant(op->ctx, acq->set, op->amounts, acq->record);
}

/* Handles an amount that the state does not grant before `ready`; the wait queue is empty. Refuses,
 * or binds a key set and enqueues there. A new key starts with the refusal: its time runs from now
 * on. */
static bool keyed_refuse(struct keyed_acquire_op *acq, uint64_t state, uint64_t now_ns,
                         uint64_t ready)
{
    struct keyed_slot *slot = &acq->slot;
    const struct limit *limit = &acq->set->limits.items[set_listed(acq->set, 0)];
    struct acquire_op *op = acq->op;

    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = ready, .limiting = limit};
    if (ready == WEIR_NEVER) {
        keyed_slot_drop(slot);
        set_count_refusal(op->ctx, acq->set, -ERANGE, limit->key);
        return keyed_decide(acq, -ERANGE);
    }
    if (slot->is_claim && keyed_slot_swap(slot, state) != KEY_SWAPPED)
        return false;
    if (acq->mode == MODE_PROBE)
        return keyed_decide(acq, -EAGAIN);
    if (acq->mode != MODE_TRY)
        return keyed_acquire_promoted(acq);
    if (limit->type == WEIR_LIMIT_RESOURCE)
        op->decision.forecast_ns = now_ns; /* no forecast */
    set_count_not_now(op->ctx, acq->set, -EAGAIN, MODE_TRY, limit);
    return keyed_decide(acq, -EAGAIN);
}

/*
 * Acquires by the state in the key's word. The clock was read before the word, so that the clock
 * read does not lengthen the time to the CAS. An earlier instant grants no more. It may grant less
 * if another thread used a later one, so before a refusal the clock is read again.
 */
static bool keyed_acquire_word(struct keyed_acquire_op *acq, struct weir_instant at)
{
    struct keyed_slot *slot = &acq->slot;
    const struct keyed *keyed = slot->keyed;
    const struct limits *limits = &acq->set->limits;
    uint32_t place = set_listed(acq->set, 0); /* of the only limit */
    enum key_swap swap = KEY_CHANGED;
    bool is_late = slot->is_claim; /* a later instant grants no more */

    do {
        uint64_t before, state, ready;

        keyed_reach(&keyed->shared_state->unbound_ns, &at); /* of the version that the word was */
        if (keyed->segment && keyed_is_outdated(keyed)) { /* after the clock, and what raises it */
            keyed_slot_drop(slot);
            return false;
        }
        before = state = keyed_slot_state(slot, &at);
        if (!keyed_is_valid(keyed, state))
            return keyed_refuse_room(acq, -EUCLEAN);
        WEIR_INVARIANT(keyed->fits_inline);
        ready = limit_try_take(&limits->items[place], &state, &at, acq->op->amounts[place]);
        /* An algorithm that seems to break its contract is looked at on the slow path. */
        if (key_word_is_key_set(state) || ready < at.now_ns ||
            (state == before && ready == at.now_ns))
            return keyed_acquire_promoted(acq);
        if (ready > at.now_ns && is_late)
            return keyed_refuse(acq, state, at.now_ns, ready);
        is_late = ready > at.now_ns;
        if (is_late)
            at = clock_instant(&acq->set->w->clock, limits->clock_needs);
        else
            swap = keyed_slot_swap(slot, state);
    } while (swap == KEY_CHANGED && !key_word_is_key_set(slot->entry.word));
    if (swap != KEY_SWAPPED)
        return false;
    if (set_is_broken(acq->set)) /* the swap may have met the zeros that replaced the segment */
        return keyed_refuse_room(acq, -EUCLEAN);
    keyed_grant(acq, at.now_ns);
    return keyed_decide(acq, 0);
}

/* Gives a key of an earlier definition this one. */
static bool keyed_acquire_renew(struct keyed_acquire_op *acq)
{
    int r = acq->attempts < ATTEMPTS_MAX ? keyed_slot_renew(&acq->slot) : -ENOBUFS;

    return r != 1 && r != -ESTALE && keyed_refuse_room(acq, r);
}

static bool keyed_acquire_once(struct keyed_acquire_op *acq)
{
    struct weir_instant at = clock_instant(&acq->set->w->clock, acq->set->limits.clock_needs);

    if (keyed_is_outdated(acq->slot.keyed)) /* or it was removed */
        return keyed_refuse_outdated(acq);
    if (set_is_broken(acq->set) || keyed_is_faulty(acq->op->ctx, acq->set))
        return keyed_refuse_room(acq, -EUCLEAN);
    if (!keyed_slot_find_own(&acq->slot)) {
        if (!keyed_slot_claim(&acq->slot, &at))
            return keyed_refuse_room(acq,
                                     keyed_is_faulty(acq->op->ctx, acq->set) ? -EUCLEAN : -ENOBUFS);
        if (keyed_slot_is_foreign(&acq->slot))
            return keyed_acquire_renew(acq);
    }
    if (keyed_slot_is_bound(&acq->slot))
        return keyed_acquire_key_set(acq);
    if (acq->slot.is_claim && !acq->slot.keyed->fits_inline)
        return keyed_acquire_promoted(acq);
    return keyed_acquire_word(acq, at);
}

int keyed_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode, uint64_t max_wait_ns)
{
    struct keyed_acquire_op acq = {
        .op = op,
        .slot = {.keyed = keyed_of(op->set), .ctx = op->ctx, .key = &op->key},
        .set = op->set,
        .record = record,
        .mode = mode,
        .max_wait_ns = max_wait_ns};
    unsigned turn = 0;

    WEIR_INVARIANT(acq.set->is_keyed && !set_is_key_set(acq.set));
    keyed_open_template(op->ctx, keyed_of(op->set));
    for (; !keyed_acquire_once(&acq); acq.attempts++) {
        if (instance_is_closed(acq.set->w)) {
            keyed_refuse_room(&acq, -ESHUTDOWN);
            break;
        }
        spin_backoff(&turn);
    }
    return acq.result;
}

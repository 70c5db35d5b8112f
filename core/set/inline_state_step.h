/* SPDX-License-Identifier: MIT */
/*
 * One step on a state word that is inline, compiled into its callers for private and shared sets.
 * In a shared set other processes may be killed, or write invalid words. inline_state.c uses it for
 * all cases, fast_path.c for the common ones.
 */
#ifndef WEIR_CORE_SET_INLINE_STATE_STEP_H
#define WEIR_CORE_SET_INLINE_STATE_STEP_H

#include "base/backoff.h"
#include "base/compiler.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/set.h"
#include "shm/participant.h"

/* What is granted, and to which record. */
struct inline_grant {
    uint64_t amount;
    uint64_t lease; /* units to take if there are so many; 0: no lease */
    uint64_t lease_rest;
    uint64_t held_word; /* next word of the record */
    uint32_t record;    /* 0: none */
    uint32_t dcas_slot; /* the thread's announcement slot, or 0 */
};

/* Returns when the set was last deflated, ns. Its inline state takes no older timestamp. */
WEIR_ALWAYS_INLINE uint64_t inline_deflated_ns(const weir_set *set)
{
    return atomic_load_explicit(set->deflated_ns, memory_order_acquire);
}

/* Upper bound of the kernel's tick, ns. */
#define INLINE_TICK_NS UINT64_C(20000000)

/*
 * Returns the timestamp of the decision. Call it once per operation and before loading the state
 * word, so that the clock read does not lengthen the time between load and CAS. Retrying with an
 * older timestamp can only grant less. A counted resource does not depend on time: there the coarse
 * clock suffices, as `granted_ns` is informational. Its result is raised to `deflated_ns` if the
 * set was deflated after that tick.
 */
WEIR_ALWAYS_INLINE struct weir_instant inline_clock(const weir_set *set)
{
    struct weir_instant at = {0};
    uint64_t deflated_ns;

    if (set->limits.items->algorithm)
        return clock_instant(&set->w->clock, set->limits.reads_wall);
    at.now_ns = clock_now_coarse(&set->w->clock);
    deflated_ns = inline_deflated_ns(set);
    if (at.now_ns < deflated_ns && deflated_ns - at.now_ns < INLINE_TICK_NS)
        at.now_ns = deflated_ns;
    return at;
}

WEIR_ALWAYS_INLINE bool inline_is_valid(const weir_set *set, const uint64_t *state)
{
    return !set_is_shared(set) ||
           (!participant_is_broken(set->participant) && participant_has_slot(set->participant) &&
            limit_check(set->limits.items, state) == 0);
}

/* Loads the state word and decodes the state. Returns false if the set is inflated, or the word is
 * invalid; the slow path finds out which. */
WEIR_ALWAYS_INLINE bool inline_read(bool shared, const weir_set *set, uint64_t *ret,
                                    uint64_t *ret_state)
{
    *ret = version_peek_word(set->region, set->head_unit);
    *ret_state = shared ? inline_state_decode(set->inline_format, *ret) : *ret;
    SCHED_POINT();
    return !(*ret & INFLATED_BIT) && (!shared || inline_is_valid(set, ret_state));
}

/* Returns the state word that follows `word`, and announces it if the set uses detectable CAS.
 * INFLATED_BIT: the state does not fit, or there is no slot or record to announce. */
WEIR_ALWAYS_INLINE uint64_t inline_next(bool shared, const weir_set *set,
                                        const struct inline_grant *grant, uint64_t word,
                                        uint64_t state)
{
    if (!shared || set->inline_format != INLINE_DCAS)
        return state;
    if (!dcas_is_slot(grant->dcas_slot) || !grant->record || state > DCAS_USED_MAX)
        return INFLATED_BIT;
    return dcas_announce(set->announce_slots, grant->dcas_slot, word, state, grant->record,
                         grant->held_word);
}

/* Takes `amount` if the limit grants it now. Returns the time at which it would: at->now_ns or
 * earlier if taken, WEIR_BLOCKED or WEIR_NEVER included. */
WEIR_ALWAYS_INLINE uint64_t inline_decide(const struct limit *limit, uint64_t *state,
                                          const struct weir_instant *at, uint64_t amount)
{
    if (limit->algorithm)
        return limit_try_take(limit, state, at, amount);
    WEIR_INVARIANT(*state <= limit->capacity);
    if (amount > limit->capacity)
        return WEIR_NEVER;
    if (*state > limit->capacity - amount)
        return WEIR_BLOCKED;
    *state += amount;
    return at->now_ns;
}

/* Takes the lease if there is one and the limit grants it now, or else the amount. Returns as
 * inline_decide() does. */
WEIR_ALWAYS_INLINE uint64_t inline_decide_lease(const struct limit *limit, uint64_t *state,
                                                const struct weir_instant *at,
                                                struct inline_grant *grant)
{
    if (!grant->lease)
        return inline_decide(limit, state, at, grant->amount);
    WEIR_INVARIANT(grant->lease > grant->amount);
    grant->lease_rest = grant->lease - grant->amount;
    if (inline_decide(limit, state, at, grant->lease) <= at->now_ns)
        return at->now_ns;
    grant->lease_rest = 0;
    return inline_decide(limit, state, at, grant->amount);
}

/*
 * Grants the request as of `at`. Returns 0 if granted; the caller then makes the record HELD, which
 * is FREE and otherwise filled. -EAGAIN: nothing was taken, and `*ret_ready` says when it could be.
 * -EINPROGRESS: not possible on this word; `*ret_word` is the word, or INFLATED_BIT if the set is
 * inflated or the word invalid.
 */
WEIR_ALWAYS_INLINE int inline_try_take(bool shared, const weir_set *set,
                                       const struct weir_instant *at, struct inline_grant *grant,
                                       uint64_t *ret_word, uint64_t *ret_ready)
{
    unsigned turn = 0;

    for (;; spin_backoff(&turn)) {
        uint64_t word, state, next;

        if (!inline_read(shared, set, &word, &state)) {
            *ret_word = INFLATED_BIT;
            return -EINPROGRESS;
        }
        *ret_word = word;
        if (at->now_ns < inline_deflated_ns(set))
            return -EINPROGRESS;
        *ret_ready = inline_decide_lease(set->limits.items, &state, at, grant);
        if (*ret_ready > at->now_ns)
            return -EAGAIN;
        next = inline_next(shared, set, grant, word, state);
        if (next & INFLATED_BIT)
            return -EINPROGRESS;
        if (version_cas_word(set->region, set->head_unit, word, next))
            return 0;
    }
}

/*
 * Returns the units of the caller's own record to the state by detectable CAS, if its word is
 * `record_word`. Returns 1 if done; the caller then frees the record. 0: the record has another
 * word by now. -EINPROGRESS: not possible on this word; `*ret_word` is the word, or INFLATED_BIT if
 * the set is inflated or the word invalid.
 */
WEIR_ALWAYS_INLINE int inline_try_give_back(const weir_set *set, uint32_t slot, uint32_t record,
                                            const struct acq_record *r, uint64_t record_word,
                                            uint64_t amount, uint64_t *ret_word)
{
    unsigned turn = 0;

    for (;; spin_backoff(&turn)) {
        uint64_t word, state, next;

        if (!inline_read(true, set, &word, &state)) {
            *ret_word = INFLATED_BIT;
            return -EINPROGRESS;
        }
        *ret_word = word;
        if (!dcas_is_slot(slot))
            return -EINPROGRESS;
        if (record_load(&r->word) != record_word)
            return 0;
        if (state < amount) {
            participant_mark_broken(set->participant); /* no correct process writes that */
            return -EINPROGRESS;
        }
        next = dcas_announce(set->announce_slots, slot, word, state - amount, record,
                             record_next_word(record_word, RECORD_FREE));
        if (version_cas_word(set->region, set->head_unit, word, next))
            return 1;
    }
}

#endif

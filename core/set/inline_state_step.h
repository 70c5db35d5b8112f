/* SPDX-License-Identifier: MIT */
/*
 * A step of a set's word, compiled into whoever takes it, for either kind of set: private ones, whose
 * word is nothing but their state, and those that others may be killed in, or scribble in. inline_state.c does
 * with it all that there is to do, fast_path.c what most calls come to.
 */
#ifndef WEIR_CORE_SET_INLINE_STATE_STEP_H
#define WEIR_CORE_SET_INLINE_STATE_STEP_H

#include "base/compiler.h"
#include "base/sched_point.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/set.h"
#include "shm/participant.h"

/* What is to be granted, and to whom. */
struct inline_grant {
    uint64_t amount;
    uint64_t lease; /* rather so much, if it is not 0 */
    uint64_t lease_rest;
    uint64_t held_word; /* what the word of the record is to become; */
    uint32_t record;    /* 0: there is none */
    uint32_t dcas_slot; /* the actor's in a ledger, or 0 */
};

/* When the set was last put into its word: no instant before may be used with it. */
WEIR_ALWAYS_INLINE uint64_t inline_deflated_ns(const weir_set *set)
{
    return atomic_load_explicit(set->deflated_ns, memory_order_acquire);
}

/* The kernel's ticks are not so far apart. */
#define INLINE_TICK_NS UINT64_C(20000000)

/*
 * The instant to decide by: to be had before the word, which others want, too; and once, for an
 * earlier one grants no more. What a counted resource decides is no matter of time: it is only told since
 * when it is held, by the last tick; or since the word was the state, if that was later.
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
    return !set->participant ||
           (!participant_is_broken(set->participant) && participant_has_slot(set->participant) &&
            limit_check(set->limits.items, state) == 0);
}

/*
 * The set's word, and the state in it. False: it is boxed, or what others wrote there cannot be;
 * whoever looks closer finds out.
 */
WEIR_ALWAYS_INLINE bool inline_read(bool shared, const weir_set *set, uint64_t *ret,
                                    uint64_t *ret_state)
{
    *ret = version_peek_word(set->region, set->head_unit);
    *ret_state = shared ? inline_state_decode(set->inline_format, *ret) : *ret;
    SCHED_POINT();
    return !(*ret & INFLATED_BIT) && (!shared || inline_is_valid(set, ret_state));
}

/* The word that is to follow `word`. What a ledger says of it is announced. */
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

/* As limit_try_take(). */
WEIR_ALWAYS_INLINE uint64_t inline_decide(const struct limit *limit, uint64_t *state,
                                          const struct weir_instant *at, uint64_t amount)
{
    if (limit->algorithm)
        return limit_try_take(limit, state, at, amount);
    if (amount > limit->capacity)
        return WEIR_NEVER;
    if (*state > limit->capacity - amount)
        return WEIR_BLOCKED;
    *state += amount;
    return at->now_ns;
}

/* The same; rather the lease than the amount, if there is one. */
WEIR_ALWAYS_INLINE uint64_t inline_decide_lease(const struct limit *limit, uint64_t *state,
                                                const struct weir_instant *at,
                                                struct inline_grant *grant)
{
    if (!grant->lease)
        return inline_decide(limit, state, at, grant->amount);
    grant->lease_rest = grant->lease - grant->amount;
    if (inline_decide(limit, state, at, grant->lease) <= at->now_ns)
        return at->now_ns;
    grant->lease_rest = 0;
    return inline_decide(limit, state, at, grant->amount);
}

/*
 * Grants it as of the instant: 0, and the record, which is free and says all but that it is HELD, is
 * to be told. -EAGAIN: nothing was granted, for it can be had only at `*ret_ready`. -EINPROGRESS: not
 * by the word; that was `*ret_word`, or is boxed, or cannot be, which INFLATED_BIT stands for.
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
 * Gives back by a ledger what the caller's own record holds, whose word is `record_word`: 1, and the record
 * is to be told; 0: it does not hold that any more. -EINPROGRESS: as above.
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
            participant_mark_broken(set->participant); /* nobody would have written that */
            return -EINPROGRESS;
        }
        next = dcas_announce(set->announce_slots, slot, word, state - amount, record,
                             record_next_word(record_word, RECORD_FREE));
        if (version_cas_word(set->region, set->head_unit, word, next))
            return 1;
    }
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A step of a set's word, compiled into whoever takes it, for either kind of set: private ones, whose
 * word is nothing but their state, and those that others may be killed in, or scribble in. word.c does
 * with it all that there is to do, at_once.c what most calls come to.
 */
#ifndef WEIR_CORE_STATE_INLINE_STATE_STEP_H
#define WEIR_CORE_STATE_INLINE_STATE_STEP_H

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "peer/participant.h"
#include "set/set.h"
#include "state/detectable_cas.h"

#define WORD_INLINE static inline __attribute__((always_inline))

/* What is to be granted, and to whom. */
struct word_grant {
    uint64_t amount;
    uint64_t lease; /* rather so much, if it is not 0 */
    uint64_t leased;
    uint64_t held;   /* what the word of the record is to become; */
    uint32_t record; /* 0: there is none */
    uint32_t seat;   /* the actor's in a ledger, or 0 */
};

/* When the set was last put into its word: no instant before may be used with it. */
WORD_INLINE uint64_t word_unboxed_ns(const weir_set *set)
{
    return atomic_load_explicit(set->unboxed_ns, memory_order_acquire);
}

/* The kernel's ticks are not so far apart. */
#define WORD_TICK_NS UINT64_C(20000000)

/*
 * The instant to decide by: to be had before the word, which others want, too; and once, for an
 * earlier one grants no more. What a counted resource decides is no matter of time: it is only told since
 * when it is held, by the last tick; or since the word was the state, if that was later.
 */
WORD_INLINE struct weir_instant word_instant(const weir_set *set)
{
    struct weir_instant at = {0};
    uint64_t unboxed_ns;

    if ((set->limits.items->algorithm && !MUTANT(550)) || MUTANT(551))
        return instance_instant(set->w, set->limits.reads_wall);
    at.now_ns = instance_tick(set->w);
    unboxed_ns = word_unboxed_ns(set);
    if (at.now_ns < unboxed_ns && unboxed_ns - at.now_ns < WORD_TICK_NS)
        at.now_ns = unboxed_ns;
    return at;
}

WORD_INLINE bool word_is_sound(const weir_set *set, const uint64_t *state)
{
    return !set->member || (!member_is_broken(set->member) && member_has_place(set->member) &&
                            limit_check(set->limits.items, state) == 0);
}

/*
 * The set's word, and the state in it. False: it is boxed, or what others wrote there cannot be;
 * whoever looks closer finds out.
 */
WORD_INLINE bool word_read(bool shared, const weir_set *set, uint64_t *ret, uint64_t *ret_state)
{
    *ret = publication_peek(set->region, set->head);
    *ret_state = shared ? word_state(set->form, *ret) : *ret;
    STEP();
    return !(*ret & WORD_BOXED) && (!shared || word_is_sound(set, ret_state));
}

/* The word that is to follow `word`. What a ledger says of it is announced. */
WORD_INLINE uint64_t word_next(bool shared, const weir_set *set, const struct word_grant *grant,
                               uint64_t word, uint64_t state)
{
    if (!shared || set->form != WORD_LEDGER)
        return state;
    if (!ledger_is_seat(grant->seat) || !grant->record || state > LEDGER_USED_MAX)
        return WORD_BOXED;
    return ledger_announce(set->seats, grant->seat, word, state, grant->record, grant->held);
}

/* As limit_try_take(). */
WORD_INLINE uint64_t word_ask(const struct limit *limit, uint64_t *state,
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
WORD_INLINE uint64_t word_ask_for(const struct limit *limit, uint64_t *state,
                                  const struct weir_instant *at, struct word_grant *grant)
{
    if (!grant->lease)
        return word_ask(limit, state, at, grant->amount);
    grant->leased = grant->lease - grant->amount;
    if (word_ask(limit, state, at, grant->lease) <= at->now_ns)
        return at->now_ns;
    grant->leased = 0;
    return word_ask(limit, state, at, MUTANT(523) ? grant->lease : grant->amount);
}

/*
 * Grants it as of the instant: 0, and the record, which is free and says all but that it is HELD, is
 * to be told. -EAGAIN: nothing was granted, for it can be had only at `*ret_ready`. -EINPROGRESS: not
 * by the word; that was `*ret_word`, or is boxed, or cannot be, which WORD_BOXED stands for.
 */
WORD_INLINE int word_take(bool shared, const weir_set *set, const struct weir_instant *at,
                          struct word_grant *grant, uint64_t *ret_word, uint64_t *ret_ready)
{
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        uint64_t word, state, next;

        if (!word_read(shared, set, &word, &state)) {
            *ret_word = WORD_BOXED;
            return -EINPROGRESS;
        }
        *ret_word = word;
        if (at->now_ns < word_unboxed_ns(set) && !MUTANT(501))
            return -EINPROGRESS;
        *ret_ready = word_ask_for(set->limits.items, &state, at, grant);
        if (*ret_ready > at->now_ns)
            return -EAGAIN;
        next = word_next(shared, set, grant, word, state);
        if (next & WORD_BOXED)
            return -EINPROGRESS;
        if (publication_swap(set->region, set->head, word, next))
            return 0;
    }
}

/*
 * Gives back by a ledger what the caller's own record holds, whose word is `record_word`: 1, and the record
 * is to be told; 0: it does not hold that any more. -EINPROGRESS: as above.
 */
WORD_INLINE int word_return(const weir_set *set, uint32_t seat, uint32_t record,
                            const struct record *r, uint64_t record_word, uint64_t amount,
                            uint64_t *ret_word)
{
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        uint64_t word, state, next;

        if (!word_read(true, set, &word, &state)) {
            *ret_word = WORD_BOXED;
            return -EINPROGRESS;
        }
        *ret_word = word;
        if (!ledger_is_seat(seat))
            return -EINPROGRESS;
        if (record_load(&r->word) != record_word)
            return 0;
        if (state < amount) {
            member_break(set->member); /* nobody would have written that */
            return -EINPROGRESS;
        }
        next = ledger_announce(set->seats, seat, word, state - amount, record,
                               record_next_word(record_word, RECORD_FREE));
        if (publication_swap(set->region, set->head, word, next))
            return 1;
    }
}

#endif

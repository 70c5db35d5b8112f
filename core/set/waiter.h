/* SPDX-License-Identifier: MIT */
/*
 * Records as whoever keeps their time knows them: by their number in the instance's own region. Of
 * a set whose records are elsewhere, in memory that processes share, it is the number of a
 * stand-in: a record of this process's that names the shared one, and keeps here what is nobody
 * else's business: who is to be told, when, and where it stands in which list.
 */
#ifndef WEIR_CORE_SET_WAITER_H
#define WEIR_CORE_SET_WAITER_H

#include "set/instance_base.h"
#include "shm/participant.h"

static inline struct acq_record *waiter_at(const weir *w, uint32_t waiter)
{
    return record_at(&w->region, waiter);
}

static inline weir_set *waiter_set(const weir *w, uint32_t waiter)
{
    return instance_set(w, record_set_number(waiter_at(w, waiter)));
}

static inline bool waiter_is_proxy(const struct acq_record *r)
{
    return (record_wait_target(r) & WAIT_TARGET_PROXY) != 0;
}

/* The number of the record in its set's region. */
static inline uint32_t waiter_record(const weir *w, uint32_t waiter)
{
    const struct acq_record *r = waiter_at(w, waiter);

    return waiter_is_proxy(r) ? record_link_target(record_load(&r->next)) : waiter;
}

/* The word that says whether it was decided. Stand-ins stay stand-ins, so that whoever comes late
 * finds some record of some set, whose word is another. */
static inline uint64_t waiter_word(const weir *w, uint32_t waiter)
{
    const struct acq_record *r = waiter_at(w, waiter);

    if (!waiter_is_proxy(r))
        return record_load(&r->word);
    return set_record_word(waiter_set(w, waiter), waiter_record(w, waiter));
}

/*
 * Whether the record's word is `word`, and that life of it is kept: a shared record may be used
 * again without its stand-in. In this order: the stand-in is given back before that.
 */
static inline bool waiter_is_current(const weir *w, uint32_t waiter, uint64_t word)
{
    const struct acq_record *r = waiter_at(w, waiter);

    if (!waiter_is_proxy(r))
        return record_load(&r->word) == word;
    return waiter_word(w, waiter) == word && participant_waiter(waiter_set(w, waiter)->participant,
                                                                waiter_record(w, waiter)) == waiter;
}

/*
 * `before` as it is in the life of `word`: false if the record's word is not that any more. In this
 * order, for the word may change and the record be used again between the two.
 */
static inline bool waiter_load(const weir *w, uint32_t waiter, uint64_t word, uint32_t *ret_flags)
{
    *ret_flags =
        atomic_load_explicit(&waiter_at(w, waiter)->bucket_prev_flags, memory_order_acquire);
    return waiter_is_current(w, waiter, word);
}

/* record_pool.c: a shared record gets its stand-in, or 0: out of memory; and is kept no longer. */
uint32_t proxy_record_acquire(const weir_set *set, uint32_t record);
void proxy_record_release(const weir_set *set, uint32_t waiter);
/* waiter.c: who waits on it, here and in the segment. */
void proxy_record_set_target(const weir_set *set, uint32_t waiter, enum wait_target_kind wake,
                             uint32_t queue, bool strict);

/* The number by which keepers know a record of this set, or 0 when out of memory; and back, before
 * the record. */
static inline uint32_t waiter_new(const weir_set *set, uint32_t record)
{
    return set->participant ? proxy_record_acquire(set, record) : record;
}

static inline void waiter_free(const weir_set *set, uint32_t waiter)
{
    if (set->participant)
        proxy_record_release(set, waiter);
}

/* Who waits on it, for whoever decides it, and for its keeper. Before it enters its set. */
static inline void waiter_set_target(const weir_set *set, uint32_t waiter,
                                     enum wait_target_kind wake, uint32_t queue, bool strict)
{
    if (set->participant)
        proxy_record_set_target(set, waiter, wake, queue, strict);
    else
        record_set_wait_target(waiter_at(set->w, waiter), wake, queue, strict);
}

#endif

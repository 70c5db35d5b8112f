/* SPDX-License-Identifier: MIT */
/*
 * Waiter ids. The wait timers and the completion queues of an instance identify a waiter by the
 * number of a record in the instance's private region. For a private set that is the acquisition
 * record itself. For a shared set, which has its records in the segment, it is a proxy record: a
 * private record that refers to the shared one. The proxy record holds what is private to this
 * process: wait target, deadline, list links.
 */
#ifndef WEIR_CORE_SET_WAITER_H
#define WEIR_CORE_SET_WAITER_H

#include "base/compiler.h"
#include "base/invariant.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "shm/participant.h"

static inline struct acq_record *waiter_at(const weir *w, uint32_t waiter)
{
    WEIR_INVARIANT(waiter);
    return record_known(&w->region, waiter);
}

static inline weir_set *waiter_set(const weir *w, uint32_t waiter)
{
    return instance_set(w, record_set_number(waiter_at(w, waiter)));
}

static inline bool waiter_is_proxy(const struct acq_record *r)
{
    return (record_wait_target(r) & WAIT_TARGET_PROXY) != 0;
}

/* Returns the number of the waiter's record in the region of its set. */
static inline uint32_t waiter_record(const weir *w, uint32_t waiter)
{
    const struct acq_record *r = waiter_at(w, waiter);

    return waiter_is_proxy(r) ? record_link_target(record_load(&r->next)) : waiter;
}

/* Returns the word that says whether the waiter was decided. A proxy record always remains a proxy
 * record, so a late reader finds some record of some set, with another word. */
static inline uint64_t waiter_word(const weir *w, uint32_t waiter)
{
    const struct acq_record *r = waiter_at(w, waiter);

    if (!waiter_is_proxy(r))
        return record_load(&r->word);
    return set_record_word(waiter_set(w, waiter), waiter_record(w, waiter));
}

/*
 * Returns whether the record's word is `word` and the record still belongs to this waiter. A shared
 * record may be reused without its proxy record. The word is loaded first: the proxy record is
 * released before the shared record can be reused.
 */
WEIR_ALWAYS_INLINE bool waiter_is_current(const weir *w, uint32_t waiter, uint64_t word)
{
    const struct acq_record *r = waiter_at(w, waiter);

    if (!waiter_is_proxy(r))
        return record_load(&r->word) == word;
    return waiter_word(w, waiter) == word && participant_waiter(waiter_set(w, waiter)->participant,
                                                                waiter_record(w, waiter)) == waiter;
}

/*
 * Loads the flags (`bucket_prev_flags`) of the waiter with the word `word`. Returns false if the
 * record no longer has that word. The flags are loaded before the word is checked, since the record
 * may be decided and reused between the two loads.
 */
static inline bool waiter_load(const weir *w, uint32_t waiter, uint64_t word, uint32_t *ret_flags)
{
    *ret_flags =
        atomic_load_explicit(&waiter_at(w, waiter)->bucket_prev_flags, memory_order_acquire);
    return waiter_is_current(w, waiter, word);
}

/* Return the proxy record of a shared record, or 0 if out of memory; end its use. Like the next one
 * defined in set/record_pool.c. */
uint32_t proxy_record_acquire(const weir_set *set, uint32_t record);
void proxy_record_release(const weir_set *set, uint32_t waiter);
/* Sets the wait target of a proxy record and of the shared record that it refers to. */
void proxy_record_set_target(const weir_set *set, uint32_t waiter, enum wait_target_kind wake,
                             uint32_t queue, bool strict);

/* Return the waiter id of a record of this set, or 0 if out of memory; release the id. The id is
 * released before the record. */
static inline uint32_t waiter_new(const weir_set *set, uint32_t record)
{
    WEIR_INVARIANT(record);
    return set_is_shared(set) ? proxy_record_acquire(set, record) : record;
}

static inline void waiter_free(const weir_set *set, uint32_t waiter)
{
    if (set_is_shared(set))
        proxy_record_release(set, waiter);
}

/* Sets the wait target of a waiter, for the thread that decides it and for its wait timer. Call
 * before the record enters its set. */
static inline void waiter_set_target(const weir_set *set, uint32_t waiter,
                                     enum wait_target_kind wake, uint32_t queue, bool strict)
{
    if (set_is_shared(set))
        proxy_record_set_target(set, waiter, wake, queue, strict);
    else
        record_set_wait_target(waiter_at(set->w, waiter), wake, queue,
                               strict ? WAIT_TARGET_STRICT : 0);
}

/* ---- notification of a decided record, in this process or in another (txn.c) ---- */

/* Implements notify_waiter() for a shared set. */
void notify_shared_waiter(weir_set *set, uint32_t record, uint64_t word);

/* Notifies the waiter that the record's word has become `word`. A spurious or late notification is
 * harmless. */
static inline void notify_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    if (set_is_shared(set))
        notify_shared_waiter(set, record, word);
    else
        timer_notify(set->w, record, word);
}

/* Schedules a recheck at `at_ns` of a record that is the head of its wait queue and has the word
 * `word`. */
void notify_recheck_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns);

#endif

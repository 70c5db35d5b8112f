/* SPDX-License-Identifier: MIT */
/*
 * An acquisition record: one acquisition of a set, from its wait to its release. The word holds the
 * record's state. It changes as a deferred write of a committed version, or by the operations of an
 * inline set; its owner frees it once the wait has ended.
 */
#ifndef WEIR_CORE_SHM_ACQ_RECORD_H
#define WEIR_CORE_SHM_ACQ_RECORD_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "shm/region.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Record states, the low byte of the word. Those after RECORD_HELD end a wait without a grant, but
 * for RECORD_REVOKED. */
enum record_state {
    RECORD_FREE = 0,
    RECORD_WAITING = 1,
    RECORD_HELD = 2,
    RECORD_TIMED_OUT = 3,
    RECORD_REFUSED = 4, /* max_wait passed, or would have passed */
    RECORD_CANCELED = 5,
    RECORD_SHUT_DOWN = 6,
    RECORD_UNREACHABLE = 7, /* of a remote set: its engine could not be asked */
    RECORD_QUEUE_FULL = 8,  /* the wait queue was full */
    RECORD_BROKEN = 9,      /* never stored: the record's set is broken */
    /* Of a remote set: its engine has said why it does not serve the set. */
    RECORD_MISMATCH = 10, /* it is defined otherwise there */
    RECORD_DENIED = 11,   /* the user may not use it */
    RECORD_DAMAGED = 12,  /* its state is damaged */
    /* Of a remote set, or of one with a new definition: it can never be granted. */
    RECORD_IMPOSSIBLE = 13,
    RECORD_REVOKED = 14 /* what it held was taken back (set/max_hold.h) */
};

/* Wait target of a record: what waits on it, and how it is notified. */
enum wait_target_kind {
    WAIT_TARGET_FUTEX = 1, /* a thread blocked on the word, with its own timeout */
    WAIT_TARGET_TIMER = 2, /* a pending acquisition, on the timer of the instance */
    WAIT_TARGET_CQ = 3     /* a submission to a completion queue, on the queue's timer */
};

/* Flag of `set`: it was told that the record is held too long (set/max_hold.h). */
#define RECORD_OVERHELD    (UINT64_C(1) << 31)
#define RECORD_CLASS_SHIFT 24
#define RECORD_CLASS_MASK  UINT32_C(0x7f)
#define RECORD_THREAD_MASK ((UINT64_C(1) << RECORD_CLASS_SHIFT) - 1) /* the kernel has 2^22 ids */

/* Flags of a wait target. */
#define WAIT_TARGET_STRICT   (UINT32_C(1) << 2) /* of a queue: the acquisition will be strict */
#define WAIT_TARGET_PROXY    (UINT32_C(1) << 3) /* of a proxy record: `next` is the shared one */
#define WAIT_TARGET_CQ_SHIFT 4

/* Flags of `bucket_prev_flags`. */
#define RECORD_HAS_ACQUISITION    (UINT32_C(1) << 28) /* `data` is its address, not user_data */
#define RECORD_REFUSE_AT_DEADLINE (UINT32_C(1) << 29) /* it is REFUSED then, not TIMED_OUT */
#define RECORD_DELIVERED          (UINT32_C(1) << 30) /* its queue has delivered or dropped it */
#define RECORD_INDEXED            (UINT32_C(1) << 31) /* its queue has it indexed by user_data */

struct acq_record {
    _Atomic uint64_t word; /* sequence:56 | state:8; the low half is the futex */
    _Atomic uint64_t next; /* link: sequence:36 | record:28, towards the tail */
    _Atomic uint64_t prev; /* link, towards the head; of the head: meaningless */
    /* Timestamp of the grant, ns; while WAITING, a marker (grant_marker_make()). */
    _Atomic uint64_t granted_ns;
    _Atomic uint64_t enqueued_ns; /* ns: when it was enqueued, or granted at once */
    /* Of a shared set: thread head unit:32 | its generation:32. Of a private one: id of the set
     * that has granted it, the record's own or a successor (set/set.h). */
    _Atomic uint64_t owner;
    _Atomic uint64_t set;         /* set number:32 | RECORD_OVERHELD | class:7 | thread id:24 */
    _Atomic uint32_t wait_target; /* wait_target_kind | WAIT_TARGET_* | queue number << 4 */

    /* Fields from here to `bucket_next` belong to the timer or completion queue of the record,
     * under its lock. In a segment proxy records hold them; there only the deadline,
     * RECORD_REFUSE_AT_DEADLINE and `data` are stored, for other processes. */
    _Atomic uint32_t bucket_prev_flags; /* previous record in the queue's bucket:28 | flags */
    /* Address of the acquisition, or user_data. In a segment: count of shm/direct_doorbell.h. */
    _Atomic uint64_t data;
    union {
        _Atomic uint64_t deadline_ns; /* while waiting: deadline, ns; WEIR_FOREVER: none */
        /* Afterwards: next and previous completion of the queue. Atomic, since another thread that
         * looks for an overdue waiter may still read the deadline, before it finds the record
         * decided. */
        _Atomic uint32_t cq_links[2];
    };
    uint32_t heap_index;  /* place in the ring of the timer's heap, from 1; 0: none */
    uint32_t bucket_next; /* next record in the queue's bucket */

    _Atomic uint64_t amounts[]; /* one per limit of the set */
};

/* Fields of a record that a deferred write can target. */
enum {
    RECORD_FIELD_WORD = 0,
    RECORD_FIELD_NEXT = 1,
    RECORD_FIELD_PREV = 2,
    RECORD_FIELD_GRANTED_NS = 3,
    RECORD_FIELD_OWNER = 5
};

_Static_assert(offsetof(struct acq_record, bucket_prev_flags) == 60,
               "effects reach the first eight words");
_Static_assert(sizeof(struct acq_record) == 88, "six units with one amount");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the low half of the word");

#define RECORD_LINK_BITS 28
#define RECORD_LINK_MASK ((UINT64_C(1) << RECORD_LINK_BITS) - 1)
_Static_assert(RECORDS_RESERVED_MAX / RECORD_UNIT_SIZE <= RECORD_LINK_MASK + 1,
               "a link can name every record");
_Static_assert(RECORD_LINK_MASK < RECORD_HAS_ACQUISITION, "the flags are beside a record");

/* Completion queues of an instance, at most: their number is part of a wait target. */
#define WAIT_TARGET_CQ_MAX (UINT32_MAX >> WAIT_TARGET_CQ_SHIFT)

/* Marker in `granted_ns` of a waiter: this bit | sequence number:35 of the record's word, so that
 * it does not repeat while a helper can remember it | the record that it is nested in:28, or 0.
 * Timestamps are smaller. */
#define GRANT_MARKER (UINT64_C(1) << 63)

/* Added to `granted_ns` of a grant of which limits in shadow have granted nothing (set/shadow.h).
 * Timestamps are smaller. */
#define GRANT_WITHOUT_SHADOW (UINT64_C(3) << 61)
#define GRANT_TIME_MAX       (GRANT_MARKER - GRANT_WITHOUT_SHADOW - 1) /* 73 years */

/* Returns the timestamp in a stored `granted_ns`. */
static inline uint64_t grant_time(uint64_t stored)
{
    return stored - GRANT_WITHOUT_SHADOW <= GRANT_TIME_MAX ? stored - GRANT_WITHOUT_SHADOW : stored;
}

static inline uint64_t grant_marker_make(uint64_t word, uint32_t within)
{
    return GRANT_MARKER | (word >> 8 << RECORD_LINK_BITS) | within;
}

/* Returns the record of a number that no other process can write. */
static inline struct acq_record *record_known(const struct region *region, uint32_t unit)
{
    WEIR_INVARIANT(region->segment || unit * RECORD_UNIT_SIZE < region->records.reserved);
    return (struct acq_record *)(void *)(region->records.base + unit * RECORD_UNIT_SIZE);
}

/* Returns the record of any number; an invalid one marks the region as broken. */
static inline struct acq_record *record_at(const struct region *region, uint32_t unit)
{
    return unit < region->record_end ? record_known(region, unit) : region_mark_broken(region);
}

static inline uint32_t record_units(uint32_t limits_n)
{
    size_t size = sizeof(struct acq_record) + limits_n * sizeof(uint64_t);

    return (uint32_t)((size + RECORD_UNIT_SIZE - 1) / RECORD_UNIT_SIZE);
}

static inline uint64_t record_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void record_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline enum record_state record_state(uint64_t word)
{
    return (enum record_state)(word & 0xff);
}

/* Returns whether a record of a shared set can have this word: others are damage. */
static inline bool record_is_stored_shared(uint64_t word)
{
    uint64_t state = word & 0xff;

    if (state == RECORD_REVOKED || state == RECORD_IMPOSSIBLE)
        return true;
    return state < RECORD_BROKEN && state != RECORD_UNREACHABLE;
}

/* Returns the successor of `word` with state `state`. */
static inline uint64_t record_next_word(uint64_t word, enum record_state state)
{
    WEIR_INVARIANT(state <= RECORD_REVOKED);
    return ((word >> 8) + 1) << 8 | (uint64_t)state;
}

/* Returns the wait target. Callers load it once: if the record is reused, a second load can
 * differ. */
static inline uint32_t record_wait_target(const struct acq_record *record)
{
    return atomic_load_explicit(&record->wait_target, memory_order_acquire);
}

static inline enum wait_target_kind wait_target_kind(uint32_t target)
{
    return (enum wait_target_kind)(target & 3);
}

static inline uint32_t wait_target_cq(uint32_t target)
{
    return target >> WAIT_TARGET_CQ_SHIFT;
}

/* Return of a shared record the number of its direct doorbell, 0: none; and of its wait timer. */
static inline uint32_t wait_target_direct(uint32_t target)
{
    return wait_target_kind(target) == WAIT_TARGET_TIMER ? wait_target_cq(target) : 0;
}

static inline uint32_t wait_target_timer(uint32_t target)
{
    return wait_target_kind(target) == WAIT_TARGET_CQ ? wait_target_cq(target) : 0;
}

/* Stores the wait target. Release order: a thread that loads the number of a completion queue finds
 * that queue, however late it comes. */
static inline void record_set_wait_target(struct acq_record *record, enum wait_target_kind kind,
                                          uint32_t queue, uint32_t flags)
{
    WEIR_INVARIANT(kind >= WAIT_TARGET_FUTEX && kind <= WAIT_TARGET_CQ);
    WEIR_INVARIANT(queue <= WAIT_TARGET_CQ_MAX && flags < UINT32_C(1) << WAIT_TARGET_CQ_SHIFT);
    atomic_store_explicit(&record->wait_target,
                          (uint32_t)kind | flags | queue << WAIT_TARGET_CQ_SHIFT,
                          memory_order_release);
}

/* Returns `bucket_prev_flags`. Relaxed: the caller holds the lock of the field's owner, or owns the
 * record. */
static inline uint32_t record_prev_flags(const struct acq_record *record)
{
    return atomic_load_explicit(&record->bucket_prev_flags, memory_order_relaxed);
}

static inline void record_set_prev_flags(struct acq_record *record, uint32_t prev_flags)
{
    atomic_store_explicit(&record->bucket_prev_flags, prev_flags, memory_order_release);
}

static inline uint32_t record_set_number(const struct acq_record *record)
{
    return (uint32_t)(record_load(&record->set) >> 32);
}

static inline uint32_t record_thread(const struct acq_record *record)
{
    return (uint32_t)(record_load(&record->set) & RECORD_THREAD_MASK);
}

/* Returns the class of its request, of a set with classes. */
static inline uint32_t record_wait_class(const struct acq_record *record)
{
    return (uint32_t)(record_load(&record->set) >> RECORD_CLASS_SHIFT) & RECORD_CLASS_MASK;
}

static inline uint32_t record_link_target(uint64_t link)
{
    return (uint32_t)(link & RECORD_LINK_MASK);
}

/* Returns the successor of `link` that points to `record`. */
static inline uint64_t record_link_next(uint64_t link, uint32_t record)
{
    WEIR_INVARIANT(record <= RECORD_LINK_MASK);
    return ((link >> RECORD_LINK_BITS) + 1) << RECORD_LINK_BITS | record;
}

/* Returns the record that a WAITING one is nested in; 0: none, or it does not wait any more. */
static inline uint32_t record_waits_within(const struct acq_record *r)
{
    uint64_t marker = record_load(&r->granted_ns);

    return marker & GRANT_MARKER ? record_link_target(marker) : 0;
}

/* A HELD record that is nested in another one has itself as `prev` and the other one as `next`.
 * No other held record has: it has no links, or those of its wait. */
static inline uint32_t record_held_within(const struct acq_record *r, uint32_t record)
{
    if (record_link_target(record_load(&r->prev)) != record)
        return 0;
    return record_link_target(record_load(&r->next));
}

/* Makes the caller's HELD record nested in `within`; 0: in none. Its links serve no wait now. */
static inline void record_set_within(struct acq_record *r, uint32_t record, uint32_t within)
{
    shm_store_relaxed(&r->next, record_link_next(record_load(&r->next), within));
    shm_store_release(&r->prev, record_link_next(record_load(&r->prev), within ? record : 0));
}

static inline uint32_t deferred_write_target(uint32_t record, uint32_t word)
{
    WEIR_INVARIANT(word <= RECORD_FIELD_OWNER && record <= UINT32_MAX >> 3);
    return record << 3 | word;
}

/* Returns true if a record's word may change from `word` to `next`: to the next sequence number,
 * and through the states of one acquisition. A waiter may stay one, so that it sees its word
 * change. */
static inline bool record_may_become(uint64_t word, uint64_t next)
{
    enum record_state from = record_state(word), to = record_state(next);

    if (next >> 8 != (word >> 8) + 1)
        return false;
    if (from == RECORD_FREE)
        return to == RECORD_WAITING || to == RECORD_HELD;
    if (from == RECORD_WAITING)
        return (to != RECORD_FREE && to < RECORD_QUEUE_FULL) || to == RECORD_IMPOSSIBLE;
    return to == RECORD_FREE || (from == RECORD_HELD && to == RECORD_REVOKED);
}

/* Returns true if a committed deferred write can be: each field changes in its own way only. */
static inline bool deferred_write_is_possible(uint32_t target, uint64_t expected, uint64_t desired)
{
    switch (target & 7) {
    case RECORD_FIELD_WORD:
        return record_may_become(expected, desired);
    case RECORD_FIELD_NEXT:
    case RECORD_FIELD_PREV:
        return desired == record_link_next(expected, record_link_target(desired));
    case RECORD_FIELD_GRANTED_NS:
        return expected >= GRANT_MARKER && desired < GRANT_MARKER;
    case RECORD_FIELD_OWNER:
        return expected < desired && desired <= UINT32_MAX; /* successors have later numbers */
    default:
        return false;
    }
}

static inline const uint32_t *record_futex(const struct acq_record *record)
{
    return (const uint32_t *)(uintptr_t)&record->word;
}

#endif

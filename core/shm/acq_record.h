/* SPDX-License-Identifier: MIT */
/*
 * A record: one acquisition as the set sees it, holder or waiter. Its word says which, and changes
 * only as an effect of a published version, except that its owner frees it once it is decided.
 */
#ifndef WEIR_CORE_SHM_ACQ_RECORD_H
#define WEIR_CORE_SHM_ACQ_RECORD_H

#include "shm/region.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* States, the low byte of the word. All after RECORD_HELD are ends without a grant. */
enum record_state {
    RECORD_FREE = 0,
    RECORD_WAITING = 1,
    RECORD_HELD = 2,
    RECORD_TIMED_OUT = 3,
    RECORD_REFUSED = 4, /* max_wait passed, or would have */
    RECORD_CANCELED = 5,
    RECORD_SHUT_DOWN = 6,
    RECORD_QUEUE_FULL = 7, /* the line was full */
    RECORD_BROKEN = 8      /* never stored: the set that it is of is broken */
};

/* Who waits on a record, and how it is woken. */
enum wait_target_kind {
    WAIT_TARGET_FUTEX = 1, /* a thread blocked on the word, which keeps its own time */
    WAIT_TARGET_TIMER = 2, /* an acquisition that the instance's keeper looks after */
    WAIT_TARGET_CQ = 3     /* a submission to a queue, which its reaper looks after */
};

/* Of a waker: the request was strict, and so is the acquisition that the queue makes of it. */
#define WAIT_TARGET_STRICT (UINT32_C(1) << 2)
/* Of a waker: this is a stand-in; its `next` is the number of the record it stands for. */
#define WAIT_TARGET_PROXY    (UINT32_C(1) << 3)
#define WAIT_TARGET_CQ_SHIFT 4

/* Flags of `before`. */
#define RECORD_HAS_ACQUISITION (UINT32_C(1) << 28) /* `data` is its address, not user_data */
#define RECORD_REFUSE_AT_DEADLINE                                                                  \
    (UINT32_C(1) << 29)                      /* at its deadline it is refused, not timed out */
#define RECORD_DELIVERED (UINT32_C(1) << 30) /* its queue has heard of it, or dropped it */
#define RECORD_INDEXED   (UINT32_C(1) << 31) /* its queue finds it by user_data */

struct acq_record {
    _Atomic uint64_t word; /* sequence:56 | state:8; the low half is the futex */
    _Atomic uint64_t next; /* link: sequence:36 | record:28, towards the tail */
    _Atomic uint64_t prev; /* link, towards the head; of the head: anything */
    _Atomic uint64_t
        granted_ns; /* instant of the grant; while waiting, a marker that never repeats */
    _Atomic uint64_t enqueued_ns; /* instant it joined the line, or was granted at once */
    _Atomic uint64_t owner;       /* actor unit:32 | actor generation:32 */
    _Atomic uint64_t set;         /* number of the set:32 | thread id:32 */
    _Atomic uint32_t wait_target; /* enum wait_target_kind | WAKER_* | number of the queue << 4 */

    /* From here to `after`: of whoever keeps its time, under that keeper's lock. In a segment, where
     * stand-ins have that, the deadline is for others to see, and how it ends (RECORD_REFUSE_AT_DEADLINE). */
    _Atomic uint32_t bucket_prev_flags; /* record:28 in the same bucket of the queue, | flags */
    _Atomic uint64_t data;              /* the address of the acquisition, or user_data */
    union {
        _Atomic uint64_t deadline_ns; /* while it waits; WEIR_FOREVER: none */
        uint32_t cq_links[2];         /* then: the queue's next and previous completion */
    };
    uint32_t heap_index;  /* its place in the keeper's heap; 0: none */
    uint32_t bucket_next; /* record in the same bucket of the queue */

    _Atomic uint64_t amounts[]; /* one per limit of the set */
};

/* Places of effects within a record. */
enum {
    RECORD_FIELD_WORD = 0,
    RECORD_FIELD_NEXT = 1,
    RECORD_FIELD_PREV = 2,
    RECORD_FIELD_GRANTED_NS = 3
};

_Static_assert(offsetof(struct acq_record, bucket_prev_flags) == 60,
               "effects reach the first eight words");
_Static_assert(sizeof(struct acq_record) == 88, "six units with one amount");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the low half of the word");

#define RECORD_LINK_BITS 28
#define RECORD_LINK_MASK ((UINT64_C(1) << RECORD_LINK_BITS) - 1)

/* A grant marker: the sequence number of the record's word with this bit. Instants are below it. */
#define GRANT_MARKER (UINT64_C(1) << 63)

static inline struct acq_record *record_at(const struct region *region, uint32_t unit)
{
    return region_record(region, unit);
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

/* The word that follows `word` and says `state`. */
static inline uint64_t record_next_word(uint64_t word, enum record_state state)
{
    return ((word >> 8) + 1) << 8 | (uint64_t)state;
}

/* Loaded once: a record that is used again meanwhile may have another. */
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

/* Whoever comes late finds the queue of that number. */
static inline void record_set_wait_target(struct acq_record *record, enum wait_target_kind kind,
                                          uint32_t queue, bool strict)
{
    atomic_store_explicit(&record->wait_target,
                          (uint32_t)kind | (strict ? WAIT_TARGET_STRICT : 0) |
                              queue << WAIT_TARGET_CQ_SHIFT,
                          memory_order_release);
}

/* The same of a stand-in. */
static inline void record_set_proxy_target(struct acq_record *record, enum wait_target_kind kind,
                                           uint32_t queue, bool strict)
{
    atomic_store_explicit(&record->wait_target,
                          (uint32_t)kind | (strict ? WAIT_TARGET_STRICT : 0) | WAIT_TARGET_PROXY |
                              queue << WAIT_TARGET_CQ_SHIFT,
                          memory_order_release);
}

/* For whoever knows that nobody else changes it. */
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

static inline uint32_t record_link_target(uint64_t link)
{
    return (uint32_t)(link & RECORD_LINK_MASK);
}

/* The link that follows `link` and points to `record`. */
static inline uint64_t record_link_next(uint64_t link, uint32_t record)
{
    return ((link >> RECORD_LINK_BITS) + 1) << RECORD_LINK_BITS | record;
}

static inline uint32_t deferred_write_target(uint32_t record, uint32_t word)
{
    return record << 3 | word;
}

static inline const uint32_t *record_futex(const struct acq_record *record)
{
    return (const uint32_t *)(uintptr_t)&record->word;
}

#endif

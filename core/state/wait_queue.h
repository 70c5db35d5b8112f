/* SPDX-License-Identifier: MIT */
/*
 * The FIFO wait queue of a set: a doubly linked list of records. Its head and tail are in the
 * content of the set's version, its links in the records. Each function edits a private copy and
 * adds the deferred writes of the links. All of it takes effect when the version is committed, or
 * none.
 */
#ifndef WEIR_CORE_STATE_WAIT_QUEUE_H
#define WEIR_CORE_STATE_WAIT_QUEUE_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "shm/acq_record.h"
#include "state/version.h"

/* Content of a version: three words, then the states of the limits. */
enum { CONTENT_ENDS = 0, CONTENT_COUNT = 1, CONTENT_LAST_NS = 2, CONTENT_STATES = 3 };
_Static_assert(CONTENT_STATES == INLINE_STATE_AT, "a word is read as a state without a line");

/* CONTENT_COUNT: flags:8 | departures:28 | length of the wait queue:28. */
#define DEPARTURES_SHIFT    28
#define CONTENT_FLAGS_SHIFT 56
#define WAITQ_COUNT_MASK    ((UINT32_C(1) << DEPARTURES_SHIFT) - 1)
#define DEPARTURES_MASK     ((uint64_t)WAITQ_COUNT_MASK << DEPARTURES_SHIFT)
#define DEPARTURE           (UINT64_C(1) << DEPARTURES_SHIFT)
_Static_assert(WAITQ_COUNT_MASK >= RECORD_LINK_MASK, "every record can wait");

/* Flags of CONTENT_COUNT. */
enum {
    CONTENT_SHUT_DOWN = 1u << 0,    /* the instance is closing: no enqueue, no grant */
    CONTENT_FORECAST = 1u << 1,     /* the forecast behind the states is valid */
    CONTENT_JOIN_PENDING = 1u << 2, /* inflated for a request that is about to be enqueued */
    CONTENT_MOVED = 1u << 3,        /* final: the set's successor has the state (set/set.h) */
    CONTENT_UNOPENED = 1u << 4      /* of a successor that does not have the state yet */
};
#define CONTENT_FLAGS_ALL 0x1fu /* those above */
/* While the set has one of these, nothing is changed as otherwise. */
#define CONTENT_CLOSED ((uint32_t)CONTENT_SHUT_DOWN | CONTENT_MOVED | CONTENT_UNOPENED)

/* Returns the states of a private version. */
static inline uint64_t *waitq_states(const struct version *version)
{
    return version->content + CONTENT_STATES;
}

static inline uint32_t waitq_head(const struct version *version)
{
    return (uint32_t)version->content[CONTENT_ENDS];
}

static inline uint32_t waitq_tail(const struct version *version)
{
    return (uint32_t)(version->content[CONTENT_ENDS] >> 32);
}

/* Returns the length of the wait queue, from the word CONTENT_COUNT. */
static inline uint32_t waitq_length_in(uint64_t count)
{
    return (uint32_t)(count & WAITQ_COUNT_MASK);
}

static inline uint32_t waitq_length(const struct version *version)
{
    return waitq_length_in(version->content[CONTENT_COUNT]);
}

/* Returns how many waiters have left the queue in any way, modulo 2^28. A waiter enqueued at length
 * n has n - (departures now - departures then) waiters before it, or fewer. */
static inline uint32_t waitq_departures_in(uint64_t count)
{
    return (uint32_t)(count >> DEPARTURES_SHIFT & WAITQ_COUNT_MASK);
}

static inline uint32_t waitq_departures(const struct version *version)
{
    return waitq_departures_in(version->content[CONTENT_COUNT]);
}

/* Returns true if head, tail and length agree. */
static inline bool waitq_is_consistent(const struct version *version)
{
    uint32_t head = waitq_head(version), tail = waitq_tail(version);

    if (!waitq_length(version))
        return !head && !tail;
    return head && tail && (head == tail) == (waitq_length(version) == 1);
}

static inline void waitq_set_ends(struct version *version, uint32_t head, uint32_t tail)
{
    version->content[CONTENT_ENDS] = (uint64_t)tail << 32 | head;
}

/* Returns the flags, from the word CONTENT_COUNT. */
static inline uint32_t content_flags_in(uint64_t count)
{
    return (uint32_t)(count >> CONTENT_FLAGS_SHIFT);
}

static inline uint32_t version_flags(const struct version *version)
{
    return content_flags_in(version->content[CONTENT_COUNT]);
}

static inline void version_set_flags(struct version *version, uint32_t flags)
{
    uint64_t count = version->content[CONTENT_COUNT];

    WEIR_INVARIANT(flags <= UINT64_MAX >> CONTENT_FLAGS_SHIFT);
    version->content[CONTENT_COUNT] = (count & ((UINT64_C(1) << CONTENT_FLAGS_SHIFT) - 1)) |
                                      (uint64_t)flags << CONTENT_FLAGS_SHIFT;
}

static inline void waitq_count_departure(struct version *version)
{
    uint64_t count = version->content[CONTENT_COUNT];

    version->content[CONTENT_COUNT] = (count & ~(DEPARTURES_MASK | WAITQ_COUNT_MASK)) |
                                      ((count + DEPARTURE) & DEPARTURES_MASK) |
                                      ((count - 1) & WAITQ_COUNT_MASK);
}

/* Adds a deferred write. The caller adds at most DEFERRED_WRITES_MAX. */
WEIR_ALWAYS_INLINE void version_defer_write(struct version *version, uint32_t record, uint32_t word,
                                            uint64_t expected, uint64_t desired)
{
    struct deferred_write *write = &version->writes[version->writes_n++];

    WEIR_INVARIANT(version->writes_n <= DEFERRED_WRITES_MAX);
    /* Each member by itself: gcc clears a whole write by a slow instruction. */
    write->target = deferred_write_target(record, word);
    write->is_exclusive = 0;
    write->expected = expected;
    write->desired = desired;
}

/* Defers the change of a record's `word` to the next one, with this state. `is_own`: the record is
 * the committing thread's own, which no other thread changes meanwhile. */
WEIR_ALWAYS_INLINE void version_defer_state(struct version *version, uint32_t record, uint64_t word,
                                            enum record_state state, bool is_own)
{
    version_defer_write(version, record, RECORD_FIELD_WORD, word, record_next_word(word, state));
    version->writes[version->writes_n - 1].is_exclusive = is_own;
}

/* Returns the record behind `record`, or 0. Only a commit proves that it is of this version. */
static inline uint32_t waitq_next(const struct region *region, uint32_t record)
{
    return record_link_target(record_load(&record_at(region, record)->next));
}

/* Returns whether the links around a waiting record are those of a queued one. Only a commit proves
 * that they are of this version. */
static inline bool waitq_contains(const struct region *region, const struct version *version,
                                  uint32_t record)
{
    uint32_t prev = record_link_target(record_load(&record_at(region, record)->prev));

    return waitq_head(version) == record || (prev && waitq_next(region, prev) == record);
}

WEIR_ALWAYS_INLINE void waitq_defer_link(struct version *version, const struct region *region,
                                         uint32_t record, uint32_t which, uint32_t target)
{
    struct acq_record *r = record_at(region, record);
    uint64_t link = record_load(which == RECORD_FIELD_NEXT ? &r->next : &r->prev);

    version_defer_write(version, record, which, link, record_link_next(link, target));
}

/* Makes the caller's FREE record WAITING between two others, each of which may be 0. No other
 * thread reads the fields of the record that are stored here before the commit. */
WEIR_ALWAYS_INLINE void waitq_fill(const struct region *region, struct version *version,
                                   uint32_t record, uint32_t prev, uint32_t next, uint32_t within)
{
    struct acq_record *r = record_at(region, record);
    uint64_t word = record_load(&r->word);

    WEIR_INVARIANT(waitq_is_consistent(version));
    WEIR_INVARIANT(region->segment || waitq_length(version) < WAITQ_COUNT_MASK);
    WEIR_INVARIANT(record && (region->segment || (record != prev && record != within)));
    WEIR_INVARIANT(region->segment || record_state(word) == RECORD_FREE);
    shm_store_relaxed(&r->next, record_link_next(record_load(&r->next), next));
    shm_store_relaxed(&r->prev, record_link_next(record_load(&r->prev), prev));
    shm_store_relaxed(&r->granted_ns, grant_marker_make(word, within));
    version_defer_state(version, record, word, RECORD_WAITING, false);
    version->content[CONTENT_COUNT]++; /* there are fewer records than it can count */
}

/* Enqueues the caller's record behind `tail`, the last one or 0. */
WEIR_ALWAYS_INLINE void waitq_enqueue(const struct region *region, struct version *version,
                                      uint32_t tail, uint32_t record)
{
    waitq_fill(region, version, record, tail, 0, 0);
    if (tail)
        waitq_defer_link(version, region, tail, RECORD_FIELD_NEXT, record);
    waitq_set_ends(version, tail ? waitq_head(version) : record, record);
}

/* Enqueues the caller's record, nested in `within`, behind `prev`; 0: as the head. */
static inline void waitq_insert(const struct region *region, struct version *version, uint32_t prev,
                                uint32_t record, uint32_t within)
{
    uint32_t next = prev ? waitq_next(region, prev) : waitq_head(version);

    waitq_fill(region, version, record, prev, next, within);
    if (prev)
        waitq_defer_link(version, region, prev, RECORD_FIELD_NEXT, record);
    if (next)
        waitq_defer_link(version, region, next, RECORD_FIELD_PREV, record);
    waitq_set_ends(version, prev ? waitq_head(version) : record,
                   next ? waitq_tail(version) : record);
}

/* Removes the head; `next`, the record behind it or 0, becomes the head. The caller changes the
 * word of the old head. */
static inline void waitq_dequeue_to(struct version *version, uint32_t next)
{
    waitq_set_ends(version, next, next ? waitq_tail(version) : 0);
    waitq_count_departure(version);
}

static inline void waitq_dequeue(const struct region *region, struct version *version)
{
    waitq_dequeue_to(version, waitq_next(region, waitq_head(version)));
}

/* Removes `record` from any position, with at most two deferred writes. The caller changes its
 * word. */
static inline void waitq_remove(const struct region *region, struct version *version,
                                uint32_t record)
{
    struct acq_record *r = record_at(region, record);
    uint32_t next = record_link_target(record_load(&r->next));
    uint32_t prev = record_link_target(record_load(&r->prev));

    WEIR_INVARIANT(record && waitq_is_consistent(version));
    if (waitq_head(version) == record) {
        waitq_dequeue(region, version);
        return;
    }
    /* The head's `prev` is meaningless, so only a record behind the head has two neighbors. */
    waitq_defer_link(version, region, prev, RECORD_FIELD_NEXT, next);
    if (next)
        waitq_defer_link(version, region, next, RECORD_FIELD_PREV, prev);
    waitq_set_ends(version, waitq_head(version), next ? waitq_tail(version) : prev);
    waitq_count_departure(version);
}

#endif

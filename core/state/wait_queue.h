/* SPDX-License-Identifier: MIT */
/*
 * The FIFO line of a set: a doubly linked list of records whose ends are part of the set's
 * published state. Each change here edits a private version and adds the effects on the links; it
 * comes about when the version is published, all or nothing.
 */
#ifndef WEIR_CORE_STATE_WAIT_QUEUE_H
#define WEIR_CORE_STATE_WAIT_QUEUE_H

#include "base/sched_point.h"
#include "shm/acq_record.h"
#include "state/version.h"

/* Content of a set's version: words 0 … LINE_WORDS-1 are the line, the limits' states follow. */
enum { CONTENT_ENDS = 0, CONTENT_COUNT = 1, CONTENT_LAST_NS = 2, CONTENT_STATES = 3 };
_Static_assert(CONTENT_STATES == INLINE_STATE_AT, "a word is read as a state without a line");

/* CONTENT_COUNT: flags:8 | how many ever left the line:28 | its length:28. */
#define DEPARTURES_SHIFT    28
#define CONTENT_FLAGS_SHIFT 56
#define WAITQ_COUNT_MASK    ((UINT32_C(1) << DEPARTURES_SHIFT) - 1)
#define DEPARTURES_MASK     ((uint64_t)WAITQ_COUNT_MASK << DEPARTURES_SHIFT)

/* Flags. */
enum {
    CONTENT_SHUT_DOWN = 1u << 0,   /* the instance is closing: nobody joins or is granted */
    CONTENT_FORECAST = 1u << 1,    /* the projection behind the states is valid */
    CONTENT_JOIN_PENDING = 1u << 2 /* it was boxed for somebody who is about to join the line */
};

static inline uint32_t waitq_head(const struct version *version)
{
    return (uint32_t)version->content[CONTENT_ENDS];
}

static inline uint32_t waitq_tail(const struct version *version)
{
    return (uint32_t)(version->content[CONTENT_ENDS] >> 32);
}

static inline uint32_t waitq_length_of(const uint64_t *content)
{
    return (uint32_t)(content[CONTENT_COUNT] & WAITQ_COUNT_MASK);
}

static inline uint32_t waitq_length(const struct version *version)
{
    return waitq_length_of(version->content);
}

/* How many have left the line, by whatever way, modulo 2^28: who joined at a length of n was at
 * place n - (left now - left then), or further ahead. */
static inline uint32_t waitq_departures_of(const uint64_t *content)
{
    return (uint32_t)(content[CONTENT_COUNT] >> DEPARTURES_SHIFT & WAITQ_COUNT_MASK);
}

static inline uint32_t waitq_departures(const struct version *version)
{
    return waitq_departures_of(version->content);
}

static inline void waitq_set_ends(struct version *version, uint32_t head, uint32_t tail)
{
    version->content[CONTENT_ENDS] = (uint64_t)tail << 32 | head;
}

static inline uint32_t version_flags(const struct version *version)
{
    return (uint32_t)(version->content[CONTENT_COUNT] >> CONTENT_FLAGS_SHIFT);
}

static inline void version_set_flags(struct version *version, uint32_t flags)
{
    uint64_t count = version->content[CONTENT_COUNT];

    version->content[CONTENT_COUNT] = (count & ((UINT64_C(1) << CONTENT_FLAGS_SHIFT) - 1)) |
                                      (uint64_t)flags << CONTENT_FLAGS_SHIFT;
}

static inline void waitq_set_counts(struct version *version, uint32_t length, uint32_t departures)
{
    version->content[CONTENT_COUNT] =
        (uint64_t)version_flags(version) << CONTENT_FLAGS_SHIFT |
        (uint64_t)(departures & WAITQ_COUNT_MASK) << DEPARTURES_SHIFT | (length & WAITQ_COUNT_MASK);
}

static inline void waitq_count_departure(struct version *version)
{
    waitq_set_counts(version, waitq_length(version) - 1, waitq_departures(version) + 1);
}

/* Adds an effect. The caller never adds more than DEFERRED_WRITES_MAX. The second for the publisher's own
 * record, at its own request. */
static inline void version_defer_write(struct version *version, uint32_t record, uint32_t word,
                                       uint64_t expected, uint64_t desired)
{
    version->writes[version->writes_n++] = (struct deferred_write){
        .target = deferred_write_target(record, word), .expected = expected, .desired = desired};
}

static inline void version_defer_own_write(struct version *version, uint32_t record, uint32_t word,
                                           uint64_t expected, uint64_t desired)
{
    version_defer_write(version, record, word, expected, desired);
    version->writes[version->writes_n - 1].is_exclusive = true;
}

/* The record behind `record`, or 0. Whether that is of this version is known only at commit. */
static inline uint32_t waitq_next(const struct region *region, uint32_t record)
{
    return record_link_target(record_load(&record_at(region, record)->next));
}

/* Whether the links around a record that waits are those of one in line. As above. */
bool waitq_contains(const struct region *region, const struct version *version, uint32_t record);

/* What a record that is free and the caller's says before it stands in line behind `tail`, or behind
 * nobody: nobody is behind it, and it is not granted. Nobody else looks at that yet. */
static inline void waitq_prepare(struct acq_record *r, uint64_t word, uint32_t tail)
{
    record_store(&r->next, record_link_next(record_load(&r->next), 0));
    SCHED_POINT();
    record_store(&r->prev, record_link_next(record_load(&r->prev), tail));
    SCHED_POINT();
    record_store(&r->granted_ns, GRANT_MARKER | word >> 8);
    SCHED_POINT();
}

/* `record`, which is free and the caller's, joins at the tail and becomes WAITING. */
void waitq_enqueue(const struct region *region, struct version *version, uint32_t record);

/* The head leaves, and the record behind it is the next; 0: there is none. Its word is the caller's
 * business. */
static inline void waitq_dequeue_to(struct version *version, uint32_t next)
{
    waitq_set_ends(version, next, next ? waitq_tail(version) : 0);
    waitq_count_departure(version);
}

static inline void waitq_dequeue(const struct region *region, struct version *version)
{
    waitq_dequeue_to(version, waitq_next(region, waitq_head(version)));
}

/* `record` leaves from anywhere. Its word is the caller's business. Adds at most two effects. */
void waitq_remove(const struct region *region, struct version *version, uint32_t record);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The FIFO line of a set: a doubly linked list of records whose ends are part of the set's
 * published state. Each change here edits a private version and adds the effects on the links; it
 * comes about when the version is published, all or nothing.
 */
#ifndef WEIR_CORE_STATE_WAIT_QUEUE_H
#define WEIR_CORE_STATE_WAIT_QUEUE_H

#include "base/sched_point.h"
#include "state/acq_record.h"
#include "state/version.h"

/* Content of a set's version: words 0 … LINE_WORDS-1 are the line, the limits' states follow. */
enum { CONTENT_ENDS = 0, CONTENT_COUNT = 1, CONTENT_LAST = 2, CONTENT_STATES = 3 };
_Static_assert(CONTENT_STATES == WORD_STATE_AT, "a word is read as a state without a line");

/* CONTENT_COUNT: flags:8 | how many ever left the line:28 | its length:28. */
#define LEFT_SHIFT  28
#define FLAGS_SHIFT 56
#define COUNT_MASK  ((UINT32_C(1) << LEFT_SHIFT) - 1)
#define LEFT_MASK   ((uint64_t)COUNT_MASK << LEFT_SHIFT)

/* Flags. */
enum {
    CONTENT_SHUT = 1u << 0,      /* the instance is closing: nobody joins or is granted */
    CONTENT_PROJECTED = 1u << 1, /* the projection behind the states is valid */
    CONTENT_EXPECTED = 1u << 2   /* it was boxed for somebody who is about to join the line */
};

static inline uint32_t line_head(const struct version *version)
{
    return (uint32_t)version->content[CONTENT_ENDS];
}

static inline uint32_t line_tail(const struct version *version)
{
    return (uint32_t)(version->content[CONTENT_ENDS] >> 32);
}

static inline uint32_t line_length_of(const uint64_t *content)
{
    return (uint32_t)(content[CONTENT_COUNT] & COUNT_MASK);
}

static inline uint32_t line_length(const struct version *version)
{
    return line_length_of(version->content);
}

/* How many have left the line, by whatever way, modulo 2^28: who joined at a length of n was at
 * place n - (left now - left then), or further ahead. */
static inline uint32_t line_left_of(const uint64_t *content)
{
    return (uint32_t)(content[CONTENT_COUNT] >> LEFT_SHIFT & COUNT_MASK);
}

static inline uint32_t line_left(const struct version *version)
{
    return line_left_of(version->content);
}

static inline void line_set_ends(struct version *version, uint32_t head, uint32_t tail)
{
    version->content[CONTENT_ENDS] = (uint64_t)tail << 32 | head;
}

static inline uint32_t version_flags(const struct version *version)
{
    return (uint32_t)(version->content[CONTENT_COUNT] >> FLAGS_SHIFT);
}

static inline void version_set_flags(struct version *version, uint32_t flags)
{
    uint64_t count = version->content[CONTENT_COUNT];

    version->content[CONTENT_COUNT] =
        (count & ((UINT64_C(1) << FLAGS_SHIFT) - 1)) | (uint64_t)flags << FLAGS_SHIFT;
}

static inline void line_set_counts(struct version *version, uint32_t length, uint32_t left)
{
    version->content[CONTENT_COUNT] = (uint64_t)version_flags(version) << FLAGS_SHIFT |
                                      (uint64_t)(left & COUNT_MASK) << LEFT_SHIFT |
                                      (length & COUNT_MASK);
}

static inline void line_one_leaves(struct version *version)
{
    line_set_counts(version, line_length(version) - 1, line_left(version) + 1);
}

/* Adds an effect. The caller never adds more than EFFECTS_MAX. The second for the publisher's own
 * record, at its own request. */
static inline void version_add_effect(struct version *version, uint32_t record, uint32_t word,
                                      uint64_t before, uint64_t after)
{
    version->effects[version->effects_n++] =
        (struct effect){.place = effect_place(record, word), .before = before, .after = after};
}

static inline void version_add_own_effect(struct version *version, uint32_t record, uint32_t word,
                                          uint64_t before, uint64_t after)
{
    version_add_effect(version, record, word, before, after);
    version->effects[version->effects_n - 1].own = true;
}

/* The record behind `record`, or 0. Whether that is of this version is known only at commit. */
static inline uint32_t line_next(const struct region *region, uint32_t record)
{
    return link_record(record_load(&record_at(region, record)->next));
}

/* Whether the links around a record that waits are those of one in line. As above. */
bool line_has(const struct region *region, const struct version *version, uint32_t record);

/* What a record that is free and the caller's says before it stands in line behind `tail`, or behind
 * nobody: nobody is behind it, and it is not granted. Nobody else looks at that yet. */
static inline void line_prepare(struct record *r, uint64_t word, uint32_t tail)
{
    record_store(&r->next, link_next(record_load(&r->next), 0));
    STEP();
    record_store(&r->prev, link_next(record_load(&r->prev), tail));
    STEP();
    record_store(&r->granted, GRANTED_MARKER | word >> 8);
    STEP();
}

/* `record`, which is free and the caller's, joins at the tail and becomes WAITING. */
void line_push(const struct region *region, struct version *version, uint32_t record);

/* The head leaves, and the record behind it is the next; 0: there is none. Its word is the caller's
 * business. */
static inline void line_pop_to(struct version *version, uint32_t next)
{
    line_set_ends(version, next, next ? line_tail(version) : 0);
    line_one_leaves(version);
}

static inline void line_pop(const struct region *region, struct version *version)
{
    line_pop_to(version, line_next(region, line_head(version)));
}

/* `record` leaves from anywhere. Its word is the caller's business. Adds at most two effects. */
void line_remove(const struct region *region, struct version *version, uint32_t record);

#endif

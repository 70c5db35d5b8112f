/* SPDX-License-Identifier: MIT */
/* Steps of try_now.h, inlined into its operations and into the fast path of inflated sets
 * (fast_path_block.c). */
#ifndef WEIR_CORE_SET_TRY_NOW_INLINE_H
#define WEIR_CORE_SET_TRY_NOW_INLINE_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "shm/participant.h"
#include "state/short_version.h"

static inline uint64_t *try_now_states(struct stack_version *version)
{
    return version->content + CONTENT_STATES;
}

/* Returns true if the version of a shared set can be the result of an operation. */
static inline bool try_now_is_valid(const weir_set *set, struct stack_version *version)
{
    return !participant_is_broken(set->participant) && participant_has_slot(set->participant) &&
           version->content[CONTENT_LAST_NS] < GRANT_MARKER &&
           limits_check(&set->limits, try_now_states(version)) == 0;
}

/* Reads a version. False: it has waiters or flags, is incomplete, or is damaged. */
WEIR_ALWAYS_INLINE bool try_now_read(bool shared, const struct thread_ctx *ctx, const weir_set *set,
                                     unsigned *turn, struct stack_version *ret)
{
    if (shared)
        version_set_active(set->region, thread_ctx_for_set(ctx, set->number)->unit, set->head_unit);
    if (!stack_version_read(shared, set->region, set->head_unit,
                            CONTENT_STATES + set->limits.state_words, turn, ret))
        return false;
    if (ret->content[CONTENT_ENDS] | (ret->content[CONTENT_COUNT] & ~DEPARTURES_MASK))
        return false;
    return !shared || !set_is_shared(set) || try_now_is_valid(set, ret);
}

/* Defers the write of the record's word, if there is a record and the set is shared. */
WEIR_ALWAYS_INLINE void try_now_set_write(bool shared, struct stack_version *version,
                                          uint32_t record, bool is_owner, uint64_t expected,
                                          enum record_state state)
{
    version->has_write = shared && record;
    if (version->has_write)
        version->write =
            (struct deferred_write){.target = deferred_write_target(record, RECORD_FIELD_WORD),
                                    .is_exclusive = is_owner,
                                    .expected = expected,
                                    .desired = record_next_word(expected, state)};
}

WEIR_ALWAYS_INLINE bool try_now_commit(bool shared, const struct thread_ctx *ctx,
                                       const weir_set *set, unsigned turn,
                                       const struct stack_version *version)
{
    return stack_version_commit(shared, set->region, thread_ctx_for_set(ctx, set->number)->unit,
                                turn, version);
}

/* Stores the time of the grant in the caller's own FREE record. Relaxed: its word comes later. */
static inline void try_now_stamp_record(struct acq_record *r, uint64_t now_ns)
{
    record_store(&r->granted_ns, now_ns);
    SCHED_POINT();
    record_store(&r->enqueued_ns, now_ns);
    SCHED_POINT();
}

/* Returns true if `*at`, or else a new clock reading, has reached the time of the version. False: a
 * reservation is ahead. */
WEIR_ALWAYS_INLINE bool try_now_is_reached(const weir_set *set, const struct stack_version *version,
                                           struct weir_instant *at)
{
    if (at->now_ns < version->content[CONTENT_LAST_NS])
        *at = clock_instant(&set->w->clock, set->limits.reads_wall);
    return at->now_ns >= version->content[CONTENT_LAST_NS];
}

/* Takes the amounts. In a shared set the record, if any, becomes HELD with the version. */
WEIR_ALWAYS_INLINE int try_now_take(bool shared, struct thread_ctx *ctx, weir_set *set,
                                    const uint64_t *amounts, uint32_t record, bool is_owner,
                                    uint64_t *ret_now_ns)
{
    struct weir_instant at;
    struct acq_record *r = shared && record ? record_at(set->region, record) : NULL;
    struct stack_version version;
    unsigned turn = 0;

    if (!shared)
        contention_yield(region_block(set->region, set->head_unit));
    /* Before the state word, to shorten the time from its load to the CAS. */
    at = clock_instant(&set->w->clock, set->limits.reads_wall);
    version_prefetch(set->region, set->head_unit);
    for (;; stack_version_backoff(shared, version.head, &turn)) {
        if (!try_now_read(shared, ctx, set, &turn, &version))
            return -EINPROGRESS;
        if (!try_now_is_reached(set, &version, &at) ||
            !limits_take_or_clobber(&set->limits, try_now_states(&version), &at, amounts))
            return -EINPROGRESS;
        WEIR_INVARIANT(at.now_ns >= version.content[CONTENT_LAST_NS]);
        version.content[CONTENT_LAST_NS] = *ret_now_ns = at.now_ns;
        if (r)
            try_now_stamp_record(r, at.now_ns);
        try_now_set_write(shared, &version, record, is_owner, r ? record_load(&r->word) : 0,
                          RECORD_HELD);
        if (try_now_commit(shared, ctx, set, turn, &version))
            return 0;
    }
}

/* Returns true if a request that may wait seems to have others ahead; it needs no clock then. */
static inline bool try_now_has_queue(const weir_set *set, enum wait_mode mode)
{
    return mode != MODE_TRY &&
           version_peek_content(set->region, set->head_unit, CONTENT_COUNT) & WAITQ_COUNT_MASK;
}

/* Returns held amounts to resources without an algorithm. */
static inline void try_now_release_all(const struct limits *limits, uint64_t *states,
                                       const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].type == WEIR_LIMIT_RESOURCE)
            states[limits->items[i].state_offset] -= amounts[i];
}

#endif

/* SPDX-License-Identifier: MIT */
/* The parts of a set's operations. */
#include "set/txn_internal.h"

#include "peer/participant.h"
#include "peer/stall_check.h"
#include <string.h>

/* Whether there can be such a line. */
static bool is_line(const struct operation *op)
{
    const struct segment *segment = op->set->member->segment;
    uint32_t head = line_head(&op->version), tail = line_tail(&op->version);
    uint32_t length = line_length(&op->version);

    if (!length)
        return !head && !tail;
    return segment_has_record(segment, head) && segment_has_record(segment, tail) &&
           (head == tail) == (length == 1);
}

/* A live set of a keyed one that was never lent has an empty version. */
static bool is_unused(const struct operation *op)
{
    return set_is_hidden(op->set) && !op->version.content_n && !op->version.strange;
}

/* Whether the content can be one, so that whatever reads it goes on, and ends. */
static bool is_whole(const struct operation *op)
{
    const struct limits *limits = &op->set->limits;
    uint32_t n = set_content_min(op->set);

    if (is_unused(op))
        return true;
    if (version_flags(&op->version) & CONTENT_PROJECTED)
        n += 1 + limits->state_words;
    /* No other flag is ever set: nobody shuts a set for others. */
    if (version_flags(&op->version) & ~(uint32_t)(CONTENT_PROJECTED | CONTENT_EXPECTED))
        return false;
    return !op->version.strange && op->version.content_n >= n && n <= set_content_max(op->set) &&
           op->version.content[CONTENT_LAST] < GRANTED_MARKER && is_line(op) &&
           limits_check(limits, operation_states(op)) == 0 &&
           (!(version_flags(&op->version) & CONTENT_PROJECTED) ||
            limits_check(limits, operation_states(op) + limits->state_words + 1) == 0);
}

/* Whether the effect ended somebody's wait. Not each version that counts as untold has one. */
static bool decides(const struct effect *effect)
{
    enum record_state state = record_state(effect->after);

    return (effect->place & 7) == RECORD_WORD && state != RECORD_FREE && state != RECORD_WAITING;
}

/* Does the waking that whoever published the version may not have done. */
static void tell_again(const struct operation *op)
{
    struct effect effects[EFFECTS_MAX];
    weir_set *set = op->set;
    uint32_t n = publication_effects(set->region, set->head, &op->version, effects);

    for (uint32_t i = 0; i < n; i++)
        if (decides(&effects[i]))
            wake_waiter(set, effects[i].place >> 3, effects[i].after);
    if (line_head(&op->version))
        wake_at(set, line_head(&op->version), set_word(set, line_head(&op->version)), op->now_ns);
    publication_told(set->region, set->head, &op->version);
}

/* What others may have written, or left undone. */
static void check_shared(struct operation *op)
{
    struct member *member = op->set->member;

    if (!member_has_place(member) || !is_whole(op))
        member_break(member);
    if (member_is_broken(member)) {
        memset(op->version.content, 0, set_content_max(op->set) * sizeof(uint64_t));
        member_tell_broken(member);
    } else if (op->version.untold) {
        tell_again(op);
    }
}

static inline void read_version(struct operation *op, struct actor *actor, weir_set *set)
{
    operation_begin(op, actor, set);
    publication_intend(set->region, actor_part(actor, set->number)->unit, set->head);
    publication_read(set->region, set->head, &op->version);
    if (set_is_hidden(set) && is_unused(op))
        memset(op->version.content, 0, set_content_max(set) * sizeof(uint64_t));
}

void operation_read(struct operation *op, struct actor *actor, weir_set *set)
{
    read_version(op, actor, set);
    operation_read_clock(op);
    if (set->member)
        check_shared(op);
}

void operation_read_untimed(struct operation *op, struct actor *actor, weir_set *set)
{
    read_version(op, actor, set);
    if (line_length(&op->version) || set->member) {
        operation_read_clock(op);
    } else {
        op->at = (struct weir_instant){.now_ns = op->version.content[CONTENT_LAST]};
        op->now_ns = op->at.now_ns;
    }
    if (set->member)
        check_shared(op);
}

bool operation_current(const struct operation *op)
{
    return publication_current(op->set->region, op->set->head, &op->version);
}

bool operation_has(const struct operation *op, uint32_t record)
{
    const weir_set *set = op->set;
    bool is_boxed = version_is_boxed(&op->version); /* or else nobody is in line */

    if (is_boxed && (!set->member || line_has(set->region, &op->version, record)))
        return true;
    if (set->member && operation_current(op))
        member_break(set->member);
    return false;
}

bool operation_box(struct operation *op, struct actor *actor, weir_set *set, uint64_t word)
{
    uint32_t unit = actor_part(actor, set->number)->unit;

    operation_begin(op, actor, set);
    publication_intend(set->region, unit, set->head);
    publication_read_word(&op->version, word);
    version_set_flags(&op->version, CONTENT_EXPECTED);
    op->version.content[CONTENT_LAST] = atomic_load_explicit(set->unboxed_ns, memory_order_acquire);
    return publication_commit(set->region, unit, set->head, &op->version);
}

bool operation_commit(struct operation *op)
{
    const weir_set *set = op->set;

    operation_close(op);
    if (!publication_commit(set->region, actor_part(op->actor, set->number)->unit, set->head,
                            &op->version))
        return false;
    STEP();
    operation_finish(op);
    return true;
}

/* Whether a record is kept in this process. */
static bool is_here(const weir_set *set, uint32_t record)
{
    return !set->member || member_kept(set->member, record);
}

/* Sees to it that somebody serves the set at `ready`, when the head can be granted. */
static void watch_head(struct operation *op, uint32_t head, uint64_t ready)
{
    struct record *r = record_at(op->set->region, head);
    uint64_t word, next;

    word = record_load(&r->word);
    if (waker_kind(record_waker(r)) != RECORD_WAKE_FUTEX && is_here(op->set, head)) {
        op->arm_ns = ready;
        op->arm = (struct wake){head, word};
        return;
    }
    if (waker_kind(record_waker(r)) != RECORD_WAKE_FUTEX) {
        op->wakes[op->wakes_n++] = (struct wake){head, word}; /* its own process keeps its time */
        return;
    }
    /* A blocked waiter keeps its own time. Its word changes, so that it cannot miss the call. */
    next = record_next_word(word, RECORD_WAITING);
    version_add_effect(&op->version, head, RECORD_WORD, word, next);
    if (!MUTANT(13))
        op->wakes[op->wakes_n++] = (struct wake){head, next};
}

/*
 * Of a set that processes share the head is told that it is the head, even if no time will do: it
 * looks at the set more often from then on (guard.h).
 */
static void call_head(struct operation *op)
{
    uint32_t head = line_head(&op->version);

    if (head && op->set->member)
        watch_head(op, head, op->now_ns + GUARD_NS);
}

static uint64_t head_ready(const struct operation *op, const uint64_t *states)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct limit *blame;
    uint32_t head = line_head(&op->version);

    if (!head)
        return WEIR_NEVER;
    operation_amounts(op, head, amounts);
    return limits_ready_at(&op->set->limits, states, &op->at, amounts, true, &blame);
}

uint64_t operation_head_ready(const struct operation *op)
{
    return head_ready(op, operation_states(op));
}

/* Whether it matters when the head could be granted before: not where only what is given back
 * lets it. */
static bool has_instants(const weir_set *set)
{
    return set->limits.has_waits || set->limits.has_unforeseen || set->member;
}

void operation_remember(const struct operation *op)
{
    if (has_instants(op->set))
        for (uint32_t i = 0; i < op->set->limits.state_words; i++)
            op->actor->spare_content[i] = operation_states(op)[i];
}

/* Whether somebody looks at the head at this instant. Where instants do not matter nobody does: it is
 * but a clock that is behind. */
static bool is_watched(const struct operation *op, enum head_watch watch, uint64_t ready)
{
    if (watch != WATCHED_AS_READ)
        return watch == WATCHED_BY_CALLER;
    if (!has_instants(op->set))
        return ready >= WEIR_BLOCKED || MUTANT(616);
    return ready == head_ready(op, op->actor->spare_content) || MUTANT(614);
}

/* In a segment that is not a matter of course. */
static bool head_waits(const struct operation *op)
{
    uint32_t head = line_head(&op->version);

    if (!op->set->member || !head || record_state(set_word(op->set, head)) == RECORD_WAITING)
        return true;
    if (operation_current(op))
        member_break(op->set->member);
    return false;
}

void operation_serve(struct operation *op, enum head_watch watch)
{
    uint32_t head = line_head(&op->version);
    uint64_t ready;

    if (!head || version_flags(&op->version) & CONTENT_SHUT || !head_waits(op))
        return;
    ready = operation_serve_head(op, head);
    if (op->granted) {
        if (op->set->limits.has_anomalies && !MUTANT(685))
            projection_forget(op); /* it may be later than was foreseen */
        watch = WATCHED_BY_NOBODY;
        ready = operation_head_ready(op);
        op->again = operation_is_due(op, ready);
    }
    if (op->again)
        return;
    if (ready < WEIR_BLOCKED)
        op->look_ns = ready;
    if (is_watched(op, watch, ready))
        return;
    if (ready < WEIR_BLOCKED)
        watch_head(op, line_head(&op->version), ready);
    else
        call_head(op);
}

/* SPDX-License-Identifier: MIT */
/*
 * Estimates: when would a request be granted if it joined the line now? A projection carries the
 * states of rates and calls through everybody in line, each served at the first instant that it
 * could be, so that one more waiter costs one more step. Resources cannot be foreseen and count as
 * available; the estimate is a lower bound.
 *
 * The projection is part of the published content, behind the states: its instant, then the states.
 * It is dropped whenever somebody leaves the line out of turn, is granted by a release, or
 * something is given back, and made anew from the line when an estimate is next asked for; and also
 * while a resource holds up a head that rates and calls would let go, for what was foreseen is then
 * past, and a window that begins later than foreseen may serve more of those in line. That can be
 * without a resource, too, as who keeps time for the head may be late: unless all algorithms are
 * WEIR_ALGORITHM_MONOTONE, each grant drops it.
 */
#include "api/instance.h"
#include "base/mutant.h"
#include "set/txn.h"
#include <string.h>

#define CHECK_EVERY 64u
#define UNDO_WORDS  16u /* of state that are worth copying to save a call of each limit */

struct projection {
    uint64_t *at_ns;
    uint64_t *states;
};

static struct projection projection_in(uint64_t *words)
{
    return (struct projection){words, words + 1};
}

static struct projection projection_of(const struct operation *op)
{
    return projection_in(operation_states(op) + op->set->limits.state_words);
}

static void begin(const struct operation *op, const struct projection *projection)
{
    size_t size = op->set->limits.state_words * sizeof(uint64_t);

    *projection->at_ns = op->at.now_ns;
    memcpy(projection->states, operation_states(op), size);
}

/* When the next in line is asked about: not before the one ahead of it, nor before now or what is
 * reserved. */
static struct weir_instant next_at(const struct weir_instant *now,
                                   const struct projection *projection)
{
    struct weir_instant at = *now;

    if (*projection->at_ns > at.now_ns)
        at.now_ns = *projection->at_ns;
    return at;
}

/* The instant at which it is served. */
static uint64_t next_instant(const struct limits *limits, const struct weir_instant *now,
                             const struct projection *projection, const uint64_t *amounts,
                             const struct limit **ret_blame)
{
    struct weir_instant at = next_at(now, projection);

    return limits_ready_at(limits, projection->states, &at, amounts, false, ret_blame);
}

/*
 * As extend() if that is at once, as it mostly is while a resource holds up the line: one question to
 * each limit. False: it is not, or that is not worth a try, and nothing has changed.
 */
static bool extend_at_once(const struct limits *limits, const struct weir_instant *now,
                           const struct projection *projection, const uint64_t *amounts)
{
    struct weir_instant at = next_at(now, projection);
    uint64_t before[UNDO_WORDS];

    if (!limits->has_resources || limits->state_words > UNDO_WORDS)
        return false;
    for (uint32_t i = 0; i < limits->state_words; i++)
        before[i] = projection->states[i];
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (!amounts[i] || limit->type == WEIR_LIMIT_RESOURCE ||
            limit_try_take(limit, projection->states + limit->state_at, &at, amounts[i]) <=
                at.now_ns)
            continue;
        for (uint32_t word = 0; word < limits->state_words && !MUTANT(580); word++)
            projection->states[word] = before[word];
        return false;
    }
    *projection->at_ns = at.now_ns;
    return true;
}

/* False: it can never be granted. */
static bool extend(const struct limits *limits, const struct weir_instant *now,
                   const struct projection *projection, const uint64_t *amounts)
{
    const struct limit *blame = NULL;
    struct weir_instant at = *now;
    uint64_t ready;

    if (extend_at_once(limits, now, projection, amounts))
        return true;
    ready = next_instant(limits, now, projection, amounts, &blame);
    if (ready >= WEIR_BLOCKED)
        return ready != WEIR_NEVER;
    at.now_ns = ready;
    limits_take(limits, projection->states, &at, amounts, false);
    *projection->at_ns = ready;
    return true;
}

bool projection_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                       const uint64_t *amounts)
{
    struct projection projection = projection_in(words);

    return extend(limits, now, &projection, amounts);
}

bool projection_is_valid(const struct operation *op)
{
    return (version_flags(&op->version) & CONTENT_PROJECTED) != 0;
}

static void set_valid(struct operation *op)
{
    version_set_flags(&op->version, version_flags(&op->version) | CONTENT_PROJECTED);
}

bool projection_push(struct operation *op, const uint64_t *amounts)
{
    struct projection projection = projection_of(op);

    if (!op->set->limits.has_waits)
        return true;
    if (!line_length(&op->version)) {
        begin(op, &projection);
        set_valid(op);
    }
    return !projection_is_valid(op) || extend(&op->set->limits, &op->at, &projection, amounts);
}

/* Walks the line, as long as the set stands still. */
static bool rebuild(struct operation *op)
{
    struct projection projection = projection_of(op);
    uint32_t record = line_head(&op->version), n = line_length(&op->version);
    uint64_t amounts[WEIR_LIMITS_MAX];

    begin(op, &projection);
    for (uint32_t i = 0; i < n && record; i++) {
        if (i % CHECK_EVERY == 0 && !operation_current(op))
            return false;
        if (!operation_has(op, record))
            return false; /* lest it goes round in circles */
        operation_amounts(op, record, amounts);
        extend(&op->set->limits, &op->at, &projection, amounts);
        record = line_next(op->set->region, record);
    }
    if (!operation_current(op))
        return false;
    set_valid(op);
    return true;
}

/* What holds up the head, for want of anything else to blame. */
static bool blame_head(const struct operation *op, struct verdict *ret)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    operation_amounts(op, line_head(&op->version), amounts);
    if (!operation_current(op))
        return false;
    limits_ready_at(&op->set->limits, operation_states(op), &op->at, amounts, true, &ret->blame);
    return true;
}

/* Whether the head should have been served already, as far as could be foreseen. */
static bool overdue(const struct operation *op)
{
    const struct limit *blame;
    uint64_t amounts[WEIR_LIMITS_MAX];

    if (!op->set->limits.has_resources && (!op->set->limits.has_anomalies || MUTANT(686)))
        return false;
    operation_amounts(op, line_head(&op->version), amounts);
    return operation_is_due(op, limits_ready_at(&op->set->limits, operation_states(op), &op->at,
                                                amounts, false, &blame));
}

/* Makes the projection anew; false: the set has changed meanwhile. A long line in a busy set may
 * never stand still for it: then those ahead are left out, which is a lower bound too. */
static bool project_line(struct operation *op)
{
    struct projection projection = projection_of(op);

    if (op->walks < WALKS_MAX && !rebuild(op)) {
        op->walks++;
        return false;
    }
    if (op->walks == WALKS_MAX) {
        begin(op, &projection);
        projection_forget(op);
    }
    return true;
}

bool projection_estimate(struct operation *op, const uint64_t *amounts, struct verdict *ret)
{
    struct projection projection = projection_of(op);
    bool line = line_length(&op->version) > 0;

    ret->now_ns = op->now_ns;
    if (MUTANT(112))
        ret->now_ns = op->at.now_ns;
    ret->estimate_ns = op->at.now_ns;
    if (!op->set->limits.has_waits)
        return !line || ret->blame || blame_head(op, ret);
    if (!line || MUTANT(11))
        begin(op, &projection);
    else if ((!projection_is_valid(op) || overdue(op)) && !project_line(op))
        return false;
    ret->estimate_ns = next_instant(&op->set->limits, &op->at, &projection, amounts, &ret->blame);
    return !line || ret->blame || blame_head(op, ret);
}

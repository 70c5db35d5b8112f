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
#include "set/instance_base.h"
#include "set/txn.h"
#include <string.h>

#define FORECAST_CHECK_EVERY 64u
#define UNDO_WORDS           16u /* of state that are worth copying to save a call of each limit */

struct forecast {
    uint64_t *at_ns;
    uint64_t *states;
};

static struct forecast forecast_at(uint64_t *words)
{
    return (struct forecast){words, words + 1};
}

static struct forecast forecast_of(const struct txn *txn)
{
    return forecast_at(txn_states(txn) + txn->set->limits.state_words);
}

static void forecast_init(const struct txn *txn, const struct forecast *forecast)
{
    size_t size = txn->set->limits.state_words * sizeof(uint64_t);

    *forecast->at_ns = txn->at.now_ns;
    memcpy(forecast->states, txn_states(txn), size);
}

/* When the next in line is asked about: not before the one ahead of it, nor before now or what is
 * reserved. */
static struct weir_instant forecast_next_instant(const struct weir_instant *now,
                                                 const struct forecast *forecast)
{
    struct weir_instant at = *now;

    if (*forecast->at_ns > at.now_ns)
        at.now_ns = *forecast->at_ns;
    return at;
}

/* The instant at which it is served. */
static uint64_t forecast_next_ready(const struct limits *limits, const struct weir_instant *now,
                                    const struct forecast *forecast, const uint64_t *amounts,
                                    const struct limit **ret_limiting)
{
    struct weir_instant at = forecast_next_instant(now, forecast);

    return limits_ready_at(limits, forecast->states, &at, amounts, false, ret_limiting);
}

/*
 * As extend() if that is at once, as it mostly is while a resource holds up the line: one question to
 * each limit. False: it is not, or that is not worth a try, and nothing has changed.
 */
static bool forecast_step_now(const struct limits *limits, const struct weir_instant *now,
                              const struct forecast *forecast, const uint64_t *amounts)
{
    struct weir_instant at = forecast_next_instant(now, forecast);
    uint64_t saved[UNDO_WORDS];

    if (!limits->has_resources || limits->state_words > UNDO_WORDS)
        return false;
    for (uint32_t i = 0; i < limits->state_words; i++)
        saved[i] = forecast->states[i];
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (!amounts[i] || limit->type == WEIR_LIMIT_RESOURCE ||
            limit_try_take(limit, forecast->states + limit->state_offset, &at, amounts[i]) <=
                at.now_ns)
            continue;
        for (uint32_t word = 0; word < limits->state_words; word++)
            forecast->states[word] = saved[word];
        return false;
    }
    *forecast->at_ns = at.now_ns;
    return true;
}

/* False: it can never be granted. */
static bool forecast_step(const struct limits *limits, const struct weir_instant *now,
                          const struct forecast *forecast, const uint64_t *amounts)
{
    const struct limit *limiting = NULL;
    struct weir_instant at = *now;
    uint64_t ready;

    if (forecast_step_now(limits, now, forecast, amounts))
        return true;
    ready = forecast_next_ready(limits, now, forecast, amounts, &limiting);
    if (ready >= WEIR_BLOCKED)
        return ready != WEIR_NEVER;
    at.now_ns = ready;
    limits_take(limits, forecast->states, &at, amounts, false);
    *forecast->at_ns = ready;
    return true;
}

bool forecast_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                     const uint64_t *amounts)
{
    struct forecast forecast = forecast_at(words);

    return forecast_step(limits, now, &forecast, amounts);
}

bool forecast_is_valid(const struct txn *txn)
{
    return (version_flags(&txn->version) & CONTENT_FORECAST) != 0;
}

static void forecast_set_valid(struct txn *txn)
{
    version_set_flags(&txn->version, version_flags(&txn->version) | CONTENT_FORECAST);
}

bool forecast_append(struct txn *txn, const uint64_t *amounts)
{
    struct forecast forecast = forecast_of(txn);

    if (!txn->set->limits.has_waits)
        return true;
    if (!waitq_length(&txn->version)) {
        forecast_init(txn, &forecast);
        forecast_set_valid(txn);
    }
    return !forecast_is_valid(txn) ||
           forecast_step(&txn->set->limits, &txn->at, &forecast, amounts);
}

/* Walks the line, as long as the set stands still. */
static bool forecast_rebuild(struct txn *txn)
{
    struct forecast forecast = forecast_of(txn);
    uint32_t record = waitq_head(&txn->version), n = waitq_length(&txn->version);
    uint64_t amounts[WEIR_LIMITS_MAX];

    forecast_init(txn, &forecast);
    for (uint32_t i = 0; i < n && record; i++) {
        if (i % FORECAST_CHECK_EVERY == 0 && !txn_is_current(txn))
            return false;
        if (!txn_has_waiter(txn, record))
            return false; /* lest it goes round in circles */
        txn_amounts(txn, record, amounts);
        forecast_step(&txn->set->limits, &txn->at, &forecast, amounts);
        record = waitq_next(txn->set->region, record);
    }
    if (!txn_is_current(txn))
        return false;
    forecast_set_valid(txn);
    return true;
}

/* What holds up the head, for want of anything else to blame. */
static bool forecast_find_limiting(const struct txn *txn, struct decision *ret)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    txn_amounts(txn, waitq_head(&txn->version), amounts);
    if (!txn_is_current(txn))
        return false;
    limits_ready_at(&txn->set->limits, txn_states(txn), &txn->at, amounts, true, &ret->limiting);
    return true;
}

/* Whether the head should have been served already, as far as could be foreseen. */
static bool forecast_is_overdue(const struct txn *txn)
{
    const struct limit *limiting;
    uint64_t amounts[WEIR_LIMITS_MAX];

    if (!txn->set->limits.has_resources && !txn->set->limits.has_anomalies)
        return false;
    txn_amounts(txn, waitq_head(&txn->version), amounts);
    return txn_is_ready(txn, limits_ready_at(&txn->set->limits, txn_states(txn), &txn->at, amounts,
                                             false, &limiting));
}

/* Makes the projection anew; false: the set has changed meanwhile. A long line in a busy set may
 * never stand still for it: then those ahead are left out, which is a lower bound too. */
static bool forecast_refresh(struct txn *txn)
{
    struct forecast forecast = forecast_of(txn);

    if (txn->forecast_walks < FORECAST_WALKS_MAX && !forecast_rebuild(txn)) {
        txn->forecast_walks++;
        return false;
    }
    if (txn->forecast_walks == FORECAST_WALKS_MAX) {
        forecast_init(txn, &forecast);
        forecast_invalidate(txn);
    }
    return true;
}

bool forecast_compute(struct txn *txn, const uint64_t *amounts, struct decision *ret)
{
    struct forecast forecast = forecast_of(txn);
    bool has_waiters = waitq_length(&txn->version) > 0;

    ret->now_ns = txn->now_ns;
    ret->forecast_ns = txn->at.now_ns;
    if (!txn->set->limits.has_waits)
        return !has_waiters || ret->limiting || forecast_find_limiting(txn, ret);
    if (!has_waiters)
        forecast_init(txn, &forecast);
    else if ((!forecast_is_valid(txn) || forecast_is_overdue(txn)) && !forecast_refresh(txn))
        return false;
    ret->forecast_ns =
        forecast_next_ready(&txn->set->limits, &txn->at, &forecast, amounts, &ret->limiting);
    return !has_waiters || ret->limiting || forecast_find_limiting(txn, ret);
}

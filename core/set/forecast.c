/* SPDX-License-Identifier: MIT */
/*
 * Forecasts when a request would be granted if it were enqueued now.
 *
 * A forecast carries the states of rates and calls through the wait queue, each waiter granted as
 * soon as possible, so one more waiter costs one more step. Resources cannot be forecast and count
 * as available; so the result is a lower bound. It is published behind the states: its time, its
 * states, and the offset of the wall clock if any limit reads it. It is dropped when a waiter
 * leaves out of turn, a release grants, units are returned, or a reader finds that the wall clock
 * has stepped since. It is rebuilt on demand.
 *
 * A forecast that is overdue is rebuilt as well: a resource, or a late timer, holds up a head that
 * rates and calls would let go, and a window that starts later may admit more waiters. Unless all
 * algorithms are WEIR_ALGORITHM_MONOTONE, each grant drops the forecast of several rates or calls.
 */
#include "base/invariant.h"
#include "set/class_order.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include <string.h>

#define FORECAST_CHECK_EVERY 64u
#define UNDO_WORDS           16u /* states up to this size are saved to spare a call */

void forecast_init(const struct txn *txn)
{
    uint64_t *words = forecast_words(txn);
    size_t size = txn->set->limits.state_words * sizeof(uint64_t);

    WEIR_INVARIANT(txn->set->limits.has_waits);
    WEIR_INVARIANT(set_content_max(txn->set) <= txn->version.content_capacity);
    words[FORECAST_AT_NS] = txn->at.now_ns;
    memcpy(words + FORECAST_STATES, txn_states(txn), size);
    if (txn->set->limits.reads_wall)
        words[set_forecast_words(txn->set) - 1] = (uint64_t)txn->at.wall_offset_ns;
}

/* Returns when the next waiter is decided: not before the one ahead, the clock or a reservation. */
static struct weir_instant forecast_next_instant(const struct weir_instant *now, uint64_t *words)
{
    struct weir_instant at = *now;

    if (words[FORECAST_AT_NS] > at.now_ns)
        at.now_ns = words[FORECAST_AT_NS];
    return at;
}

/* Extends the forecast if the request is ready at once, as it mostly is while a resource is short:
 * one call per limit. False: it is not, or a try is not worthwhile; nothing has changed. */
static bool forecast_step_now(const struct limits *limits, const struct weir_instant *at,
                              uint64_t *words, const uint64_t *amounts)
{
    uint64_t saved[UNDO_WORDS];

    if (!limits->has_resources || limits->own_words > UNDO_WORDS)
        return false;
    for (uint32_t i = 0; i < limits->own_words; i++)
        saved[i] = words[FORECAST_STATES + i];
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (!amounts[i] || limit->type == WEIR_LIMIT_RESOURCE)
            continue;
        if (limit_try_take(limit, words + FORECAST_STATES + limit->state_offset, at, amounts[i]) <=
            at->now_ns)
            continue;
        for (uint32_t word = 0; word < limits->own_words; word++)
            words[FORECAST_STATES + word] = saved[word];
        return false;
    }
    words[FORECAST_AT_NS] = at->now_ns;
    return true;
}

bool forecast_extend(const struct limits *limits, const struct weir_instant *now, uint64_t *words,
                     const uint64_t *amounts)
{
    const struct limit *limiting = NULL;
    struct weir_instant at = forecast_next_instant(now, words);
    uint64_t ready;

    if (forecast_step_now(limits, &at, words, amounts))
        return true;
    ready = limits_ready_at(limits, words + FORECAST_STATES, &at, amounts, false, &limiting);
    if (ready >= WEIR_BLOCKED)
        return ready != WEIR_NEVER;
    WEIR_INVARIANT(ready >= words[FORECAST_AT_NS] && ready >= now->now_ns);
    at.now_ns = ready;
    limits_take(limits, words + FORECAST_STATES, &at, amounts, false);
    words[FORECAST_AT_NS] = ready;
    return true;
}

static void forecast_set_valid(struct txn *txn)
{
    version_set_flags(&txn->version, version_flags(&txn->version) | CONTENT_FORECAST);
}

bool forecast_append(struct txn *txn, const uint64_t *amounts)
{
    if (txn->within)
        forecast_invalidate(txn);
    if (!txn->set->limits.has_waits || txn->within || txn->set->reorders)
        return true;
    if (!waitq_length(&txn->version)) {
        forecast_init(txn);
        forecast_set_valid(txn);
    }
    return !forecast_is_valid(txn) ||
           forecast_extend(&txn->set->limits, &txn->at, forecast_words(txn), amounts);
}

/* Rebuilds the forecast from the wait queue. False: the set has changed. */
static bool forecast_rebuild(struct txn *txn)
{
    uint32_t record = waitq_head(&txn->version), n = waitq_length(&txn->version);
    uint64_t amounts[WEIR_LIMITS_MAX];

    forecast_init(txn);
    for (uint32_t i = 0; i < n && record; i++) {
        if (i % FORECAST_CHECK_EVERY == 0 && !txn_is_current(txn))
            return false;
        if (!txn_has_waiter(txn, record))
            return false; /* or the walk might not end */
        txn_amounts(txn, record, amounts);
        forecast_extend(&txn->set->limits, &txn->at, forecast_words(txn), amounts);
        record = waitq_next(txn->set->region, record);
    }
    if (!txn_is_current(txn))
        return false;
    forecast_set_valid(txn);
    return true;
}

/* Finds the limit that limits the first waiter ahead, if no other is limiting. */
static bool forecast_find_limiting(const struct txn *txn, const uint64_t *amounts,
                                   struct decision *ret)
{
    uint32_t ahead = txn_first_ahead(txn, amounts);
    uint64_t of_ahead[WEIR_LIMITS_MAX];

    WEIR_INVARIANT(waitq_head(&txn->version));
    if (ahead)
        txn_amounts(txn, ahead, of_ahead);
    if (!txn_is_current(txn))
        return false;
    if (ahead)
        limits_ready_at(&txn->set->limits, txn_states(txn), &txn->at, of_ahead, true,
                        &ret->limiting);
    return true;
}

/* Returns true if the head should have been granted already by the forecast. */
static bool forecast_is_overdue(const struct txn *txn)
{
    const struct limit *limiting;
    uint64_t amounts[WEIR_LIMITS_MAX];

    if (!txn->set->limits.has_resources && !txn->set->limits.has_anomalies)
        return false;
    WEIR_INVARIANT(waitq_head(&txn->version));
    txn_amounts(txn, waitq_head(&txn->version), amounts);
    return txn_is_ready(txn, limits_ready_at(&txn->set->limits, txn_states(txn), &txn->at, amounts,
                                             false, &limiting));
}

/* Rebuilds the forecast. False: the set has changed; retry. A long queue of a busy set may never
 * stand still. After FORECAST_WALKS_MAX walks its waiters are ignored: still a lower bound. */
static bool forecast_refresh(struct txn *txn)
{
    WEIR_INVARIANT(txn->forecast_walks <= FORECAST_WALKS_MAX);
    if (txn->forecast_walks < FORECAST_WALKS_MAX && !forecast_rebuild(txn)) {
        txn->forecast_walks++;
        return false;
    }
    if (txn->forecast_walks == FORECAST_WALKS_MAX) {
        forecast_init(txn);
        forecast_invalidate(txn);
    }
    return true;
}

/* Adds the grant of a request to a forecast in which each limit has its own time, `after`. Returns
 * the time of the grant; WEIR_BLOCKED or more: it cannot be. */
static uint64_t forecast_add(const struct txn *txn, const uint64_t *amounts, uint64_t *after,
                             const struct limit **ret_limiting)
{
    const struct limits *limits = &txn->set->limits;
    uint64_t *states = forecast_words(txn) + FORECAST_STATES, ready;
    struct weir_instant at = txn->at;

    for (uint32_t i = 0; i < limits->n; i++)
        if ((amounts[i] || !txn->set->per_limit) && after[i] > at.now_ns)
            at.now_ns = after[i];
    ready = limits_ready_at(limits, states, &at, amounts, false, ret_limiting);
    if (ready >= WEIR_BLOCKED)
        return ready;
    at.now_ns = ready;
    limits_take(limits, states, &at, amounts, false);
    for (uint32_t i = 0; i < limits->n; i++)
        if (amounts[i] || !txn->set->per_limit)
            after[i] = ready;
    return ready;
}

/* Forecasts a request that is not the last of all: the waiters that it has to wait for are granted
 * one after another, each as soon as it can be. Those behind it do not matter. */
static bool forecast_compute_within(struct txn *txn, const uint64_t *amounts, struct decision *ret)
{
    uint64_t after[WEIR_LIMITS_MAX] = {0}, of_waiter[WEIR_LIMITS_MAX];
    uint32_t n = waitq_length(&txn->version);
    const struct limit *ignored;
    struct class_walk walk;

    if (txn->forecast_walks >= FORECAST_WALKS_MAX)
        n = 0;
    forecast_invalidate(txn); /* its words are used for this one */
    forecast_init(txn);
    class_walk_start(&walk, txn->set, &txn->version, txn->wait_class);
    for (uint32_t i = 0; i < n && walk.record; i++) {
        if (txn->within && !record_waits_within(set_record(txn->set, walk.record)))
            break;
        if (i % FORECAST_CHECK_EVERY == 0 && !txn_is_current(txn))
            break;
        txn_amounts(txn, walk.record, of_waiter);
        forecast_add(txn, of_waiter, after, &ignored);
        class_walk_on(&walk, of_waiter);
    }
    if (n && !txn_is_current(txn)) {
        txn->forecast_walks++;
        return false;
    }
    ret->forecast_ns = forecast_add(txn, amounts, after, &ret->limiting);
    return !waitq_length(&txn->version) || ret->limiting ||
           forecast_find_limiting(txn, amounts, ret);
}

bool forecast_compute(struct txn *txn, const uint64_t *amounts, struct decision *ret)
{
    bool has_waiters = waitq_length(&txn->version) > 0;
    uint64_t *words = forecast_words(txn);
    struct weir_instant at;

    ret->now_ns = txn->now_ns;
    ret->forecast_ns = txn->at.now_ns;
    if (!txn->set->limits.has_waits)
        return !has_waiters || ret->limiting || forecast_find_limiting(txn, amounts, ret);
    if (txn->within || txn->set->reorders)
        return forecast_compute_within(txn, amounts, ret);
    if (!has_waiters)
        forecast_init(txn);
    else if ((!forecast_is_valid(txn) || forecast_is_overdue(txn)) && !forecast_refresh(txn))
        return false;
    at = forecast_next_instant(&txn->at, words);
    ret->forecast_ns = limits_ready_at(&txn->set->limits, words + FORECAST_STATES, &at, amounts,
                                       false, &ret->limiting);
    return !has_waiters || ret->limiting || forecast_find_limiting(txn, amounts, ret);
}

void set_forecast(struct thread_ctx *ctx, weir_set *set, const struct newcomer *newcomer,
                  enum forecast_walk forecast_walk, struct decision *ret)
{
    const uint64_t *amounts = newcomer->amounts;
    struct txn txn;

    txn.forecast_walks = 0;
    txn.within = newcomer->within;
    txn.wait_class = newcomer->wait_class;
    do {
        ret->limiting = NULL;
        txn_begin(&txn, ctx, set);
        if (version_flags(&txn.version) & CONTENT_MOVED) {
            moved_forecast(ctx, set, newcomer, forecast_walk, ret);
            return;
        }
        if (set_is_broken(set) || set_is_faulty(set)) {
            *ret = (struct decision){.now_ns = txn.now_ns, .forecast_ns = WEIR_NEVER};
            return;
        }
        if (forecast_walk == FORECAST_SHORT_QUEUE &&
            waitq_length(&txn.version) > FORECAST_QUEUE_MAX)
            txn.forecast_walks = FORECAST_WALKS_MAX;
        /* If only a resource is short, it is the limiting one, though nothing can be forecast. */
        limits_ready_at(&set->limits, txn_states(&txn), &txn.at, amounts, true, &ret->limiting);
    } while (!forecast_compute(&txn, amounts, ret));
}

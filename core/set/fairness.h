/* SPDX-License-Identifier: MIT */
/*
 * Which request is granted before which. In a fair set that is the order of its wait queue; in one
 * that is fair per limit (`fair: per_limit`) only requests for the same limit have an order. With
 * classes (`priorities`, `shares`) that is the order within a class (class_order.h). A new request
 * is granted at once if it were next as a waiter. Nested requests (weir_request.within) are granted
 * before all others: those wait for what the holders of the nested ones will give back. So they are
 * the first in the wait queue.
 *
 * Links and amounts are read as they are now: whether they are of the version, its commit proves.
 */
#ifndef WEIR_CORE_SET_FAIRNESS_H
#define WEIR_CORE_SET_FAIRNESS_H

#include "base/invariant.h"
#include "set/set.h"

/* A new request. */
struct newcomer {
    const uint64_t *amounts;
    uint32_t within, wait_class; /* as in struct acquire_op */
};

/* Returns the limits of which something is asked: bit i is limit i. */
static inline uint64_t fairness_limits(const weir_set *set, const uint64_t *amounts)
{
    uint32_t n = set->limits.n;
    uint64_t limits = 0;

    WEIR_INVARIANT(n <= WEIR_LIMITS_MAX);
    for (uint32_t i = 0; i < n; i++)
        limits |= (uint64_t)(amounts[i] != 0) << i;
    return set->limits.is_arranged ? limits & limits_present(&set->limits) : limits;
}

/* Copies the amounts of a record to `ret`, which has room for WEIR_LIMITS_MAX: as asked for. */
static inline void fairness_asked(const weir_set *set, uint32_t record, uint64_t *ret)
{
    const struct acq_record *r = set_record(set, record);

    if (set_is_foreign(set, r)) {
        successor_amounts(set, record, ret);
        return;
    }
    for (uint32_t i = 0; i < set->limits.n; i++)
        ret[i] = atomic_load_explicit(&r->amounts[i], memory_order_relaxed);
}

/* Copies what a waiter waits for, or a holder holds. */
static inline void fairness_amounts(const weir_set *set, uint32_t record, uint64_t *ret)
{
    fairness_asked(set, record, ret);
    if (set->limits.has_shadow)
        shadow_reduce(set, set_record(set, record), ret);
}

/* Implement the two below for sets that are not in order; the first one also for a nested
 * request. */
uint32_t fairness_search_ahead(const weir_set *set, const struct version *version,
                               const struct newcomer *newcomer);
uint32_t fairness_search_next(const weir_set *set, const struct version *version,
                              const struct weir_instant *at, const uint64_t *states,
                              uint64_t *ret_ready);

/* Returns the first waiter that a new request has to wait for; 0: none, so it is granted if its
 * amounts are there. */
static inline uint32_t fairness_first_ahead(const weir_set *set, const struct version *version,
                                            const struct newcomer *newcomer)
{
    if (!waitq_length(version) || !set->fair)
        return 0;
    return newcomer->within || set->reorders ? fairness_search_ahead(set, version, newcomer)
                                             : waitq_head(version);
}

/* Returns the waiter that is granted next: of those that wait for no other waiter, the one that is
 * ready first by `states`; and when that is. 0, WEIR_NEVER: there are no waiters. */
static inline uint32_t fairness_next(const weir_set *set, const struct version *version,
                                     const struct weir_instant *at, const uint64_t *states,
                                     uint64_t *ret_ready)
{
    uint32_t head = waitq_head(version);
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct limit *limiting;

    if (set->reorders)
        return fairness_search_next(set, version, at, states, ret_ready);
    *ret_ready = WEIR_NEVER;
    if (!head)
        return 0;
    fairness_amounts(set, head, amounts);
    *ret_ready = limits_ready_at(&set->limits, states, at, amounts, true, &limiting);
    return head;
}

/* Returns the last nested waiter, behind which the next one is enqueued; 0: there is none. Also
 * returns how many there are. */
uint32_t fairness_last_nested(const weir_set *set, const struct version *version, uint32_t *ret_n);

#endif

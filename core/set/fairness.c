/* SPDX-License-Identifier: MIT */
/* Searches of the wait queue for the waiters that come before others. */
#include "set/fairness.h"

#include "set/class_order.h"

/* Returns whether the waiter is granted before a new request, which asks for `limits`. */
static bool fairness_is_before(const weir_set *set, uint32_t waiter,
                               const struct newcomer *newcomer, uint64_t limits)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    if (newcomer->within && !record_waits_within(set_record(set, waiter)))
        return false;
    if (!set->per_limit)
        return true;
    fairness_amounts(set, waiter, amounts);
    return fairness_limits(set, amounts) & limits;
}

/* The first waiter decides for all but sets that are not in order: if it is not nested, none is. */
uint32_t fairness_search_ahead(const weir_set *set, const struct version *version,
                               const struct newcomer *newcomer)
{
    uint32_t record = waitq_head(version), left = waitq_length(version);
    uint64_t limits = fairness_limits(set, newcomer->amounts);

    if (set->classes && !newcomer->within)
        return class_order_next(set, version, class_order_words(set, waitq_states(version)),
                                newcomer->wait_class);
    for (; record && left; left--) {
        if (fairness_is_before(set, record, newcomer, limits))
            return record;
        if (!set->per_limit)
            return 0;
        record = waitq_next(set->region, record);
    }
    return 0;
}

/* Waiters that wait for no other one have no limit in common, so there are few. */
static uint32_t fairness_search_per_limit(const weir_set *set, const struct version *version,
                                          const struct weir_instant *at, const uint64_t *states,
                                          uint64_t *ret_ready)
{
    const struct limits *limits = &set->limits;
    uint32_t record = waitq_head(version), left = waitq_length(version), next = 0;
    uint64_t waited_for = 0, all = limits_present(limits), amounts[WEIR_LIMITS_MAX];
    const struct limit *limiting;

    *ret_ready = WEIR_NEVER;
    for (; record && left && waited_for != all; left--) {
        uint64_t asked, ready;

        fairness_amounts(set, record, amounts);
        asked = fairness_limits(set, amounts);
        if (!(asked & waited_for)) {
            ready = limits_ready_at(limits, states, at, amounts, true, &limiting);
            if (ready == WEIR_NEVER && set_may_be_impossible(set, set_record(set, record))) {
                *ret_ready = ready; /* its wait ends, before it holds up others */
                return record;
            }
            next = !next || ready < *ret_ready ? record : next;
            *ret_ready = next == record ? ready : *ret_ready;
        }
        waited_for |= asked;
        record = waitq_next(set->region, record);
    }
    return next;
}

uint32_t fairness_search_next(const weir_set *set, const struct version *version,
                              const struct weir_instant *at, const uint64_t *states,
                              uint64_t *ret_ready)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    const struct limit *limiting;
    uint32_t record;

    if (!set->classes)
        return fairness_search_per_limit(set, version, at, states, ret_ready);
    record =
        class_order_next(set, version, states + set->classes->state_offset, set->classes->rule.n);
    *ret_ready = WEIR_NEVER;
    if (!record)
        return 0;
    fairness_amounts(set, record, amounts);
    *ret_ready = limits_ready_at(&set->limits, states, at, amounts, true, &limiting);
    return record;
}

uint32_t fairness_last_nested(const weir_set *set, const struct version *version, uint32_t *ret_n)
{
    uint32_t record = waitq_head(version), left = waitq_length(version), last = 0;

    for (*ret_n = 0; record && left && record_waits_within(set_record(set, record)); left--) {
        last = record;
        ++*ret_n;
        record = waitq_next(set->region, record);
    }
    return last;
}

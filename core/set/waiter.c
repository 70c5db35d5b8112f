/* SPDX-License-Identifier: MIT */
/* Wait targets of proxy records; notification of waiters of shared sets. */
#include "set/waiter.h"

#include "base/sched_point.h"

void proxy_record_set_target(const weir_set *set, uint32_t waiter, enum wait_target_kind wake,
                             uint32_t queue, bool strict)
{
    struct acq_record *r = waiter_at(set->w, waiter);
    uint32_t record = record_link_target(record_load(&r->next));

    record_set_wait_target(record_at(set->region, record), wake, queue, 0);
    SCHED_POINT();
    record_set_wait_target(r, wake, queue, WAIT_TARGET_PROXY | (strict ? WAIT_TARGET_STRICT : 0));
}

void notify_shared_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    uint32_t waiter = participant_waiter(set->participant, record);

    if (waiter)
        timer_notify(set->w, waiter, word);
    else
        participant_notify_owner(set->participant, record);
}

void notify_recheck_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns)
{
    uint32_t waiter = set_is_shared(set) ? participant_waiter(set->participant, record) : record;

    WEIR_INVARIANT(at_ns != WEIR_FOREVER);
    if (waiter)
        timer_arm_recheck(set->w, waiter, word, at_ns);
    else
        participant_notify_owner(set->participant, record);
}

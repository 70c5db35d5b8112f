/* SPDX-License-Identifier: MIT */
/* Notification of waiters of shared sets, and rechecks. */
#include "set/notify.h"

#include "base/invariant.h"
#include "shm/participant.h"

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

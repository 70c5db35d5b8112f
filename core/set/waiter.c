/* SPDX-License-Identifier: MIT */
/* Wait targets of proxy records. */
#include "set/waiter.h"

#include "base/sched_point.h"

void proxy_record_set_target(const weir_set *set, uint32_t waiter, enum wait_target_kind wake,
                             uint32_t queue, bool strict)
{
    struct acq_record *r = waiter_at(set->w, waiter);
    uint32_t record = record_link_target(record_load(&r->next));

    record_set_wait_target(record_at(set->region, record), wake, queue, false);
    SCHED_POINT();
    record_set_proxy_target(r, wake, queue, strict);
}

/* SPDX-License-Identifier: MIT */
/* Kept records: see kept.h. */
#include "wait/waiter.h"

#include "base/sched_point.h"

void stand_in_set_waker(const weir_set *set, uint32_t kept, enum record_wake wake, uint32_t queue,
                        bool strict)
{
    struct record *r = kept_at(set->w, kept);
    uint32_t record = link_record(record_load(&r->next));

    record_set_waker(record_at(set->region, record), wake, queue, false);
    STEP();
    record_set_stand_in(r, wake, queue, strict);
}

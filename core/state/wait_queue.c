/* SPDX-License-Identifier: MIT */
/*
 * Edits of the wait queue in a private copy of a version. Links are read as they are now; if they
 * are not of the version that was read, the commit fails and the edit has no effect.
 */
#include "state/wait_queue.h"
#include "base/invariant.h"

bool waitq_contains(const struct region *region, const struct version *version, uint32_t record)
{
    uint32_t prev = record_link_target(record_load(&record_at(region, record)->prev));

    return waitq_head(version) == record || (prev && waitq_next(region, prev) == record);
}

void waitq_remove(const struct region *region, struct version *version, uint32_t record)
{
    struct acq_record *r = record_at(region, record);
    uint32_t next = record_link_target(record_load(&r->next));
    uint32_t prev = record_link_target(record_load(&r->prev));

    WEIR_INVARIANT(record && waitq_is_consistent(version));
    if (waitq_head(version) == record) {
        waitq_dequeue(region, version);
        return;
    }
    /* The head's `prev` is meaningless, so only a record behind the head has two neighbors. */
    waitq_defer_link(version, region, prev, RECORD_FIELD_NEXT, next);
    if (next)
        waitq_defer_link(version, region, next, RECORD_FIELD_PREV, prev);
    waitq_set_ends(version, waitq_head(version), next ? waitq_tail(version) : prev);
    waitq_count_departure(version);
}

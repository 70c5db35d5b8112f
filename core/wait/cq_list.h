/* SPDX-License-Identifier: MIT */
/*
 * A list of completions: decided records, the earliest decision first, linked through `ready`.
 * Under the lock of the queue that has them.
 */
#ifndef WEIR_CORE_WAIT_CQ_LIST_H
#define WEIR_CORE_WAIT_CQ_LIST_H

#include "state/acq_record.h"

struct completions {
    uint32_t first, last;
};

void completions_append(const struct region *region, struct completions *list, uint32_t record);
void completions_prepend(const struct region *region, struct completions *list, uint32_t record);
void completions_remove(const struct region *region, struct completions *list, uint32_t record);

/* The one behind a record, or 0. */
static inline uint32_t completions_next(const struct region *region, uint32_t record)
{
    return record_at(region, record)->ready[0];
}

#endif

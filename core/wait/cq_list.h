/* SPDX-License-Identifier: MIT */
/* A list of completions: decided records, the earliest decision first. `cq_links[0]` of a record is
 * the next one, `cq_links[1]` the previous one. The lock of the completion queue protects it. */
#ifndef WEIR_CORE_WAIT_CQ_LIST_H
#define WEIR_CORE_WAIT_CQ_LIST_H

#include "shm/acq_record.h"

struct cq_list {
    uint32_t first, last;
};

void cq_list_append(const struct region *region, struct cq_list *list, uint32_t record);
void cq_list_prepend(const struct region *region, struct cq_list *list, uint32_t record);
void cq_list_remove(const struct region *region, struct cq_list *list, uint32_t record);

/* Returns the record after this one, or 0. */
static inline uint32_t cq_list_next(const struct region *region, uint32_t record)
{
    return record_at(region, record)->cq_links[0];
}

#endif

/* SPDX-License-Identifier: MIT */
/* Lists of completions, linked through the records. */
#include "wait/cq_list.h"

#include "base/invariant.h"

/* Returns whether the neighbors of a record and the ends of the list agree with its links. */
static inline bool cq_list_has(const struct region *region, const struct cq_list *list,
                               uint32_t record)
{
    const struct acq_record *r = record_at(region, record);
    uint32_t next = r->cq_links[0], previous = r->cq_links[1];

    if ((next ? record_at(region, next)->cq_links[1] : list->last) != record)
        return false;
    return (previous ? record_at(region, previous)->cq_links[0] : list->first) == record;
}

void cq_list_append(const struct region *region, struct cq_list *list, uint32_t record)
{
    struct acq_record *r = record_at(region, record);

    WEIR_INVARIANT(record && record != list->last);
    WEIR_INVARIANT(!list->first == !list->last);
    r->cq_links[0] = 0;
    r->cq_links[1] = list->last;
    if (list->last)
        record_at(region, list->last)->cq_links[0] = record;
    else
        list->first = record;
    list->last = record;
}

void cq_list_prepend(const struct region *region, struct cq_list *list, uint32_t record)
{
    struct acq_record *r = record_at(region, record);

    WEIR_INVARIANT(record && record != list->first);
    WEIR_INVARIANT(!list->first == !list->last);
    r->cq_links[0] = list->first;
    r->cq_links[1] = 0;
    if (list->first)
        record_at(region, list->first)->cq_links[1] = record;
    else
        list->last = record;
    list->first = record;
}

void cq_list_remove(const struct region *region, struct cq_list *list, uint32_t record)
{
    const struct acq_record *r = record_at(region, record);

    WEIR_INVARIANT(record);
    WEIR_INVARIANT(cq_list_has(region, list, record));
    if (r->cq_links[0])
        record_at(region, r->cq_links[0])->cq_links[1] = r->cq_links[1];
    else
        list->last = r->cq_links[1];
    if (r->cq_links[1])
        record_at(region, r->cq_links[1])->cq_links[0] = r->cq_links[0];
    else
        list->first = r->cq_links[0];
}

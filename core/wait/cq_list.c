/* SPDX-License-Identifier: MIT */
/* Lists of completions, linked through the records. */
#include "wait/cq_list.h"

void cq_list_append(const struct region *region, struct cq_list *list, uint32_t record)
{
    struct acq_record *r = record_at(region, record);

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

    if (r->cq_links[0])
        record_at(region, r->cq_links[0])->cq_links[1] = r->cq_links[1];
    else
        list->last = r->cq_links[1];
    if (r->cq_links[1])
        record_at(region, r->cq_links[1])->cq_links[0] = r->cq_links[0];
    else
        list->first = r->cq_links[0];
}

/* SPDX-License-Identifier: MIT */
/* Lists of completions. `ready[0]` is the next one, `ready[1]` the one before. */
#include "wait/cq_list.h"

void completions_append(const struct region *region, struct completions *list, uint32_t record)
{
    struct record *r = record_at(region, record);

    r->ready[0] = 0;
    r->ready[1] = list->last;
    if (list->last)
        record_at(region, list->last)->ready[0] = record;
    else
        list->first = record;
    list->last = record;
}

void completions_prepend(const struct region *region, struct completions *list, uint32_t record)
{
    struct record *r = record_at(region, record);

    r->ready[0] = list->first;
    r->ready[1] = 0;
    if (list->first)
        record_at(region, list->first)->ready[1] = record;
    else
        list->last = record;
    list->first = record;
}

void completions_remove(const struct region *region, struct completions *list, uint32_t record)
{
    const struct record *r = record_at(region, record);

    if (r->ready[0])
        record_at(region, r->ready[0])->ready[1] = r->ready[1];
    else
        list->last = r->ready[1];
    if (r->ready[1])
        record_at(region, r->ready[1])->ready[0] = r->ready[0];
    else
        list->first = r->ready[0];
}

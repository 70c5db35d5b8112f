/* SPDX-License-Identifier: MIT */
/* Kept records: see kept.h. */
#include "kept.h"

uint32_t kept_new(struct actor *actor, const weir_set *set, uint32_t record)
{
    (void)actor;
    (void)set;
    return record;
}

void kept_free(struct actor *actor, const weir_set *set, uint32_t kept)
{
    (void)actor;
    (void)set;
    (void)kept;
}

void kept_set_waker(const weir_set *set, uint32_t kept, enum record_wake wake, uint32_t queue,
                    bool strict)
{
    record_set_waker(kept_at(set->w, kept), wake, queue, strict);
}

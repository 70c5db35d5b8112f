/* SPDX-License-Identifier: MIT */
/* Waking: see wake.h. */
#include "wait/notify.h"

#include "peer/participant.h"

void wake_shared(weir_set *set, uint32_t record, uint64_t word)
{
    uint32_t kept = member_kept(set->member, record);

    if (kept)
        keeper_wake(set->w, kept, word);
    else
        member_call(set->member, record);
}

void wake_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns)
{
    uint32_t kept = set->member ? member_kept(set->member, record) : record;

    if (kept)
        keeper_arm(set->w, kept, word, at_ns);
    else
        member_call(set->member, record);
}

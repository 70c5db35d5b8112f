/* SPDX-License-Identifier: MIT */
/* Waking: see wake.h. */
#include "wake.h"

#include "keeper.h"

void wake_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    keeper_wake(set->w, record, word);
}

void wake_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns)
{
    keeper_arm(set->w, record, word, at_ns);
}

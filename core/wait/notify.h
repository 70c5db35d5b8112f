/* SPDX-License-Identifier: MIT */
/* Waking: whoever decided about a record tells who waits on it, here or in another process. */
#ifndef WEIR_CORE_WAIT_NOTIFY_H
#define WEIR_CORE_WAIT_NOTIFY_H

#include "set/set.h"
#include "wait/wait_timer.h"

/* wake_waiter() of a set that processes share. */
void wake_shared(weir_set *set, uint32_t record, uint64_t word);

/* The record's word has become `word`. A wake too many, or too late, does nothing. */
static inline void wake_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    if (set->member)
        wake_shared(set, record, word);
    else
        keeper_wake(set->w, record, word);
}

/* The record, whose word is `word`, heads the line: it is to be looked at at this instant. */
void wake_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns);

#endif

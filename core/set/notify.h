/* SPDX-License-Identifier: MIT */
/* Waking: whoever decided about a record tells who waits on it, here or in another process. */
#ifndef WEIR_CORE_SET_NOTIFY_H
#define WEIR_CORE_SET_NOTIFY_H

#include "set/hooks.h"
#include "set/set.h"

/* notify_waiter() of a set that processes share. */
void notify_shared_waiter(weir_set *set, uint32_t record, uint64_t word);

/* The record's word has become `word`. A wake too many, or too late, does nothing. */
static inline void notify_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    if (set->participant)
        notify_shared_waiter(set, record, word);
    else
        timer_notify(set->w, record, word);
}

/* The record, whose word is `word`, heads the line: it is to be looked at at this instant. */
void notify_recheck_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns);

#endif

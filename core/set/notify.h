/* SPDX-License-Identifier: MIT */
/* Notification: the thread that decided a record notifies its wait target, here or in another
 * process. */
#ifndef WEIR_CORE_SET_NOTIFY_H
#define WEIR_CORE_SET_NOTIFY_H

#include "set/hooks.h"
#include "set/set.h"

/* Implements notify_waiter() for a shared set. */
void notify_shared_waiter(weir_set *set, uint32_t record, uint64_t word);

/* Notifies the waiter that the record's word has become `word`. A spurious or late notification is
 * harmless. */
static inline void notify_waiter(weir_set *set, uint32_t record, uint64_t word)
{
    if (set_is_shared(set))
        notify_shared_waiter(set, record, word);
    else
        timer_notify(set->w, record, word);
}

/* Schedules a recheck at `at_ns` of a record that is the head of its wait queue and has the word
 * `word`. */
void notify_recheck_at(weir_set *set, uint32_t record, uint64_t word, uint64_t at_ns);

#endif

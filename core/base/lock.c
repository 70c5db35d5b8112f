/* SPDX-License-Identifier: MIT */
/* Locks: what a thread does that does not get one at once, and what ends its wait. */
#include "base/lock.h"
#include "os/os.h"
#include <weir/weir.h>

/* The word stays LOCK_AWAITED while this thread has the lock: others may sleep. */
void lock_wait(struct lock *lock)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&lock->word;

    while (atomic_exchange_explicit(&lock->word, LOCK_AWAITED, memory_order_acquire) != LOCK_FREE)
        os_futex_wait(futex, false, LOCK_AWAITED, WEIR_FOREVER);
}

void lock_wake(const struct lock *lock)
{
    os_futex_wake((const uint32_t *)(uintptr_t)&lock->word, false);
}

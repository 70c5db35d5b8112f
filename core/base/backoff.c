/* SPDX-License-Identifier: MIT */
/* Waits between two attempts at a compare-and-swap that was lost. */
#include "base/backoff.h"
#include "base/invariant.h"

#define BACKOFF_MAX 6u

void spin_backoff(unsigned *turn)
{
    WEIR_INVARIANT(*turn < 32);
    for (unsigned i = 0; i < 1u << *turn; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    if (*turn < BACKOFF_MAX)
        ++*turn;
}

/* SPDX-License-Identifier: MIT */
/* Exponential back-off of a thread that lost a compare-and-swap. */
#ifndef WEIR_CORE_BASE_BACKOFF_H
#define WEIR_CORE_BASE_BACKOFF_H

#define BACKOFF_MAX 6u

/* Waits 2^turn pauses of the processor, then adds one to `*turn`, up to BACKOFF_MAX. */
static inline void spin_backoff(unsigned *turn)
{
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

#endif

/* SPDX-License-Identifier: MIT */
/* Exponential back-off of a thread that lost a compare-and-swap. */
#ifndef WEIR_CORE_BASE_BACKOFF_H
#define WEIR_CORE_BASE_BACKOFF_H

#define BACKOFF_MAX 6u

/* A pause of the processor: it leaves more of the core to the other thread on it, and is some tens
 * of nanoseconds long. aarch64's `yield` does nothing on most cores; `isb` waits for the pipeline.
 */
static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Waits 2^turn pauses of the processor, then adds one to `*turn`, up to BACKOFF_MAX. */
static inline void spin_backoff(unsigned *turn)
{
    for (unsigned i = 0; i < 1u << *turn; i++)
        spin_pause();
    if (*turn < BACKOFF_MAX)
        ++*turn;
}

#endif

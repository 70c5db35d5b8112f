/* SPDX-License-Identifier: MIT */
/* What C17 lacks: forced inlining and its opposite, and prefetching. */
#ifndef WEIR_CORE_BASE_COMPILER_H
#define WEIR_CORE_BASE_COMPILER_H

/* Function that is inlined into each caller and specialised for the constants it passes. */
#define WEIR_ALWAYS_INLINE static inline __attribute__((always_inline))

/* Function that stays a call, so that a rare path takes no registers from the common one. */
#define WEIR_NOINLINE static __attribute__((noinline))

/* Prefetching: memory that is about to be needed is loaded early. The address need not be valid. */

#define PREFETCH_LINE_SIZE 64u /* cache line, bytes, of most processors */

static inline void prefetch_read(const void *at)
{
    __builtin_prefetch(at);
}

/* Prefetches for writing: takes the cache line from other cores. Compilers emit `prefetchw` only if
 * all targeted processors support it. */
static inline void prefetch_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif

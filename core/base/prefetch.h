/* SPDX-License-Identifier: MIT */
/* Prefetching of memory. Any address is allowed: a prefetch does not fault. */
#ifndef WEIR_CORE_BASE_PREFETCH_H
#define WEIR_CORE_BASE_PREFETCH_H

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

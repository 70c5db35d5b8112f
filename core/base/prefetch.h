/* SPDX-License-Identifier: MIT */
/* Memory that is about to be needed is asked for early. Any address will do: it is not touched. */
#ifndef WEIR_CORE_BASE_PREFETCH_H
#define WEIR_CORE_BASE_PREFETCH_H

#define PREFETCH_LINE_SIZE 64u /* bytes that come together, on most processors */

static inline void prefetch_read(const void *at)
{
    __builtin_prefetch(at);
}

/* The same of what is to be written, as others do who then have to give it up. Compilers ask for that
 * only where all processors that they compile for know how. */
static inline void prefetch_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

#endif

/* SPDX-License-Identifier: MIT */
/* Detection of the processor's 16-byte atomic operations. */
#include "base/atomic128.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_USCAT
#define HWCAP_USCAT (1ul << 25)
#endif
#endif

_Atomic bool atomic128_load_is_atomic;

#if defined(__x86_64__)
/* Returns whether the processor's vendor guarantees that aligned 16-byte loads are atomic. */
static bool atomic128_vendor_is_known(void)
{
    unsigned a, b, c, d;

    /* The last four letters of the name tell all vendors apart. */
    return __get_cpuid(0, &a, &b, &c, &d) && (c == signature_INTEL_ecx || c == signature_AMD_ecx);
}
#endif

bool atomic128_detect(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_CMPXCHG16B))
        return false;
    if ((c & bit_AVX) && atomic128_vendor_is_known())
        atomic_store_explicit(&atomic128_load_is_atomic, true, memory_order_relaxed);
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_USCAT)
        atomic_store_explicit(&atomic128_load_is_atomic, true, memory_order_relaxed);
#endif
    return true;
}

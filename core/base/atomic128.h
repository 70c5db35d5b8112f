/* SPDX-License-Identifier: MIT */
/*
 * Double words: two words of shared memory that change together, by one compare-and-swap of 16
 * bytes. Either half can also be loaded alone. They are free of addresses and locks, so they work
 * between processes, whoever is stopped or killed wherever.
 *
 * x86-64 has `lock cmpxchg16b` (all but the very first processors; x86-64-v2 requires it) and,
 * where there is AVX, aligned SSE loads of 16 bytes that are atomic (Intel SDM 3A 9.1.1, AMD APM 2
 * 7.3.2 say so of their processors). aarch64 has exclusive pairs; `ldp` is atomic with LSE2 alone
 * (Arm ARM B2.2.1). What C17 offers, an _Atomic struct of 16 bytes, may be a lock of libatomic's,
 * which is another one in each process; hence assembler. ThreadSanitizer does not see into that and
 * would find races where there are none, so under it, and nowhere else, its own runtime does the
 * same: gcc's builtin becomes a call of that, clang's would become one of libatomic.
 */
#ifndef WEIR_CORE_BASE_ATOMIC128_H
#define WEIR_CORE_BASE_ATOMIC128_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct atomic128 {
    _Alignas(16) _Atomic uint64_t low;
    _Atomic uint64_t high;
};

_Static_assert(sizeof(struct atomic128) == 16, "one compare-and-swap changes both");

struct atomic128_value {
    uint64_t low, high;
};

#if defined(__SANITIZE_THREAD__)
#define ATOMIC128_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ATOMIC128_TSAN 1
#endif
#endif
#ifndef ATOMIC128_TSAN
#define ATOMIC128_TSAN 0
#endif

#if ATOMIC128_TSAN
__extension__ typedef __int128 atomic128_int;
#ifdef __clang__
int __tsan_atomic128_compare_exchange_strong(volatile atomic128_int *at, atomic128_int *expected,
                                             atomic128_int desired, int order,
                                             int order_of_failure);
#endif
#endif

/* How this processor does it. To be asked for once, by whoever makes or opens a table: false if it
 * cannot. Until then loads are slow, but right. */
bool atomic128_detect(void);

/* Whether plain aligned loads of 16 bytes are known to be atomic here. */
extern _Atomic bool atomic128_load_is_atomic;

/*
 * If the double word is `*expected`, it becomes `desired`. Otherwise false, and `*expected` is what
 * it was instead, as of one instant. What this thread wrote before is seen by whoever sees
 * `desired`, and what others wrote before what is found here is seen afterwards.
 */
static inline bool atomic128_cas(struct atomic128 *at, struct atomic128_value *expected,
                                 struct atomic128_value desired)
{
#if ATOMIC128_TSAN
    atomic128_int before, after;
    volatile atomic128_int *whole = (volatile atomic128_int *)(void *)at;
    bool done;

    memcpy(&before, expected, sizeof(before));
    memcpy(&after, &desired, sizeof(after));
#ifdef __clang__
    done = __tsan_atomic128_compare_exchange_strong(whole, &before, after, __ATOMIC_SEQ_CST,
                                                    __ATOMIC_SEQ_CST);
#else
    done = __atomic_compare_exchange_n(whole, &before, after, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
#endif

    memcpy(expected, &before, sizeof(before));
    return done;
#elif defined(__x86_64__)
    bool swapped;

    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(swapped), "+m"(*at), "+a"(expected->low), "+d"(expected->high)
                     : "b"(desired.low), "c"(desired.high)
                     : "memory");
    return swapped;
#elif defined(__aarch64__)
    uint64_t low, high;
    uint32_t failed;

    /* What is found is stored again, for only then were both halves loaded at one instant. */
    __asm__ volatile("1: ldaxp %0, %1, %3\n"
                     "   cmp %0, %4\n"
                     "   ccmp %1, %5, #0, eq\n"
                     "   b.ne 2f\n"
                     "   stlxp %w2, %6, %7, %3\n"
                     "   cbnz %w2, 1b\n"
                     "   b 3f\n"
                     "2: stlxp %w2, %0, %1, %3\n"
                     "   cbnz %w2, 1b\n"
                     "3:"
                     : "=&r"(low), "=&r"(high), "=&r"(failed), "+Q"(*at)
                     : "r"(expected->low), "r"(expected->high), "r"(desired.low), "r"(desired.high)
                     : "cc", "memory");
    if (low == expected->low && high == expected->high)
        return true;
    *expected = (struct atomic128_value){low, high};
    return false;
#else
#error "no compare-and-swap of 16 bytes is known for this processor"
#endif
}

/* Both halves as of one instant, by a compare-and-swap that changes nothing: needs memory that can
 * be written. */
static inline struct atomic128_value atomic128_load_by_cas(const struct atomic128 *at)
{
    struct atomic128_value value = {0, 0};

    atomic128_cas((struct atomic128 *)(uintptr_t)at, &value, value);
    return value;
}

/* Both halves as of one instant. What others wrote before is seen afterwards. */
static inline struct atomic128_value atomic128_load(const struct atomic128 *at)
{
#if ATOMIC128_TSAN
    return atomic128_load_by_cas(at);
#elif defined(__x86_64__)
    struct atomic128_value value;

    if (!atomic_load_explicit(&atomic128_load_is_atomic, memory_order_relaxed))
        return atomic128_load_by_cas(at);
    __asm__ volatile("movdqa %2, %%xmm0\n\t"
                     "movq %%xmm0, %0\n\t"
                     "punpckhqdq %%xmm0, %%xmm0\n\t"
                     "movq %%xmm0, %1"
                     : "=&r"(value.low), "=r"(value.high)
                     : "m"(*at)
                     : "xmm0", "memory");
    return value;
#else
    struct atomic128_value value;

    if (!atomic_load_explicit(&atomic128_load_is_atomic, memory_order_relaxed))
        return atomic128_load_by_cas(at);
    __asm__ volatile("ldp %0, %1, %2\n\t"
                     "dmb ishld"
                     : "=&r"(value.low), "=&r"(value.high)
                     : "Q"(*at)
                     : "memory");
    return value;
#endif
}

#endif

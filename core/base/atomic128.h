/* SPDX-License-Identifier: MIT */
/*
 * 128-bit atomics: two words of shared memory that change together, by a 16-byte compare-and-swap.
 * Either half can also be loaded alone. They contain no addresses and no locks, so they work
 * between processes that may be stopped or killed at any instruction.
 *
 * - x86-64 has `lock cmpxchg16b` (except on the very first processors; x86-64-v2 requires it). With
 *   AVX, aligned 16-byte SSE loads are atomic (Intel SDM 3A 9.1.1, AMD APM 2 7.3.2).
 * - aarch64 has exclusive pairs. `ldp` is atomic with LSE2 only (Arm ARM B2.2.1).
 * - An _Atomic struct of 16 bytes, as C17 offers, may use a lock of libatomic, which is private to
 *   each process. Hence the assembler.
 * - ThreadSanitizer does not understand the assembler and would report false races. Under it its
 *   runtime is called instead: gcc's builtin does so, clang's would call libatomic.
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

/* Returns whether the processor has a 16-byte compare-and-swap, and enables fast loads if they are
 * atomic. Called by the code that makes or opens a table. Before, loads are slow but correct. */
bool atomic128_detect(void);

/* Whether plain aligned 16-byte loads are known to be atomic. Relaxed accesses suffice: a stale
 * false only makes a load slower. */
extern _Atomic bool atomic128_load_is_atomic;

/*
 * Changes the value from `*expected` to `desired` and returns true. If the value differs, returns
 * false and stores it in `*expected`, both halves as of one instant. Success has release order;
 * success and failure have acquire order.
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

    /* A value that differs is stored again: only a successful store proves that both halves were
     * loaded at one instant. */
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

/* Returns both halves as of one instant, by a compare-and-swap that changes nothing. The memory
 * must be writable. */
static inline struct atomic128_value atomic128_load_by_cas(const struct atomic128 *at)
{
    struct atomic128_value value = {0, 0};

    atomic128_cas((struct atomic128 *)(uintptr_t)at, &value, value);
    return value;
}

/* Returns both halves as of one instant. Acquire order. */
static inline struct atomic128_value atomic128_load(const struct atomic128 *at)
{
    struct atomic128_value value;

    if (ATOMIC128_TSAN || !atomic_load_explicit(&atomic128_load_is_atomic, memory_order_relaxed))
        return atomic128_load_by_cas(at);
#if defined(__x86_64__)
    __asm__ volatile("movdqa %2, %%xmm0\n\t"
                     "movq %%xmm0, %0\n\t"
                     "punpckhqdq %%xmm0, %%xmm0\n\t"
                     "movq %%xmm0, %1"
                     : "=&r"(value.low), "=r"(value.high)
                     : "m"(*at)
                     : "xmm0", "memory");
#else
    __asm__ volatile("ldp %0, %1, %2\n\t"
                     "dmb ishld"
                     : "=&r"(value.low), "=&r"(value.high)
                     : "Q"(*at)
                     : "memory");
#endif
    return value;
}

/* Orders the loads and the successful atomic128_cas() before it, of this thread, before all that
 * follows, as a sequentially consistent fence does. On x86-64 a locked instruction does so, and
 * loads stay in order. */
static inline void atomic128_fence(void)
{
#if defined(__x86_64__) && !ATOMIC128_TSAN
    atomic_signal_fence(memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif

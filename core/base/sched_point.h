/* SPDX-License-Identifier: MIT */
/*
 * Accesses to shared memory, each of which ends with a schedule point: a place where the crash
 * tests stop or kill a process. They compile the core with WEIR_STEPS; elsewhere a schedule point
 * is empty. SCHED_POINT() alone marks one after another kind of access, such as a system call.
 *
 * A function's suffix is its memory order. All are inlined.
 */
#ifndef WEIR_CORE_BASE_SCHED_POINT_H
#define WEIR_CORE_BASE_SCHED_POINT_H

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef WEIR_STEPS
void sched_point(void);
#define SCHED_POINT() sched_point()
#else
#define SCHED_POINT() ((void)0)
#endif

/* A load is a schedule point where the word is one of several that are read together, or that a
 * compare-and-swap validates. */
WEIR_ALWAYS_INLINE uint64_t shm_load_relaxed(const _Atomic uint64_t *word)
{
    uint64_t value = atomic_load_explicit(word, memory_order_relaxed);

    SCHED_POINT();
    return value;
}

WEIR_ALWAYS_INLINE uint64_t shm_load_acquire(const _Atomic uint64_t *word)
{
    uint64_t value = atomic_load_explicit(word, memory_order_acquire);

    SCHED_POINT();
    return value;
}

WEIR_ALWAYS_INLINE uint64_t shm_load_seq_cst(const _Atomic uint64_t *word)
{
    uint64_t value = atomic_load_explicit(word, memory_order_seq_cst);

    SCHED_POINT();
    return value;
}

WEIR_ALWAYS_INLINE void shm_store_relaxed(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    SCHED_POINT();
}

WEIR_ALWAYS_INLINE void shm_store_release(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    SCHED_POINT();
}

/* Compare-and-swap: stores `desired` and returns true if the word is `expected`. */
WEIR_ALWAYS_INLINE bool shm_cas_seq_cst(_Atomic uint64_t *word, uint64_t expected, uint64_t desired)
{
    bool swapped = atomic_compare_exchange_strong_explicit(
        word, &expected, desired, memory_order_seq_cst, memory_order_seq_cst);

    SCHED_POINT();
    return swapped;
}

WEIR_ALWAYS_INLINE bool shm_cas_acq_rel(_Atomic uint64_t *word, uint64_t expected, uint64_t desired)
{
    bool swapped = atomic_compare_exchange_strong_explicit(
        word, &expected, desired, memory_order_acq_rel, memory_order_relaxed);

    SCHED_POINT();
    return swapped;
}

/* Raises the word to `value`, unless it is as large already. Returns its former value, or the
 * larger one. */
WEIR_ALWAYS_INLINE uint64_t shm_raise_seq_cst(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_seq_cst);

    while (seen < value && !atomic_compare_exchange_weak_explicit(
                               word, &seen, value, memory_order_seq_cst, memory_order_seq_cst))
        ;
    SCHED_POINT();
    return seen;
}

#endif

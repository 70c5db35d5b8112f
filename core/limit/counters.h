/* SPDX-License-Identifier: MIT */
/*
 * Counters of one set, one copy for each thread context. Only that thread writes, so counting is a
 * relaxed load and store. A reader adds up all copies. They are statistics; nothing is ordered by
 * them.
 */
#ifndef WEIR_CORE_LIMIT_COUNTERS_H
#define WEIR_CORE_LIMIT_COUNTERS_H

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/set.h>

struct limit_counters {
    _Atomic uint64_t granted, refused, would_refuse, refunded, overused;
    _Atomic uint64_t leased; /* no counter: units leased and not granted yet (lease.h) */
};

/* How long released acquisitions were held; in a segment, and in memory of sets that count it. */
struct hold_counters {
    _Atomic uint64_t ns_sum, ns_max;
    _Atomic uint64_t histogram[WEIR_WAIT_BUCKETS];
};

/* What became of the requests of a class, of sets that have classes. */
struct class_counters {
    _Atomic uint64_t granted, granted_waited, refused, timed_out, wait_ns_sum;
};

struct counters {
    /* Counters that move without waiting come first, together. What was granted was either taken,
     * or acquired to be released. */
    _Atomic uint64_t taken, acquired, released, refused_busy, refunded, overused, missing_update;
    _Atomic uint64_t canceled, granted_waited, refused_max_wait, refused_full, timed_out;
    _Atomic uint64_t refused_impossible, refused_unknown, refused_deadlock, overheld, revoked;
    _Atomic uint64_t wait_ns_sum, wait_ns_max;
    _Atomic uint64_t wait_histogram[WEIR_WAIT_BUCKETS];
    struct limit_counters limits[]; /* struct hold_counters follows them, if there is one, and then
                                       struct class_counters for each class */
};

/* Returns the size of the counters of a set with `limits_n` limits and `classes_n` classes, bytes.
 * With classes there are counters of holds, too. */
static inline size_t counters_size(uint32_t limits_n, bool has_holds, uint32_t classes_n)
{
    return sizeof(struct counters) + limits_n * sizeof(struct limit_counters) +
           (has_holds || classes_n ? sizeof(struct hold_counters) : 0) +
           classes_n * sizeof(struct class_counters);
}

/* Returns how long acquisitions were held, of counters that have it. */
static inline struct hold_counters *counters_holds(struct counters *counters, uint32_t limits_n)
{
    return (struct hold_counters *)(void *)(counters->limits + limits_n);
}

/* Returns what is counted of each class, of counters that have it. */
static inline struct class_counters *counters_classes(struct counters *counters, uint32_t limits_n)
{
    return (struct class_counters *)(void *)(counters_holds(counters, limits_n) + 1);
}

WEIR_ALWAYS_INLINE void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, value + n, memory_order_relaxed);
}

/* Counts a grant of these amounts; `taken`: they are never released. Written out where it is used:
 * a call takes longer than the additions. */
WEIR_ALWAYS_INLINE void counters_add_grant(struct counters *counters, const uint64_t *amounts,
                                           uint32_t limits_n, bool taken)
{
    counter_add(taken ? &counters->taken : &counters->acquired, 1);
    for (uint32_t i = 0; i < limits_n; i++)
        counter_add(&counters->limits[i].granted, amounts[i]);
}

/* Counts a wait of `wait_ns` that ended with a grant. */
void counters_add_wait(struct counters *counters, uint64_t wait_ns);
/* Counts an acquisition that was released after `hold_ns`. */
void counters_add_hold(struct hold_counters *holds, uint64_t hold_ns);

/* Returns how many waits the thread of these counters has ended, but for cancellations. Any thread.
 */
static inline uint64_t counters_decided(const struct counters *counters)
{
    return atomic_load_explicit(&counters->granted_waited, memory_order_relaxed) +
           atomic_load_explicit(&counters->timed_out, memory_order_relaxed) +
           atomic_load_explicit(&counters->refused_max_wait, memory_order_relaxed);
}

/* Adds `counters` to the totals, and those of the first `limits_n` limits. Any thread. */
void counters_sum(const struct counters *counters, struct weir_set_stats *totals,
                  struct weir_limit_stats *limits, uint32_t limits_n);
void counters_sum_holds(const struct hold_counters *holds, struct weir_set_stats *totals);
void counters_sum_classes(const struct class_counters *classes, struct weir_class_stats *totals,
                          uint32_t classes_n);

#endif

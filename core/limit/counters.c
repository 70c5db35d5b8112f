/* SPDX-License-Identifier: MIT */
/* Adds waits and holds to the counters of one thread, and sums the counters of all. */
#include "limit/counters.h"

static uint64_t counter_load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns the number of bits of the time in whole microseconds, at most the last bucket. */
static unsigned counters_bucket(uint64_t ns)
{
    uint64_t us = ns / 1000;
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bucket < WEIR_WAIT_BUCKETS ? bucket : WEIR_WAIT_BUCKETS - 1;
}

/* Adds a time to its bucket, and raises the sum and the maximum. */
static void counters_add_time(_Atomic uint64_t *histogram, _Atomic uint64_t *sum,
                              _Atomic uint64_t *max, uint64_t ns)
{
    counter_add(sum, ns);
    counter_add(&histogram[counters_bucket(ns)], 1);
    if (ns > counter_load(max))
        atomic_store_explicit(max, ns, memory_order_relaxed);
}

void counters_add_wait(struct counters *counters, uint64_t wait_ns)
{
    counter_add(&counters->granted_waited, 1);
    counters_add_time(counters->wait_histogram, &counters->wait_ns_sum, &counters->wait_ns_max,
                      wait_ns);
}

void counters_add_hold(struct hold_counters *holds, uint64_t hold_ns)
{
    counters_add_time(holds->histogram, &holds->ns_sum, &holds->ns_max, hold_ns);
}

void counters_sum_holds(const struct hold_counters *holds, struct weir_set_stats *totals)
{
    totals->hold_ns_sum += counter_load(&holds->ns_sum);
    if (counter_load(&holds->ns_max) > totals->hold_ns_max)
        totals->hold_ns_max = counter_load(&holds->ns_max);
    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        totals->hold_histogram[i] += counter_load(&holds->histogram[i]);
}

void counters_sum_classes(const struct class_counters *classes, struct weir_class_stats *totals,
                          uint32_t classes_n)
{
    for (uint32_t c = 0; c < classes_n; c++) {
        totals[c].granted += counter_load(&classes[c].granted);
        totals[c].granted_waited += counter_load(&classes[c].granted_waited);
        totals[c].refused += counter_load(&classes[c].refused);
        totals[c].timed_out += counter_load(&classes[c].timed_out);
        totals[c].wait_ns_sum += counter_load(&classes[c].wait_ns_sum);
    }
}

void counters_sum(const struct counters *counters, struct weir_set_stats *totals,
                  struct weir_limit_stats *limits, uint32_t limits_n)
{
    uint64_t taken = counter_load(&counters->taken);

    totals->taken += taken;
    totals->granted += taken + counter_load(&counters->acquired);
    totals->granted_waited += counter_load(&counters->granted_waited);
    totals->refused_busy += counter_load(&counters->refused_busy);
    totals->refused_max_wait += counter_load(&counters->refused_max_wait);
    totals->refused_full += counter_load(&counters->refused_full);
    totals->refused_impossible += counter_load(&counters->refused_impossible);
    totals->refused_unknown += counter_load(&counters->refused_unknown);
    totals->refused_deadlock += counter_load(&counters->refused_deadlock);
    totals->timed_out += counter_load(&counters->timed_out);
    totals->canceled += counter_load(&counters->canceled);
    totals->released += counter_load(&counters->released);
    totals->refunded += counter_load(&counters->refunded);
    totals->overused += counter_load(&counters->overused);
    totals->missing_update += counter_load(&counters->missing_update);
    totals->overheld += counter_load(&counters->overheld);
    totals->revoked += counter_load(&counters->revoked);
    totals->wait_ns_sum += counter_load(&counters->wait_ns_sum);
    if (counter_load(&counters->wait_ns_max) > totals->wait_ns_max)
        totals->wait_ns_max = counter_load(&counters->wait_ns_max);
    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        totals->wait_histogram[i] += counter_load(&counters->wait_histogram[i]);
    for (uint32_t i = 0; i < limits_n; i++) {
        limits[i].granted += counter_load(&counters->limits[i].granted);
        limits[i].refused += counter_load(&counters->limits[i].refused);
        limits[i].would_refuse += counter_load(&counters->limits[i].would_refuse);
        limits[i].refunded += counter_load(&counters->limits[i].refunded);
        limits[i].overused += counter_load(&counters->limits[i].overused);
        limits[i].leased += counter_load(&counters->limits[i].leased);
    }
}

/* SPDX-License-Identifier: MIT */
/* Counting, and adding up. */
#include "limit/counters.h"

#include "base/mutant.h"

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The number of bits of whole microseconds. */
static unsigned bucket_of(uint64_t wait_ns)
{
    uint64_t us = wait_ns / 1000 >> MUTANT(34);
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bucket < WEIR_WAIT_BUCKETS ? bucket : WEIR_WAIT_BUCKETS - 1;
}

void counters_waited(struct counters *counters, uint64_t wait_ns)
{
    count(&counters->granted_waited, 1);
    count(&counters->wait_ns_sum, wait_ns);
    count(&counters->wait_histogram[bucket_of(wait_ns)], 1);
    if (wait_ns > get(&counters->wait_ns_max))
        atomic_store_explicit(&counters->wait_ns_max, wait_ns, memory_order_relaxed);
}

void counters_add(const struct counters *counters, struct weir_set_stats *totals,
                  struct weir_limit_stats *limits, uint32_t limits_n)
{
    totals->granted += get(&counters->granted);
    totals->taken += get(&counters->taken);
    totals->granted_waited += get(&counters->granted_waited);
    totals->refused_busy += get(&counters->refused_busy);
    totals->refused_max_wait += get(&counters->refused_max_wait);
    totals->refused_full += get(&counters->refused_full);
    totals->refused_impossible += get(&counters->refused_impossible);
    totals->refused_unknown += get(&counters->refused_unknown);
    totals->timed_out += get(&counters->timed_out);
    totals->canceled += get(&counters->canceled);
    totals->released += get(&counters->released);
    totals->refunded += get(&counters->refunded);
    totals->overused += get(&counters->overused);
    totals->missing_update += get(&counters->missing_update);
    totals->wait_ns_sum += get(&counters->wait_ns_sum);
    if (get(&counters->wait_ns_max) > totals->wait_ns_max)
        totals->wait_ns_max = get(&counters->wait_ns_max);
    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        totals->wait_histogram[i] += get(&counters->wait_histogram[i]);
    for (uint32_t i = 0; i < limits_n; i++) {
        limits[i].granted += get(&counters->limits[i].granted);
        limits[i].refused += get(&counters->limits[i].refused);
        limits[i].refunded += get(&counters->limits[i].refunded);
        limits[i].overused += get(&counters->limits[i].overused);
        limits[i].leased += get(&counters->limits[i].leased);
    }
}

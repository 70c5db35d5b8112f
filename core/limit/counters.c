/* SPDX-License-Identifier: MIT */
/* Adds waits to the counters of one thread, and sums the counters of all. */
#include "limit/counters.h"

static uint64_t counter_load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns the number of bits of the wait in whole microseconds, at most the last bucket. */
static unsigned counters_wait_bucket(uint64_t wait_ns)
{
    uint64_t us = wait_ns / 1000;
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bucket < WEIR_WAIT_BUCKETS ? bucket : WEIR_WAIT_BUCKETS - 1;
}

void counters_add_wait(struct counters *counters, uint64_t wait_ns)
{
    counter_add(&counters->granted_waited, 1);
    counter_add(&counters->wait_ns_sum, wait_ns);
    counter_add(&counters->wait_histogram[counters_wait_bucket(wait_ns)], 1);
    if (wait_ns > counter_load(&counters->wait_ns_max))
        atomic_store_explicit(&counters->wait_ns_max, wait_ns, memory_order_relaxed);
}

void counters_sum(const struct counters *counters, struct weir_set_stats *totals,
                  struct weir_limit_stats *limits, uint32_t limits_n)
{
    totals->granted += counter_load(&counters->granted);
    totals->taken += counter_load(&counters->taken);
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
    totals->wait_ns_sum += counter_load(&counters->wait_ns_sum);
    if (counter_load(&counters->wait_ns_max) > totals->wait_ns_max)
        totals->wait_ns_max = counter_load(&counters->wait_ns_max);
    for (unsigned i = 0; i < WEIR_WAIT_BUCKETS; i++)
        totals->wait_histogram[i] += counter_load(&counters->wait_histogram[i]);
    for (uint32_t i = 0; i < limits_n; i++) {
        limits[i].granted += counter_load(&counters->limits[i].granted);
        limits[i].refused += counter_load(&counters->limits[i].refused);
        limits[i].refunded += counter_load(&counters->limits[i].refunded);
        limits[i].overused += counter_load(&counters->limits[i].overused);
        limits[i].leased += counter_load(&counters->limits[i].leased);
    }
}

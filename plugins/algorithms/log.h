/* SPDX-License-Identifier: MIT */
/*
 * The log of a sliding window: a ring of entries in the order of their instants, at most one per
 * instant. Each entry holds the running total up to it, so that sums are differences and searches
 * bisect. The caller knows the number of slots, and passes it to every function that may read one.
 */
#ifndef WEIR_PLUGINS_LOG_H
#define WEIR_PLUGINS_LOG_H

#include "exact.h"

struct grant_entry {
    uint64_t instant_ns;
    uint64_t total_through; /* total up to and including this entry, modulo 2^64 */
};

struct grant_log {
    uint64_t last;         /* latest instant seen */
    uint64_t total_before; /* total before the first entry, modulo 2^64 */
    uint64_t head, count;
    struct grant_entry entries[];
};

/* Returns the slot of the i-th entry, 0 ≤ i ≤ slots. The count-th entry is the next one to fill. */
static inline uint64_t grant_log_slot(const struct grant_log *log, uint64_t slots, uint64_t i)
{
    uint64_t at = log->head + i;
    return at < slots ? at : at - slots;
}

static inline const struct grant_entry *grant_log_at(const struct grant_log *log, uint64_t slots,
                                                     uint64_t i)
{
    return &log->entries[grant_log_slot(log, slots, i)];
}

/* Returns the total before the i-th entry. */
static inline uint64_t grant_log_total_before(const struct grant_log *log, uint64_t slots,
                                              uint64_t i)
{
    return i == 0 ? log->total_before : grant_log_at(log, slots, i - 1)->total_through;
}

/* Returns the units in the i-th entry. */
static inline uint64_t grant_log_units(const struct grant_log *log, uint64_t slots, uint64_t i)
{
    return grant_log_at(log, slots, i)->total_through - grant_log_total_before(log, slots, i);
}

/* Returns the units in the entries from `first` on. */
static inline uint64_t grant_log_sum(const struct grant_log *log, uint64_t slots, uint64_t first)
{
    return grant_log_total_before(log, slots, log->count) -
           grant_log_total_before(log, slots, first);
}

/* Returns the first entry later than `instant`, or `count` if there is none. */
static inline uint64_t grant_log_first_after(const struct grant_log *log, uint64_t slots,
                                             uint64_t instant)
{
    uint64_t low = 0, high = log->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (grant_log_at(log, slots, middle)->instant_ns <= instant)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the first entry from `low` on by which `units` or more were entered since `low`. There
 * must be that many. Totals are compared by their distance, which is below 2^63. */
static inline uint64_t grant_log_first_reaching(const struct grant_log *log, uint64_t slots,
                                                uint64_t low, uint64_t units)
{
    uint64_t through = grant_log_total_before(log, slots, low) + units, high = log->count - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (grant_log_at(log, slots, middle)->total_through - through <= AMOUNT_MAX)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static inline void grant_log_drop(struct grant_log *log, uint64_t slots, uint64_t n)
{
    log->total_before = grant_log_total_before(log, slots, n);
    log->head = grant_log_slot(log, slots, n);
    log->count -= n;
}

/* Appends an entry. A full ring merges its two oldest entries, which then count until the later one
 * expires. */
static inline void grant_log_append(struct grant_log *log, uint64_t slots, uint64_t instant,
                                    uint64_t amount)
{
    uint64_t through = grant_log_total_before(log, slots, log->count) + amount;
    if (log->count != 0 && grant_log_at(log, slots, log->count - 1)->instant_ns >= instant) {
        log->entries[grant_log_slot(log, slots, log->count - 1)].total_through = through;
        return;
    }
    if (log->count == slots) {
        log->head = grant_log_slot(log, slots, 1);
        log->count--;
    }
    log->entries[grant_log_slot(log, slots, log->count)] = (struct grant_entry){instant, through};
    log->count++;
}

/* Takes up to `amount` out of the i-th entry, and removes an entry that becomes empty. */
static inline void grant_log_shrink(struct grant_log *log, uint64_t slots, uint64_t i,
                                    uint64_t amount)
{
    uint64_t held = grant_log_units(log, slots, i), gone = amount < held ? 0 : 1;
    uint64_t back = amount < held ? amount : held;
    log->count -= gone;
    for (; i < log->count; i++) {
        struct grant_entry next = *grant_log_at(log, slots, i + gone);
        next.total_through -= back;
        log->entries[grant_log_slot(log, slots, i)] = next;
    }
}

/*
 * Checks whether the bytes can be a log with no entry later than `latest`. The check takes constant
 * time: it covers the position of the entries, and both ends. Errors in between produce wrong sums.
 * But no function of this file then leaves the log or runs longer: all stay between `head` and
 * `count`.
 */
static inline int grant_log_check(const struct grant_log *log, uint64_t slots, uint64_t latest)
{
    if (log->head >= slots || log->count > slots)
        return -1;
    if (log->count == 0)
        return 0;
    uint64_t oldest = grant_log_at(log, slots, 0)->instant_ns;
    uint64_t newest = grant_log_at(log, slots, log->count - 1)->instant_ns;
    uint64_t sum = grant_log_sum(log, slots, 0);
    if (newest > latest || newest < oldest || newest - oldest < log->count - 1)
        return -1;
    return sum >= log->count && sum <= AMOUNT_MAX ? 0 : -1;
}

#endif

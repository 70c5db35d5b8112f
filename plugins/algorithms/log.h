/* SPDX-License-Identifier: MIT */
/*
 * The log of a sliding window: a ring of entries in the order of their instants, never two of the
 * same. An entry carries the running total up to it, so that sums are differences and searches
 * halve. The number of places is the caller's; every function that may look at one is given it.
 */
#ifndef WEIR_PLUGINS_LOG_H
#define WEIR_PLUGINS_LOG_H

#include "exact.h"

struct grant_entry {
    uint64_t instant_ns;
    uint64_t total_through; /* total entered up to and including it, modulo 2^64 */
};

struct grant_log {
    uint64_t last;         /* the last instant seen */
    uint64_t total_before; /* total entered before the first entry, modulo 2^64 */
    uint64_t head, count;
    struct grant_entry entries[];
};

/* The place of the i-th entry, 0 ≤ i ≤ slots; that of the count-th is the one to be filled next. */
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

/* Total entered before the i-th entry. */
static inline uint64_t grant_log_total_before(const struct grant_log *log, uint64_t slots,
                                              uint64_t i)
{
    return i == 0 ? log->total_before : grant_log_at(log, slots, i - 1)->total_through;
}

/* Units in the i-th entry. */
static inline uint64_t grant_log_units(const struct grant_log *log, uint64_t slots, uint64_t i)
{
    return grant_log_at(log, slots, i)->total_through - grant_log_total_before(log, slots, i);
}

/* Units in the entries from the first-th on. */
static inline uint64_t grant_log_sum(const struct grant_log *log, uint64_t slots, uint64_t first)
{
    return grant_log_total_before(log, slots, log->count) -
           grant_log_total_before(log, slots, first);
}

/* The first entry later than `instant`; `count` if there is none. */
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

/*
 * The first entry from `low` on up to which, from there, `units` or more were entered; there must
 * be as many. Totals are compared by their distance, which is below 2^63.
 */
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

/* A full ring merges its two oldest entries: they count until the later of them is gone. */
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

/* Takes up to `amount` out of the i-th entry; an empty one goes. */
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
 * Whether the bytes can be a log whose entries are no later than `latest`, as far as that can be
 * told in a time that does not grow with the log: what says where entries lie, and both ends. What
 * is wrong in between makes wrong sums, but no function above looks outside the log or goes on
 * longer for it: they search and walk between `head` and `count`, whatever they find.
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

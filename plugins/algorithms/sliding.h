/* SPDX-License-Identifier: MIT */
/*
 * A sliding window over a log (log.h): never more than the capacity in any window. Exact, or by
 * segments: then the clock is divided into sub-windows ((k-1)·W/N, k·W/N], and a grant is entered
 * at the end of its sub-window. So it counts longer than necessary, by less than W/N, and the limit
 * still holds.
 *
 * Entries that count have different instants within one window and hold at least one unit each, so
 * min(C, W) slots are enough, and with segments N + 1.
 */
#ifndef WEIR_PLUGINS_SLIDING_H
#define WEIR_PLUGINS_SLIDING_H

#include "log.h"

struct sliding {
    uint64_t capacity, window;
    uint64_t segments; /* 0: exact */
    uint64_t slots;    /* slots of the log */
};

static inline struct sliding sliding_of(uint64_t capacity, uint64_t window, uint64_t segments)
{
    uint64_t instants = segments != 0 ? segments + 1 : window;
    return (struct sliding){.capacity = capacity,
                            .window = window,
                            .segments = segments,
                            .slots = capacity < instants ? capacity : instants};
}

/* Returns the bytes of the log. Callers bound the slots. */
static inline uint64_t sliding_size(const struct sliding *sliding)
{
    return sizeof(struct grant_log) + sliding->slots * sizeof(struct grant_entry);
}

static inline uint64_t sliding_now(const struct grant_log *log, const struct weir_instant *at)
{
    return max_u64(at->now_ns, log->last);
}

/* Returns the instant at which a grant of `instant` is entered. */
static inline uint64_t sliding_entered_at(const struct sliding *sliding, uint64_t instant)
{
    if (sliding->segments == 0)
        return instant;
    u128 k = ceil_div((u128)instant * sliding->segments, sliding->window);
    u128 end = ceil_div(k * sliding->window, sliding->segments);
    return end < UINT64_MAX ? (uint64_t)end : UINT64_MAX;
}

/* Returns the last instant of which grants are entered at `entered`: the end of a sub-window is
 * rounded up. */
static inline uint64_t sliding_last_of(const struct sliding *sliding, uint64_t entered)
{
    if (sliding->segments == 0)
        return entered;
    u128 k = (u128)entered * sliding->segments / sliding->window;
    return (uint64_t)(k * sliding->window / sliding->segments);
}

/* Returns the first entry of the window that ends now. */
static inline uint64_t sliding_first(const struct sliding *sliding, const struct grant_log *log,
                                     uint64_t now)
{
    uint64_t window = sliding->window;
    return now < window ? 0 : grant_log_first_after(log, sliding->slots, now - window);
}

static inline uint64_t sliding_available(const struct sliding *sliding, const struct grant_log *log,
                                         const struct weir_instant *at)
{
    uint64_t first = sliding_first(sliding, log, sliding_now(log, at));
    uint64_t used = grant_log_sum(log, sliding->slots, first);
    return used < sliding->capacity ? sliding->capacity - used : 0;
}

/* Returns the instant at which the oldest entries from `first` on, which hold `units` or more, have
 * expired. */
static inline uint64_t sliding_freed_at(const struct sliding *sliding, const struct grant_log *log,
                                        uint64_t now, uint64_t first, uint64_t units)
{
    uint64_t oldest = grant_log_first_reaching(log, sliding->slots, first, units);
    uint64_t instant = grant_log_at(log, sliding->slots, oldest)->instant_ns;
    return instant_after(now, (u128)instant + sliding->window - now);
}

static inline uint64_t sliding_ready_at(const struct sliding *sliding, const struct grant_log *log,
                                        const struct weir_instant *at, uint64_t amount)
{
    if (amount == 0)
        return at->now_ns;
    if (amount > sliding->capacity)
        return WEIR_NEVER;
    uint64_t now = sliding_now(log, at), first = sliding_first(sliding, log, now);
    uint64_t used = grant_log_sum(log, sliding->slots, first), room = sliding->capacity - amount;
    return used <= room ? at->now_ns : sliding_freed_at(sliding, log, now, first, used - room);
}

/* Enters `amount` > 0. Entries before `first`, which no longer count, are dropped. */
static inline void sliding_store(const struct sliding *sliding, struct grant_log *log, uint64_t now,
                                 uint64_t first, uint64_t amount)
{
    log->last = now;
    grant_log_drop(log, sliding->slots, first);
    grant_log_append(log, sliding->slots, sliding_entered_at(sliding, now), amount);
}

static inline void sliding_take(const struct sliding *sliding, struct grant_log *log,
                                const struct weir_instant *at, uint64_t amount)
{
    uint64_t now = sliding_now(log, at);
    if (amount != 0)
        sliding_store(sliding, log, now, sliding_first(sliding, log, now), amount);
}

/* Shrinks the entry of the grant. */
static inline void sliding_refund(const struct sliding *sliding, struct grant_log *log,
                                  const struct weir_instant *at, uint64_t amount,
                                  uint64_t granted_ns)
{
    log->last = sliding_now(log, at);
    uint64_t instant = sliding_entered_at(sliding, granted_ns);
    uint64_t i = instant == 0 ? 0 : grant_log_first_after(log, sliding->slots, instant - 1);
    if (i == log->count || grant_log_at(log, sliding->slots, i)->instant_ns != instant)
        return;
    grant_log_shrink(log, sliding->slots, i, amount);
}

/* Copies the entries of the current window at their known instants: of a sub-window its last one,
 * so that it stays the same if nothing has changed. */
static inline void sliding_carry(const struct sliding *old, const struct grant_log *old_log,
                                 const struct sliding *sliding, struct grant_log *log,
                                 const struct weir_instant *at)
{
    uint64_t now = sliding_now(old_log, at);
    log->last = now;
    for (uint64_t i = sliding_first(old, old_log, now); i < old_log->count; i++) {
        uint64_t entered = grant_log_at(old_log, old->slots, i)->instant_ns;
        uint64_t instant = sliding_last_of(old, entered);
        grant_log_append(log, sliding->slots,
                         sliding_entered_at(sliding, instant < now ? instant : now),
                         grant_log_units(old_log, old->slots, i));
    }
}

static inline int sliding_check(const struct sliding *sliding, const struct grant_log *log)
{
    uint64_t slack = sliding->segments == 0 ? 0 : sliding->window / sliding->segments + 1;
    uint64_t latest = log->last + slack; /* at least that of log->last, and cheaper */
    return grant_log_check(log, sliding->slots, latest < slack ? UINT64_MAX : latest);
}

/* Returns whether nothing counts any more. */
static inline int sliding_is_empty(const struct sliding *sliding, const struct grant_log *log,
                                   const struct weir_instant *at)
{
    return log->last <= at->now_ns && sliding_first(sliding, log, at->now_ns) == log->count;
}

#endif

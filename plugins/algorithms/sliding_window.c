/* SPDX-License-Identifier: MIT */
/*
 * Sliding window log: every grant is logged, and at t those in (t - W, t] count. So no window of
 * length W ever has more than C. It is the sliding window of flow control, with instants for
 * sequence numbers; rate limiters call it "sliding log".
 *
 * The log is a ring with one entry per instant. Entries that count have different instants within
 * one window and hold at least one unit each, so min(C, W) slots are enough.
 *
 * `segments: N` needs only N + 1 slots. The clock is divided into sub-windows ((k-1)·W/N, k·W/N]. A
 * grant is entered at the end of its sub-window. So it counts longer than necessary, by less than
 * W/N, and the limit still holds.
 */
#include "declare.h"
#include "log.h"

enum { INITIAL = WINDOW + 1, SEGMENTS };

static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("initial", 0, "units available in the first window; default: the capacity"),
    PARAMETER("segments", WEIR_PARAMETER_AMOUNT, 0, 1 << 20,
              "count by that many sub-windows, in less memory; default 0: an exact log"),
};

struct config {
    uint64_t capacity, window;
    uint64_t segments; /* 0: exact */
    uint64_t slots;    /* slots of the log */
    uint64_t initial;
    uint64_t reserved;
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = setup->values[CAPACITY]->value, window = setup->values[WINDOW]->value;
    uint64_t segments = setup->values[SEGMENTS]->given ? setup->values[SEGMENTS]->value : 0,
             initial;
    if (read_initial(setup, INITIAL, capacity, &initial, reterr) < 0)
        return -1;
    if (segments > window)
        return refuse_parameter(reterr, SEGMENTS, "more segments than the window has nanoseconds");
    uint64_t instants = segments != 0 ? segments + 1 : window;
    uint64_t slots = capacity < instants ? capacity : instants;
    if (slots > (WEIR_STATE_MAX - sizeof(struct grant_log)) / sizeof(struct grant_entry))
        return refuse_parameter(reterr, CAPACITY,
                                "an exact log of so many units takes too much memory (at "
                                "most 4194294): set segments, for example segments: 100");
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct grant_log) + slots * sizeof(struct grant_entry);
    ret->amount_max = capacity;
    if (bytes)
        *(struct config *)bytes = (struct config){.capacity = capacity,
                                                  .window = window,
                                                  .segments = segments,
                                                  .slots = slots,
                                                  .initial = initial};
    return 0;
}

static uint64_t effective_now(const struct grant_log *log, const struct weir_instant *at)
{
    return max_u64(at->now_ns, log->last);
}

/* Returns the instant at which a grant of `instant` is entered. */
static uint64_t entered_at(const struct config *config, uint64_t instant)
{
    if (config->segments == 0)
        return instant;
    u128 k = ceil_div((u128)instant * config->segments, config->window);
    u128 end = ceil_div(k * config->window, config->segments);
    return end < UINT64_MAX ? (uint64_t)end : UINT64_MAX;
}

/* Returns the first entry of the window that ends now. */
static uint64_t first_counted(const struct config *config, const struct grant_log *log,
                              uint64_t now)
{
    uint64_t window = config->window;
    return now < window ? 0 : grant_log_first_after(log, config->slots, now - window);
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct grant_log *log = memory;
    log->last = at->now_ns;
    if (config->initial < config->capacity)
        grant_log_append(log, config->slots, entered_at(config, at->now_ns),
                         config->capacity - config->initial);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct grant_log *log = memory;
    uint64_t first = first_counted(config, log, effective_now(log, at));
    uint64_t used = grant_log_sum(log, config->slots, first);
    return used < config->capacity ? config->capacity - used : 0;
}

/* Returns the instant at which the oldest entries from `first` on, which hold `units` or more, have
 * expired. */
static uint64_t freed_at(const struct config *config, const struct grant_log *log, uint64_t now,
                         uint64_t first, uint64_t units)
{
    uint64_t oldest = grant_log_first_reaching(log, config->slots, first, units);
    uint64_t instant = grant_log_at(log, config->slots, oldest)->instant_ns;
    return instant_after(now, (u128)instant + config->window - now);
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct grant_log *log = memory;
    if (amount == 0)
        return at->now_ns;
    if (amount > config->capacity)
        return WEIR_NEVER;
    uint64_t now = effective_now(log, at), first = first_counted(config, log, now);
    uint64_t used = grant_log_sum(log, config->slots, first), room = config->capacity - amount;
    return used <= room ? at->now_ns : freed_at(config, log, now, first, used - room);
}

/* Enters `amount` > 0. Entries before `first`, which no longer count, are dropped. */
static void store_grant(const struct config *config, struct grant_log *log, uint64_t now,
                        uint64_t first, uint64_t amount)
{
    log->last = now;
    grant_log_drop(log, config->slots, first);
    grant_log_append(log, config->slots, entered_at(config, now), amount);
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct grant_log *log = memory;
    uint64_t now = effective_now(log, at);
    if (amount != 0)
        store_grant(config, log, now, first_counted(config, log, now), amount);
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    struct grant_log *log = memory;
    if (amount == 0)
        return at->now_ns;
    if (amount > config->capacity)
        return WEIR_NEVER;
    uint64_t now = effective_now(log, at), first = first_counted(config, log, now);
    uint64_t used = grant_log_sum(log, config->slots, first), room = config->capacity - amount;
    if (used > room)
        return freed_at(config, log, now, first, used - room);
    store_grant(config, log, now, first, amount);
    return at->now_ns;
}

/* Shrinks the entry of the grant. */
static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    struct grant_log *log = memory;
    log->last = effective_now(log, at);
    uint64_t instant = entered_at(config, granted_ns);
    uint64_t i = instant == 0 ? 0 : grant_log_first_after(log, config->slots, instant - 1);
    if (i == log->count || grant_log_at(log, config->slots, i)->instant_ns != instant)
        return;
    grant_log_shrink(log, config->slots, i, amount);
}

/* Copies the entries of the current window at their known instants. Sub-windows are known by their
 * ends. */
static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    const struct grant_log *old_log = old_memory;
    struct grant_log *log = memory;
    uint64_t now = effective_now(old_log, at);
    log->last = now;
    for (uint64_t i = first_counted(old, old_log, now); i < old_log->count; i++) {
        uint64_t instant = grant_log_at(old_log, old->slots, i)->instant_ns;
        grant_log_append(log, config->slots, entered_at(config, instant < now ? instant : now),
                         grant_log_units(old_log, old->slots, i));
    }
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct grant_log *log = memory;
    uint64_t slack = config->segments == 0 ? 0 : config->window / config->segments + 1;
    uint64_t latest = log->last + slack; /* at least entered_at(log->last), and cheaper */
    return grant_log_check(log, config->slots, latest < slack ? UINT64_MAX : latest);
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct grant_log *log = memory;
    return log->last <= at->now_ns && config->initial == config->capacity &&
           first_counted(config, log, at->now_ns) == log->count;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = TYPES_OF_RATES,
    .flags = WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
    .init = init,
    .ready_at = ready_at,
    .take = take,
    .refund = refund,
    .available = available,
    .reconfigure = reconfigure,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .refund_strict = refund, /* what was not refunded never exceeds the capacity */
};

PLUGIN_TABLE("sliding_window", UINT64_C(0x11d0232e4869e5ef),
             "never more than capacity in any window: a log, exact or coarse");

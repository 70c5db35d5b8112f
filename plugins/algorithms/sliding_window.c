/* SPDX-License-Identifier: MIT */
/*
 * Sliding window log: every grant is logged, and at t those in (t - W, t] count. So no window of
 * length W ever has more than C. It is the sliding window of flow control, with instants for
 * sequence numbers; rate limiters call it "sliding log". sliding.h has how it works.
 */
#include "declare.h"
#include "sliding.h"

enum { INITIAL = WINDOW + 1, SEGMENTS };

static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("initial", 0, "units available in the first window; default: the capacity"),
    PARAMETER("segments", WEIR_PARAMETER_AMOUNT, 0, 1 << 20,
              "count by that many sub-windows, in less memory; default 0: an exact log"),
};

struct config {
    struct sliding sliding;
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
    struct sliding sliding = sliding_of(capacity, window, segments);
    if (sliding.slots > (WEIR_STATE_MAX - sizeof(struct grant_log)) / sizeof(struct grant_entry))
        return refuse_parameter(reterr, CAPACITY,
                                "an exact log of so many units takes too much memory (at "
                                "most 4194294): set segments, for example segments: 100");
    ret->config = sizeof(struct config);
    ret->state = sliding_size(&sliding);
    ret->amount_max = capacity;
    if (bytes)
        *(struct config *)bytes = (struct config){.sliding = sliding, .initial = initial};
    return 0;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct sliding *sliding = &config->sliding;
    struct grant_log *log = memory;
    log->last = at->now_ns;
    if (config->initial < sliding->capacity)
        grant_log_append(log, sliding->slots, sliding_entered_at(sliding, at->now_ns),
                         sliding->capacity - config->initial);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    return sliding_available(&config->sliding, memory, at);
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    return sliding_ready_at(&config->sliding, memory, at, amount);
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    sliding_take(&config->sliding, memory, at, amount);
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct sliding *sliding = &config->sliding;
    struct grant_log *log = memory;
    if (amount == 0)
        return at->now_ns;
    if (amount > sliding->capacity)
        return WEIR_NEVER;
    uint64_t now = sliding_now(log, at), first = sliding_first(sliding, log, now);
    uint64_t used = grant_log_sum(log, sliding->slots, first), room = sliding->capacity - amount;
    if (used > room)
        return sliding_freed_at(sliding, log, now, first, used - room);
    sliding_store(sliding, log, now, first, amount);
    return at->now_ns;
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    sliding_refund(&config->sliding, memory, at, amount, granted_ns);
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    sliding_carry(&old->sliding, old_memory, &config->sliding, memory, at);
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    return sliding_check(&config->sliding, memory);
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    return config->initial == config->sliding.capacity &&
           sliding_is_empty(&config->sliding, memory, at);
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

/* SPDX-License-Identifier: MIT */
/*
 * Several windows in one limit: what is granted counts in each, and never exceeds the capacity of
 * any, as in "10 per second, 500 per minute and 10k per day". Each is a sliding window (sliding.h),
 * by segments unless the configuration says otherwise: an exact log of a day would be long.
 *
 * The logs lie one behind the other in the state. It grants when the last of them does.
 */
#include "declare.h"
#include "sliding.h"

enum { PER_SECOND = WINDOW + 1, PER_MINUTE, PER_HOUR, PER_DAY, SEGMENTS };

#define SEGMENTS_DEFAULT 20
#define WINDOWS_MAX      5

static const struct weir_parameter parameters[] = {
    PARAMETER_UNITS("capacity", 1, "units granted per `window`; both or none"),
    PARAMETER("window", WEIR_PARAMETER_DURATION, 1, WINDOW_MAX, "a window of another length"),
    PARAMETER_UNITS("per_second", 1, "units granted per second; default: any number"),
    PARAMETER_UNITS("per_minute", 1, "units granted per minute; default: any number"),
    PARAMETER_UNITS("per_hour", 1, "units granted per hour; default: any number"),
    PARAMETER_UNITS("per_day", 1, "units granted per 24 hours; default: any number"),
    {.size = sizeof(struct weir_parameter),
     .name = "segments",
     .type = WEIR_PARAMETER_AMOUNT,
     .max = 1 << 20,
     .default_value = SEGMENTS_DEFAULT,
     .doc = "sub-windows by which each window counts; 0: exact logs; default 20"},
};

/* Its windows, in the order of the parameters. What is not limited has no capacity. */
struct config {
    struct sliding windows[WINDOWS_MAX];
    uint64_t offsets[WINDOWS_MAX]; /* of their logs, in bytes */
    uint64_t reserved;
};

static const struct {
    uint32_t parameter;
    uint64_t window_ns; /* 0: as the parameter says */
} kinds[WINDOWS_MAX] = {
    {CAPACITY, 0},
    {PER_SECOND, UINT64_C(1000000000)},
    {PER_MINUTE, UINT64_C(60000000000)},
    {PER_HOUR, UINT64_C(3600000000000)},
    {PER_DAY, UINT64_C(86400000000000)},
};

static const struct grant_log *log_of(const struct config *config, const void *state, uint32_t i)
{
    return (const struct grant_log *)((const char *)state + config->offsets[i]);
}

static struct grant_log *log_to_change(const struct config *config, void *state, uint32_t i)
{
    return (struct grant_log *)((char *)state + config->offsets[i]);
}

/* Adds window `i` to the configuration. Returns the bytes of its log, or 0 with the reason. */
static uint64_t add_window(const struct weir_setup *setup, uint32_t i, struct config *config,
                           struct weir_reason *reterr)
{
    uint64_t window = kinds[i].window_ns != 0 ? kinds[i].window_ns : setup->values[WINDOW]->value;
    uint64_t segments = setup->values[SEGMENTS]->value;
    if (segments > window)
        segments = 0; /* as fine as can be */
    struct sliding sliding = sliding_of(setup->values[kinds[i].parameter]->value, window, segments);
    if (sliding.slots > WEIR_STATE_MAX / sizeof(struct grant_entry) / (2 * WINDOWS_MAX)) {
        refuse_parameter(reterr, kinds[i].parameter,
                         "an exact log of so many units takes too much memory: set segments");
        return 0;
    }
    config->windows[i] = sliding;
    return sliding_size(&sliding);
}

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config config = {.reserved = 0};
    uint64_t size = 0, least = UINT64_MAX;
    if (setup->values[CAPACITY]->given != setup->values[WINDOW]->given)
        return refuse_parameter(reterr, setup->values[CAPACITY]->given ? CAPACITY : WINDOW,
                                "capacity and window come together");
    for (uint32_t i = 0; i < WINDOWS_MAX; i++) {
        if (!setup->values[kinds[i].parameter]->given)
            continue;
        uint64_t added = add_window(setup, i, &config, reterr);
        if (added == 0)
            return -1;
        config.offsets[i] = size;
        size += added;
        if (config.windows[i].capacity < least)
            least = config.windows[i].capacity;
    }
    if (size == 0)
        return refuse_parameter(reterr, PER_SECOND,
                                "at least one window is needed: per_second, per_minute, per_hour, "
                                "per_day, or capacity and window");
    ret->config = sizeof(struct config);
    ret->state = size;
    ret->amount_max = least;
    if (bytes)
        *(struct config *)bytes = config;
    return 0;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0)
            log_to_change(config, memory, i)->last = at->now_ns;
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++) {
        if (config->windows[i].capacity == 0)
            continue;
        uint64_t room = sliding_available(&config->windows[i], log_of(config, memory, i), at);
        if (room < least)
            least = room;
    }
    return least;
}

/* The last of the instants at which the windows would grant: none refuses again what it would grant
 * before. */
static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    uint64_t latest = at->now_ns;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0)
            latest = max_u64(latest, sliding_ready_at(&config->windows[i],
                                                      log_of(config, memory, i), at, amount));
    return latest;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0)
            sliding_take(&config->windows[i], log_to_change(config, memory, i), at, amount);
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    uint64_t ready = ready_at(bytes, memory, at, amount);
    if (ready == at->now_ns)
        take(bytes, memory, at, amount);
    return ready;
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0)
            sliding_refund(&config->windows[i], log_to_change(config, memory, i), at, amount,
                           granted_ns);
}

/* A window that both have keeps its count; one that is new begins empty. */
static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    init(bytes, memory, at);
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0 && old->windows[i].capacity != 0)
            sliding_carry(&old->windows[i], log_of(old, old_memory, i), &config->windows[i],
                          log_to_change(config, memory, i), at);
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0 &&
            sliding_check(&config->windows[i], log_of(config, memory, i)) < 0)
            return -1;
    return 0;
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    for (uint32_t i = 0; i < WINDOWS_MAX; i++)
        if (config->windows[i].capacity != 0 &&
            !sliding_is_empty(&config->windows[i], log_of(config, memory, i), at))
            return 0;
    return 1;
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
    .refund_strict = refund, /* what was not refunded never exceeds a capacity */
};

PLUGIN_TABLE("multi_window", UINT64_C(0x8985d3358a9c87ed),
             "several sliding windows in one limit: per second, minute, hour and day");

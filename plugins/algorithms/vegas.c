/* SPDX-License-Identifier: MIT */
/*
 * Vegas: the limit follows an estimate of the queue in the service. L. Brakmo and L. Peterson, "TCP
 * Vegas: end to end congestion avoidance on a global Internet", 1995; VegasLimit of Netflix's
 * concurrency-limits.
 *
 * At the end of each window (latency.h), with the mean of its latencies and the base, the latency
 * without a queue, so much of the limit stands in the queue:
 *
 *     queue = limit * (1 - base / mean), rounded up
 *
 * With s, the whole part of the decimal logarithm of the limit, at least 1: the limit grows by 6 s
 * if the queue is at most s, and by s below 3 s; it falls by s above 6 s. If less than half of it
 * was held, it stays. An overload cuts it to 9/10, once in a window. The base is what a probe
 * measures; where the mean falls by a quarter below it, it follows by a quarter of the difference.
 *
 * Differences from VegasLimit: that decides by single latencies, and its probe takes the present
 * one for the base although a queue is part of it, so that the limit drifts up.
 */
#include <stdbool.h>

#include "latency.h"

static const struct weir_parameter parameters[] = {
    PARAMETERS_ADAPTIVE,
    PARAMETERS_LATENCY,
};

struct config {
    struct bounds bounds;
    struct latency_config latency;
};

struct state {
    struct load load;
    struct latency latency;
    uint64_t base_ns; /* 0: not known yet */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config config = {.latency = latency_configure(setup)};
    if (bounds_read(setup, &config.bounds, reterr) < 0)
        return -1;
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = config.bounds.capacity;
    if (bytes)
        *(struct config *)bytes = config;
    return 0;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct state *state = memory;
    (void)at;
    load_init(&state->load, &config->bounds);
}

static uint64_t limit_of(const struct config *config, const struct state *state)
{
    return latency_limit(&state->latency, &state->load, &config->bounds);
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    return load_ready_at(&state->load, &config->bounds, limit_of(config, state), at, amount);
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    struct state *state = memory;
    (void)bytes, (void)at;
    load_take(&state->load, amount);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    (void)at;
    return load_available(&state->load, &config->bounds, limit_of(config, state));
}

/* Returns the whole part of the decimal logarithm, at least 1. */
static uint64_t logarithm(uint64_t n)
{
    uint64_t logarithm = 1;
    for (; n >= 100; n /= 10)
        logarithm++;
    return logarithm;
}

/* Returns the limit after a window with this mean, in which it was used. */
static uint64_t follow(const struct state *state, uint64_t mean_ns)
{
    uint64_t limit = state->load.limit, step = logarithm(limit / ADAPTIVE_ONE);
    u128 waiting = (u128)limit * (mean_ns - min_u64(mean_ns, state->base_ns));
    u128 queue = ceil_div(waiting, (u128)mean_ns * ADAPTIVE_ONE);
    if (queue <= step)
        return limit + 6 * step * ADAPTIVE_ONE;
    if (queue < 3 * step)
        return limit + step * ADAPTIVE_ONE;
    if (queue > 6 * step)
        return (uint64_t)sub_or_zero(limit, step * ADAPTIVE_ONE);
    return limit;
}

/* Takes the base from a window with successes. */
static void find_base(struct state *state, const struct latency_window *window)
{
    if (state->base_ns == 0 || window->phase == PHASE_MEASURE)
        state->base_ns = window->mean_ns;
    else if (window->mean_ns < state->base_ns / 4 * 3)
        state->base_ns -= (state->base_ns - window->mean_ns) / 4;
}

static void adapt(const struct config *config, struct state *state,
                  const struct latency_window *window)
{
    if (window->mean_ns != 0)
        find_base(state, window);
    if (window->has_overload)
        state->load.limit = bounds_clamp(&config->bounds, state->load.limit * 9 / 10);
    else if (window->phase == PHASE_NORMAL && window->is_used)
        state->load.limit = bounds_clamp(&config->bounds, follow(state, window->mean_ns));
}

static void release(const void *bytes, void *memory, const struct weir_instant *at,
                    const struct weir_release *release)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t held = load_release(&state->load, release->amount);
    struct latency_window window;
    if (!latency_release(&state->latency, &config->latency, &state->load, held, at->now_ns, release,
                         &window))
        return;
    adapt(config, state, &window);
    latency_begin(&state->latency, &config->latency, state->load.limit, at->now_ns);
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *old = old_memory;
    struct state *state = memory;
    (void)old_bytes, (void)at;
    load_carry(&state->load, &config->bounds, &old->load);
    state->base_ns = old->base_ns;
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    if (state->base_ns > ADAPTIVE_LATENCY_MAX || load_check(&state->load, &config->bounds) < 0)
        return -1;
    return latency_check(&state->latency);
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    uint64_t ready = ready_at(bytes, memory, at, amount);
    if (ready == at->now_ns)
        take(bytes, memory, at, amount);
    return ready;
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    (void)at;
    return state->base_ns == 0 && latency_is_new(&state->latency) &&
           load_is_new(&state->load, &config->bounds);
}

static const struct weir_gauge gauges[] = {
    GAUGES_ADAPTIVE,
    GAUGE("latency_base", WEIR_PARAMETER_DURATION, "the latency without a queue"),
};

static void observe(const void *bytes, const void *memory, const struct weir_instant *at,
                    uint64_t *ret)
{
    const struct state *state = memory;
    (void)at;
    ret[0] = state->load.held;
    ret[1] = limit_of(bytes, state);
    ret[2] = state->base_ns;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = 1u << WEIR_LIMIT_RESOURCE,
    .configure = configure,
    .init = init,
    .ready_at = ready_at,
    .take = take,
    .available = available,
    .release = release,
    .reconfigure = reconfigure,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .gauges = gauges,
    .gauges_n = sizeof(gauges) / sizeof(gauges[0]),
    .observe = observe,
};

PLUGIN_TABLE("vegas", UINT64_C(0xeb675a00f2a0e130),
             "a limit that follows an estimate of the queue in the service");

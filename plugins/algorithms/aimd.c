/* SPDX-License-Identifier: MIT */
/*
 * AIMD: additive increase, multiplicative decrease of how much of a resource may be held. D.-M.
 * Chiu and R. Jain, "Analysis of the increase and decrease algorithms for congestion avoidance",
 * 1989; TCP's congestion avoidance (RFC 5681); AIMDLimit of Netflix's concurrency-limits.
 *
 * A round is as many releases as the limit has units. The limit grows by `increase` units in a
 * round of successes, if at least half of it is held. After an overload `backoff` percent of it are
 * left; then none counts for a round, because what was granted before meets the same congestion.
 * `timeout` makes a success that took longer an overload. Failures, and what was ignored, dropped
 * or canceled, change nothing.
 *
 * Differences from AIMDLimit: that adds a whole unit for each success, which doubles the limit in a
 * round, and cuts for each overload.
 */
#include <stdbool.h>

#include "adaptive.h"

enum { INCREASE = ADAPTIVE_PARAMETERS, BACKOFF, TIMEOUT };

static const struct weir_parameter parameters[] = {
    PARAMETERS_ADAPTIVE,
    {.size = sizeof(struct weir_parameter),
     .name = "increase",
     .type = WEIR_PARAMETER_AMOUNT,
     .min = 1,
     .max = ADAPTIVE_UNITS_MAX,
     .default_value = 1,
     .doc = "units by which the limit grows in a round; default 1"},
    {.size = sizeof(struct weir_parameter),
     .name = "backoff",
     .type = WEIR_PARAMETER_AMOUNT,
     .min = 1,
     .max = 99,
     .default_value = 90,
     .doc = "percent of the limit that an overload leaves; default 90"},
    PARAMETER("timeout", WEIR_PARAMETER_DURATION, 0, WINDOW_MAX,
              "a success that takes longer is an overload; default: none is"),
};

struct config {
    struct bounds bounds;
    uint64_t increase, backoff;
    uint64_t timeout_ns; /* 0: none */
};

struct state {
    struct load load;
    uint64_t grace; /* releases until the next overload counts */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config config = {.increase = setup->values[INCREASE]->value,
                            .backoff = setup->values[BACKOFF]->value,
                            .timeout_ns = setup->values[TIMEOUT]->value};
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

static uint64_t limit_of(const struct state *state)
{
    return state->load.limit / ADAPTIVE_ONE;
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    return load_ready_at(&state->load, &config->bounds, limit_of(state), at, amount);
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
    return load_available(&state->load, &config->bounds, limit_of(state));
}

static bool is_overload(const struct config *config, const struct weir_release *release)
{
    if (release->outcome == WEIR_OUTCOME_OVERLOAD)
        return true;
    return release->outcome == WEIR_OUTCOME_SUCCESS && config->timeout_ns != 0 &&
           release->latency_ns > config->timeout_ns;
}

static void release(const void *bytes, void *memory, const struct weir_instant *at,
                    const struct weir_release *release)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t held = load_release(&state->load, release->amount), limit = state->load.limit;
    bool is_cut = is_overload(config, release);
    (void)at;
    if (!is_cut && release->outcome != WEIR_OUTCOME_SUCCESS)
        return;
    if (state->grace != 0)
        state->grace--;
    if (is_cut && state->grace == 0) {
        state->load.limit = bounds_clamp(&config->bounds, limit * config->backoff / 100);
        state->grace = limit_of(state);
    } else if (!is_cut && load_is_used(&state->load, held)) {
        u128 step = (u128)config->increase * ADAPTIVE_ONE * ADAPTIVE_ONE / limit;
        state->load.limit = bounds_clamp(&config->bounds, limit + step);
    }
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *old = old_memory;
    struct state *state = memory;
    (void)old_bytes, (void)at;
    load_carry(&state->load, &config->bounds, &old->load);
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    return state->grace <= config->bounds.capacity ? load_check(&state->load, &config->bounds) : -1;
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
    return state->grace == 0 && load_is_new(&state->load, &config->bounds);
}

static const struct weir_gauge gauges[] = {GAUGES_ADAPTIVE};

static void observe(const void *bytes, const void *memory, const struct weir_instant *at,
                    uint64_t *ret)
{
    const struct state *state = memory;
    (void)bytes, (void)at;
    ret[0] = state->load.held;
    ret[1] = limit_of(state);
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

PLUGIN_TABLE("aimd", UINT64_C(0x9894f8eb323ea724),
             "a limit that grows until there is overload, and then falls by a part of it");

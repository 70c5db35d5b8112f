/* SPDX-License-Identifier: MIT */
/*
 * Gradient2: the limit follows the ratio of the usual latency to the present one. Gradient2Limit of
 * Netflix's concurrency-limits; "gradient controller" of Envoy's adaptive concurrency filter.
 *
 * At the end of each window (latency.h), with the mean `short` of its latencies and their moving
 * average `long` over 600 windows:
 *
 *     gradient = tolerance * long / short, from 1/2 to 1
 *     limit    = 0.8 * limit + 0.2 * (limit * gradient + headroom)
 *
 * where the headroom is the square root of the limit, as in Envoy: a queue of that length is
 * welcome, and lets the limit grow while latencies are as usual. If less than half of the limit was
 * held, it stays. An overload cuts it to 9/10, once in a window. If `long` is more than twice
 * `short`, it falls by a twentieth: the service has become faster.
 *
 * Differences from Gradient2Limit. That has no probes: under permanent load `long` rises with the
 * queue that the limit itself makes, and the limit drifts up (Netflix/concurrency-limits
 * #134). Here a probe sets `long` to the latency without a queue. And overloads count.
 */
#include <stdbool.h>

#include "latency.h"

enum { TOLERANCE = LATENCY_PARAMETERS };

#define LONG_WINDOWS 600 /* of the moving average */
#define LONG_WARM_UP 10  /* windows in which it is the mean */
#define LONG_ONE     256 /* it is kept in 1/256 ns */
#define SMOOTHING    20  /* percent of the new limit in the limit */

static const struct weir_parameter parameters[] = {
    PARAMETERS_ADAPTIVE,
    PARAMETERS_LATENCY,
    {.size = sizeof(struct weir_parameter),
     .name = "tolerance",
     .type = WEIR_PARAMETER_AMOUNT,
     .min = 100,
     .max = 1000,
     .default_value = 125,
     .doc = "percent of the usual latency up to which nothing changes; default 125"},
};

struct config {
    struct bounds bounds;
    struct latency_config latency;
    uint64_t tolerance;
};

struct state {
    struct load load;
    struct latency latency;
    uint64_t usual;   /* the moving average, in 1/256 ns */
    uint64_t usual_n; /* windows in it, while it warms up */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config config = {.latency = latency_configure(setup),
                            .tolerance = setup->values[TOLERANCE]->value};
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

/* Moves the average on by a window with this mean. */
static void average(struct state *state, uint64_t mean_ns)
{
    uint64_t mean = mean_ns * LONG_ONE, n = state->usual_n;
    if (n < LONG_WARM_UP) {
        state->usual = (state->usual * n + mean) / (n + 1);
        state->usual_n++;
    } else {
        state->usual = (state->usual * (LONG_WINDOWS - 1) + 2 * mean) / (LONG_WINDOWS + 1);
    }
    if (state->usual > 2 * mean)
        state->usual = state->usual / 20 * 19;
}

/* Returns the whole part of the square root, by Newton's method. */
static uint64_t square_root(uint64_t n)
{
    uint64_t root = n, next = n / 2 + 1;
    while (next < root) {
        root = next;
        next = (root + n / root) / 2;
    }
    return root;
}

/* Returns the limit after a window with this mean, in which it was used. */
static u128 follow(const struct config *config, const struct state *state, uint64_t mean_ns)
{
    u128 limit = state->load.limit, allowed = (u128)config->tolerance * state->usual;
    u128 present = (u128)mean_ns * LONG_ONE * 100, least = limit / 2;
    u128 next = allowed >= present ? limit : limit * allowed / present;
    next = next > least ? next : least;
    next += square_root(state->load.limit / ADAPTIVE_ONE) * ADAPTIVE_ONE;
    return (limit * (100 - SMOOTHING) + next * SMOOTHING) / 100;
}

static void adapt(const struct config *config, struct state *state,
                  const struct latency_window *window)
{
    if (window->mean_ns != 0 && window->phase == PHASE_MEASURE)
        state->usual = window->mean_ns * LONG_ONE;
    else if (window->mean_ns != 0 && window->phase == PHASE_NORMAL)
        average(state, window->mean_ns);
    if (window->has_overload)
        state->load.limit = bounds_clamp(&config->bounds, state->load.limit * 9 / 10);
    else if (window->phase == PHASE_NORMAL && window->is_used)
        state->load.limit = bounds_clamp(&config->bounds, follow(config, state, window->mean_ns));
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
    state->usual = old->usual;
    state->usual_n = old->usual_n;
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    if (state->usual > ADAPTIVE_LATENCY_MAX * LONG_ONE || state->usual_n > LONG_WARM_UP)
        return -1;
    return load_check(&state->load, &config->bounds) < 0 ? -1 : latency_check(&state->latency);
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
    return state->usual == 0 && latency_is_new(&state->latency) &&
           load_is_new(&state->load, &config->bounds);
}

static const struct weir_gauge gauges[] = {
    GAUGES_ADAPTIVE,
    GAUGE("latency_usual", WEIR_PARAMETER_DURATION, "the moving average of the latency"),
};

static void observe(const void *bytes, const void *memory, const struct weir_instant *at,
                    uint64_t *ret)
{
    const struct state *state = memory;
    (void)at;
    ret[0] = state->load.held;
    ret[1] = limit_of(bytes, state);
    ret[2] = state->usual / LONG_ONE;
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

PLUGIN_TABLE("gradient2", UINT64_C(0xb842bccce7b7cf56),
             "a limit that follows the ratio of the usual latency to the present one");

/* SPDX-License-Identifier: MIT */
/*
 * Token bucket: a bucket of B tokens is filled at the rate C/W, and grants n if n tokens are in it.
 * This is the bucket of the srTCM meter (J. Heinanen, R. Guerin: RFC 2697, 1999), which adds one
 * token per update. Here the filling is continuous or, with `every`, in whole steps at fixed
 * instants.
 *
 * The state is what the bucket lacks to be full, in ticks (exact.h): 0 is full, `full` is empty,
 * more is debt, at most another `full`. It is updated only by changes, so reading a limit has no
 * effect on it.
 */
#include "declare.h"

enum { BURST = WINDOW + 1, INITIAL, EVERY };

static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("burst", 1, "units the bucket holds; default: the capacity"),
    PARAMETER_UNITS("initial", 0, "units available at the start; default: a full bucket"),
    PARAMETER("every", WEIR_PARAMETER_DURATION, 0, WINDOW_MAX,
              "refill in whole steps this long, counted from the start; default 0: continuously"),
};

/* With `every` all amounts are whole, and a tick is one unit. */
struct config {
    struct bucket_depth depth;
    uint64_t units; /* continuous: ticks per ns */
    uint64_t every; /* in steps: their length in ns, else 0 */
    uint64_t step;  /* in steps: ticks per step */
    uint64_t initial;
};

struct state {
    uint64_t missing[2]; /* ticks, at `last` */
    uint64_t last;
    uint64_t created;
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = setup->values[CAPACITY]->value, window = setup->values[WINDOW]->value;
    uint64_t burst = setup->values[BURST]->given ? setup->values[BURST]->value : capacity;
    uint64_t every = setup->values[EVERY]->given ? setup->values[EVERY]->value : 0;
    uint64_t initial;
    if (read_initial(setup, INITIAL, burst, &initial, reterr) < 0)
        return -1;
    if ((u128)capacity * every % window != 0)
        return refuse_parameter(reterr, EVERY,
                                "a step must bring a whole number of units: capacity * every "
                                "must be a multiple of window");
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = burst;
    if (!bytes)
        return 0;
    struct rate rate = rate_reduce(capacity, window);
    struct config *config = bytes;
    *config = (struct config){.depth = bucket_depth_of(burst, every != 0 ? 1 : rate.span),
                              .units = rate.units,
                              .every = every,
                              .initial = initial};
    /* A step that fills the bucket from the deepest debt has the effect of any larger one. */
    u128 step = (u128)capacity * every / window;
    config->step = (uint64_t)(step < 2 * config->depth.full ? step : 2 * (u128)burst);
    return 0;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct state *state = memory;
    u128_store(state->missing, (u128)(config->depth.units - config->initial) * config->depth.unit);
    state->last = state->created = at->now_ns;
}

static uint64_t effective_now(const struct state *state, const struct weir_instant *at)
{
    return max_u64(at->now_ns, state->last);
}

/* Returns the number of steps from the start to `now`. */
static uint64_t steps_at(const struct config *config, const struct state *state, uint64_t now)
{
    return (now - state->created) / config->every;
}

/* Returns the ticks that come by steps from one instant to another, neither before the start. */
static u128 steps_between(const struct config *config, const struct state *state, uint64_t from,
                          uint64_t to)
{
    return (u128)config->step * (steps_at(config, state, to) - steps_at(config, state, from));
}

static u128 missing_at(const struct config *config, const struct state *state, uint64_t now)
{
    u128 refill = config->every == 0 ? (u128)config->units * (now - state->last)
                                     : steps_between(config, state, state->last, now);
    return sub_or_zero(u128_load(state->missing), refill);
}

static void store_missing(struct state *state, uint64_t now, u128 missing)
{
    u128_store(state->missing, missing);
    state->last = now;
}

/* Returns when a bucket that lacks `lack` ticks for a request will have them. */
static uint64_t filled_at(const struct config *config, const struct state *state, uint64_t now,
                          u128 lack)
{
    if (config->every == 0)
        return instant_after(now, ceil_div(lack, config->units));
    u128 step = steps_at(config, state, now) + ceil_div(lack, config->step);
    return instant_after(now, step * config->every - (now - state->created));
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    if (amount == 0)
        return at->now_ns;
    if (amount > config->depth.units)
        return WEIR_NEVER;
    uint64_t now = effective_now(state, at);
    u128 need = missing_at(config, state, now) + (u128)amount * config->depth.unit;
    if (need <= config->depth.full)
        return at->now_ns;
    return filled_at(config, state, now, need - config->depth.full);
}

/* Combines ready_at() and draw(), so that the level is computed once. */
static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;
    if (amount == 0)
        return at->now_ns;
    if (amount > config->depth.units)
        return WEIR_NEVER;
    uint64_t now = effective_now(state, at);
    u128 missing = missing_at(config, state, now) + (u128)amount * config->depth.unit;
    if (missing > config->depth.full)
        return filled_at(config, state, now, missing - config->depth.full);
    store_missing(state, now, missing);
    return at->now_ns;
}

/* Takes what was granted, or charges what was used beyond it. The debt is at most the bucket's
 * depth. */
static void draw(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;
    if (amount == 0)
        return;
    uint64_t now = effective_now(state, at);
    u128 missing = missing_at(config, state, now) + (u128)amount * config->depth.unit;
    u128 most = 2 * config->depth.full;
    store_missing(state, now, missing < most ? missing : most);
}

static void give_back(const struct config *config, struct state *state, uint64_t now, u128 back)
{
    store_missing(state, now, sub_or_zero(missing_at(config, state, now), back));
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    (void)granted_ns;
    give_back(config, memory, effective_now(memory, at), (u128)amount * config->depth.unit);
}

/* With `every` what came since the grant are the steps since, and no grant was before the start,
 * though a clock that went back may say so. */
static void refund_strict(const void *bytes, void *memory, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t now = effective_now(state, at), since = max_u64(granted_ns, state->created);
    u128 back = (u128)amount * config->depth.unit;
    if (config->every == 0)
        back = strict_back(back, config->units, granted_ns, now);
    else if (since < now)
        back = sub_or_zero(back, steps_between(config, state, since, now));
    give_back(config, memory, now, back);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    u128 missing = missing_at(config, state, effective_now(state, at));
    return (uint64_t)(sub_or_zero(config->depth.full, missing) / config->depth.unit);
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    const struct state *old_state = old_memory;
    struct state *state = memory;
    uint64_t now = effective_now(old_state, at);
    u128 missing = missing_at(old, old_state, now);
    state->created = old_state->created;
    store_missing(state, now, carry_missing(&old->depth, missing, &config->depth));
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    if (u128_load(state->missing) > 2 * config->depth.full || state->created > state->last)
        return -1;
    return 0;
}

/* Steps are counted from the start, so a state with steps never decides like a later new one. A
 * limit that does not start full is new at one instant only. */
static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    return config->every == 0 && config->initial == config->depth.units &&
           state->last <= at->now_ns && missing_at(config, state, at->now_ns) == 0;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = TYPES_OF_RATES,
    .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
    .init = init,
    .ready_at = ready_at,
    .take = draw,
    .refund = refund,
    .charge = draw,
    .available = available,
    .reconfigure = reconfigure,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .refund_strict = refund_strict,
};

PLUGIN_TABLE("token_bucket", UINT64_C(0x2842883cf3aa332f),
             "a bucket filled at a steady rate; unused units are saved up to burst");

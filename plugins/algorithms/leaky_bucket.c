/* SPDX-License-Identifier: MIT */
/*
 * Leaky bucket: grants are poured into a bucket of C units that drains at the rate C/W. J. Turner:
 * "New directions in communications (or which way to the information age?)", IEEE Communications
 * Magazine 24 (10), 1986. It has two modes:
 *
 * - meter: n is granted if it does not overflow the bucket: level + n ≤ C.
 * - shaper: the units in the bucket leave one by one, exactly W/C apart. n is granted at
 *   the instant its first unit may leave, and the next request after its last: never a burst.
 *
 * The state is the instant at which the bucket will be empty, in ticks (exact.h). So a reader
 * computes no leak, and no remainder is lost. In mode shaper, an instant between two nanoseconds is
 * observed at the later one. A grant at that time counts from the exact instant, so the rate is
 * also met in the long run.
 */
#include "declare.h"

enum { INITIAL = WINDOW + 1, MODE };
enum { METER, SHAPER };

static const char *const modes[] = {"meter", "shaper", NULL};
static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("initial", 0,
                    "meter: units available at the start; default: an empty bucket, the capacity"),
    PARAMETER_CHOICE("mode", modes, "meter: grant what fits (default); shaper: space units evenly"),
};

struct config {
    struct bucket_depth depth;
    uint64_t units; /* ticks per ns */
    uint64_t initial;
    uint64_t mode;
    uint64_t reserved;
};

struct state {
    uint64_t empty[2]; /* ticks: instant at which the bucket is empty, or the next unit may leave */
    uint64_t last;     /* latest instant seen */
    uint64_t granted;  /* instant of the last grant */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = setup->values[CAPACITY]->value, initial;
    if (read_initial(setup, INITIAL, capacity, &initial, reterr) < 0)
        return -1;
    if (setup->values[MODE]->value == SHAPER && setup->values[INITIAL]->given)
        return refuse_parameter(reterr, INITIAL,
                                "has no meaning in mode shaper, where nothing is saved up");
    struct rate rate = rate_reduce(capacity, setup->values[WINDOW]->value);
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = capacity;
    if (bytes)
        *(struct config *)bytes = (struct config){.depth = bucket_depth_of(capacity, rate.span),
                                                  .units = rate.units,
                                                  .initial = initial,
                                                  .mode = setup->values[MODE]->value};
    return 0;
}

static uint64_t effective_now(const struct state *state, const struct weir_instant *at)
{
    return max_u64(at->now_ns, state->last);
}

static u128 level_at(const struct config *config, const struct state *state, uint64_t now)
{
    return sub_or_zero(u128_load(state->empty), (u128)config->units * now);
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct state *state = memory;
    u128 level = (u128)(config->depth.units - config->initial) * config->depth.unit;
    u128_store(state->empty, (u128)config->units * at->now_ns + level);
    state->last = state->granted = at->now_ns;
}

/* Returns the highest level at which `amount` is granted. */
static u128 room_for(const struct config *config, uint64_t amount)
{
    return config->mode == SHAPER ? 0 : (u128)(config->depth.units - amount) * config->depth.unit;
}

/* Returns what must drain before `amount` is granted. */
static u128 excess_at(const struct config *config, const struct state *state, uint64_t now,
                      uint64_t amount)
{
    u128 excess = sub_or_zero(level_at(config, state, now), room_for(config, amount));
    return excess;
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
    u128 excess = excess_at(config, state, now, amount);
    return excess == 0 ? at->now_ns : instant_after(now, ceil_div(excess, config->units));
}

/* Returns the instant from which a grant made now counts. In mode shaper, an instant within the
 * nanosecond that ends now could not be observed earlier: the schedule continues from it. */
static u128 start_at(const struct config *config, const struct state *state, uint64_t now)
{
    u128 empty = u128_load(state->empty), ticks = (u128)config->units * now;
    if (empty > ticks || (config->mode == SHAPER && ticks - empty < config->units))
        return empty;
    return ticks;
}

static void pour(const struct config *config, struct state *state, uint64_t now, uint64_t amount)
{
    u128 level = (u128)amount * config->depth.unit;
    u128_store(state->empty, start_at(config, state, now) + level);
    state->last = state->granted = now;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    struct state *state = memory;
    if (amount != 0)
        pour(bytes, state, effective_now(state, at), amount);
}

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
    u128 excess = excess_at(config, state, now, amount);
    if (excess != 0)
        return instant_after(now, ceil_div(excess, config->units));
    pour(config, state, now, amount);
    return at->now_ns;
}

/* Mode meter: lowers the level by what has not drained since the grant. */
static void refund_strict_meter(const struct config *config, struct state *state, uint64_t now,
                                uint64_t amount, uint64_t granted_ns)
{
    u128 level = level_at(config, state, now), back = (u128)amount * config->depth.unit;
    back = strict_back(back, config->units, granted_ns, now);
    u128_store(state->empty, (u128)config->units * now + sub_or_zero(level, back));
    state->last = now;
}

/*
 * Mode meter: lowers the level. Mode shaper: cancels the units of the last grant that have not left
 * yet, and later grants move up. The units of earlier grants have left, or their times are taken.
 */
static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t now = effective_now(state, at);
    u128 level = level_at(config, state, now), back = (u128)amount * config->depth.unit;
    state->last = now;
    if (level == 0)
        return;
    if (config->mode == SHAPER) {
        if (granted_ns != state->granted)
            return;
        u128 waiting = (level - 1) / config->depth.unit * config->depth.unit;
        back = back < waiting ? back : waiting;
    }
    u128_store(state->empty, (u128)config->units * now + sub_or_zero(level, back));
}

/* A shaper takes back only units that have not left, so its refund is strict already. */
static void refund_strict(const void *bytes, void *memory, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
    const struct config *config = bytes;
    if (config->mode == SHAPER)
        refund(bytes, memory, at, amount, granted_ns);
    else
        refund_strict_meter(config, memory, effective_now(memory, at), amount, granted_ns);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    u128 level = level_at(config, state, effective_now(state, at));
    if (config->mode == SHAPER)
        return level == 0 ? config->depth.units : 0;
    return (uint64_t)(sub_or_zero(config->depth.full, level) / config->depth.unit);
}

/* The units in the bucket stay there as far as they fit. Mode shaper spaces them anew. */
static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    const struct state *old_state = old_memory;
    struct state *state = memory;
    uint64_t now = effective_now(old_state, at);
    u128 level = rescale_up(level_at(old, old_state, now), old->depth.unit, config->depth.unit);
    if (level > config->depth.full)
        level = config->depth.full;
    u128_store(state->empty, (u128)config->units * now + level);
    state->last = now;
    state->granted = old_state->granted;
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    u128 furthest = (u128)config->units * state->last + config->depth.full;
    return u128_load(state->empty) <= furthest && state->granted <= state->last ? 0 : -1;
}

/* A limit that does not start empty is new at one instant only. In mode shaper an instant within
 * the current nanosecond still counts: see start_at(). */
static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    if (config->initial != config->depth.units || state->last > at->now_ns ||
        level_at(config, state, at->now_ns) != 0)
        return 0;
    return config->mode == METER ||
           start_at(config, state, at->now_ns) == (u128)config->units * at->now_ns;
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
    .refund_strict = refund_strict,
};

PLUGIN_TABLE("leaky_bucket", UINT64_C(0x29e0040b825d8ead),
             "a bucket that drains at a steady rate: a meter, or a shaper");

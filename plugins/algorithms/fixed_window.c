/* SPDX-License-Identifier: MIT */
/*
 * Fixed window: a counter that restarts with every window of length W, and grants up to C per
 * window. The oldest form of quota ("so many per day"). Up to 2C may pass around a boundary.
 *
 * The parameter `anchor` says when windows begin. `first_use`: with the first grant at or after the
 * end of the last window. `creation`: at multiples of W since the limit was made. `epoch`: at
 * multiples of W of wall-clock time. The wall clock may step. A forward step opens the window it
 * leads to. A backward step does not reopen a window that has ended: the current window lasts until
 * its end is reached again.
 */
#include "declare.h"

enum { INITIAL = WINDOW + 1, ANCHOR };
enum { FIRST_USE, CREATION, EPOCH };

static const char *const anchors[] = {"first_use", "creation", "epoch", NULL};
static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("initial", 0, "units available in the first window; default: the capacity"),
    PARAMETER_CHOICE("anchor", anchors,
                     "windows start at the first use (default), at multiples of window since "
                     "creation, or of wall-clock time in UTC (epoch)"),
};

struct config {
    uint64_t capacity, window, initial, anchor;
};

struct state {
    uint64_t created;
    uint64_t start;  /* of the window; epoch: no earlier grant counts in it */
    uint64_t number; /* epoch: of the window; first_use: 1 once a window has begun */
    uint64_t count;  /* units granted in the window */
    uint64_t last;   /* latest instant seen */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = setup->values[CAPACITY]->value, initial;
    if (read_initial(setup, INITIAL, capacity, &initial, reterr) < 0)
        return -1;
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = capacity;
    if (setup->values[ANCHOR]->value != EPOCH)
        ret->flags = WEIR_FOOTPRINT_NO_WALL;
    if (bytes)
        *(struct config *)bytes = (struct config){.capacity = capacity,
                                                  .window = setup->values[WINDOW]->value,
                                                  .initial = initial,
                                                  .anchor = setup->values[ANCHOR]->value};
    return 0;
}

/* Returns the number of the calendar window. All time before 1970 belongs to window 0. */
static uint64_t number_at(const struct config *config, uint64_t now, int64_t wall_offset_ns)
{
    i128 wall = (i128)now + wall_offset_ns;
    u128 number = wall < 0 ? 0 : (u128)wall / config->window;
    return number < UINT64_MAX ? (uint64_t)number : UINT64_MAX;
}

/* Returns the start of the window at `now`, for windows of this configuration since `created`. */
static uint64_t grid_start(const struct config *config, uint64_t created, uint64_t now)
{
    return now - (now - created) % config->window;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct state *state = memory;
    state->created = state->start = state->last = at->now_ns;
    state->count = config->capacity - config->initial;
    if (config->anchor == EPOCH)
        state->number = number_at(config, at->now_ns, at->wall_offset_ns);
    else
        state->number = config->anchor == FIRST_USE && state->count != 0;
}

/*
 * For anchor `epoch`: returns the first instant with grants that certainly belong to the window
 * entered at `now_ns`. A step of the wall clock may divide an instant between two windows. Grants
 * at that instant count for the earlier one.
 */
static uint64_t first_instant(const struct state *state, uint64_t now_ns)
{
    const int divided = state->last == now_ns && (state->count != 0 || state->start > now_ns);
    return now_ns + (divided ? 1 : 0);
}

/* Returns the state at `at`, in the current window. */
static struct state current_state(const struct config *config, const struct state *state,
                                  const struct weir_instant *at)
{
    struct state now = *state;
    now.last = max_u64(at->now_ns, state->last);
    if (config->anchor == EPOCH) {
        uint64_t number = number_at(config, now.last, at->wall_offset_ns);
        if (number <= state->number)
            return now;
        now.number = number;
        now.start = first_instant(state, now.last);
    } else {
        if (now.last - state->start < config->window)
            return now;
        now.number = 0;
        if (config->anchor == CREATION)
            now.start = grid_start(config, state->created, now.last);
    }
    now.count = 0;
    return now;
}

/* Returns the remaining length of the window of `now`, ns. */
static u128 window_ns_left(const struct config *config, const struct state *now,
                           int64_t wall_offset_ns)
{
    if (config->anchor != EPOCH)
        return config->window - (now->last - now->start);
    i128 end = ((i128)now->number + 1) * (i128)config->window - wall_offset_ns;
    return (u128)(end - (i128)now->last);
}

static uint64_t units_left(const struct config *config, const struct state *now)
{
    return now->count < config->capacity ? config->capacity - now->count : 0;
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    struct state now = current_state(bytes, memory, at);
    return units_left(bytes, &now);
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    if (amount > config->capacity)
        return WEIR_NEVER;
    struct state now = current_state(config, memory, at);
    if (amount == 0 || amount <= units_left(config, &now))
        return at->now_ns;
    return instant_after(now.last, window_ns_left(config, &now, at->wall_offset_ns));
}

/* Counts `amount` > 0 in the window of `now`. With anchor `first_use` this may open the window.
 * With `epoch` its first grant is its start for a later configuration: an empty state is as a new
 * one. */
static void store_grant(const struct config *config, struct state *state, struct state now,
                        uint64_t amount)
{
    if (config->anchor == FIRST_USE && now.number == 0) {
        now.number = 1;
        now.start = now.last;
    } else if (config->anchor == EPOCH && now.count == 0) {
        now.start = max_u64(now.start, now.last);
    }
    now.count += amount;
    *state = now;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    if (amount != 0)
        store_grant(bytes, memory, current_state(bytes, memory, at), amount);
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    if (amount > config->capacity)
        return WEIR_NEVER;
    if (amount == 0)
        return at->now_ns;
    struct state now = current_state(config, memory, at);
    if (amount > units_left(config, &now))
        return instant_after(now.last, window_ns_left(config, &now, at->wall_offset_ns));
    store_grant(config, memory, now, amount);
    return at->now_ns;
}

/* Refunds only within the window of the grant. Earlier grants no longer count. */
static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    struct state *state = memory;
    struct state now = current_state(bytes, state, at);
    if (granted_ns >= now.start)
        now.count = amount < now.count ? now.count - amount : 0;
    *state = now;
}

/* Carries the count of the current window into the current window of the new configuration. */
static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    struct state now = current_state(old, old_memory, at);
    if (config->anchor == EPOCH)
        now.number = number_at(config, now.last, at->wall_offset_ns);
    else if (config->anchor == CREATION)
        now.number = 0;
    else if (old->anchor != FIRST_USE)
        now.number = now.count != 0;
    if (config->anchor == CREATION)
        now.start = grid_start(config, now.created, now.last);
    else if (config->anchor == FIRST_USE && now.start > now.last)
        now.start = now.last;
    *(struct state *)memory = now;
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    const uint64_t ahead = config->anchor == EPOCH ? 1 : 0;
    if (state->created > state->start || state->count > AMOUNT_MAX)
        return -1;
    if (state->start > state->last && state->start - state->last > ahead)
        return -1;
    if (config->anchor == FIRST_USE && (state->number > 1 || state->number < (state->count != 0)))
        return -1;
    if (config->anchor == CREATION && (state->start - state->created) % config->window != 0)
        return -1;
    return 0;
}

/* A first_use window that has begun, and windows since creation, differ from those of a new state.
 * With `epoch`, a wall clock that is set back would reveal that the past was lost. */
static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    struct state now = current_state(config, state, at);
    if (state->last > at->now_ns || now.count != 0 || config->initial != config->capacity)
        return 0;
    if (config->anchor != EPOCH)
        return config->anchor == FIRST_USE && now.number == 0;
    if (now.number != number_at(config, at->now_ns, at->wall_offset_ns))
        return 0;
    /* Nothing is counted, so a refund has nothing to return in this window. But a new state would
     * not know of this instant's grants in the previous window. */
    return now.start <= at->now_ns;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = TYPES_OF_RATES,
    .flags = WEIR_ALGORITHM_WALL,
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

PLUGIN_TABLE("fixed_window", UINT64_C(0x2127feb9f4472599),
             "a counter per window; windows from the first use or on a calendar");

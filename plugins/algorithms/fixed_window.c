/* SPDX-License-Identifier: MIT */
/*
 * Fixed window: a counter that starts again with every window of length W, and up to C per window.
 * The oldest quota there is ("so many per day"); twice C may pass around a boundary.
 *
 * Windows begin, by `anchor`: with the first grant at or after the end of the last one (first_use),
 * at multiples of W since the limit was made (creation), or at multiples of W of wall-clock time
 * (epoch). The wall clock may step: forward opens the window it steps into; back does not reopen
 * one that has ended, the present one just lasts until its end comes again.
 */
#include "declare.h"

enum { INITIAL = WINDOW + 1, ANCHOR };
enum { FIRST_USE, CREATION, EPOCH };

static const char *const anchors[] = {"first_use", "creation", "epoch", NULL};
static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER("initial", WEIR_PARAMETER_AMOUNT, 0, AMOUNT_MAX,
              "units available in the first window; default: the capacity"),
    PARAMETER_CHOICE("anchor", anchors,
                     "windows start at the first use (default), at multiples of window since "
                     "creation, or of wall-clock time in UTC (epoch)"),
};

struct config {
    uint64_t capacity, window, initial, anchor;
};

struct state {
    uint64_t created;
    uint64_t start;  /* of the window; epoch: what was granted earlier is not of this window */
    uint64_t number; /* epoch: of the window; first_use: 1 once a window has begun */
    uint64_t count;  /* granted in the window */
    uint64_t last;   /* the last instant seen */
};

static int configure(const struct weir_value *values, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = values[CAPACITY].value, initial;
    if (read_initial(values, INITIAL, capacity, &initial, reterr) < 0)
        return -1;
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = capacity;
    if (bytes != NULL)
        *(struct config *)bytes = (struct config){.capacity = capacity,
                                                  .window = values[WINDOW].value,
                                                  .initial = initial,
                                                  .anchor = values[ANCHOR].value};
    return 0;
}

/* The number of the calendar window. All of the time before 1970 belongs to the first. */
static uint64_t number_at(const struct config *config, uint64_t now, int64_t wall_offset_ns)
{
    i128 wall = (i128)now + wall_offset_ns;
    u128 number = wall < 0 ? 0 : (u128)wall / config->window;
    return number < UINT64_MAX ? (uint64_t)number : UINT64_MAX;
}

/* Where windows of the length of `config` stand since `created`. */
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

/* Epoch: the first instant whose grants are surely of the window that is entered at `now_ns`. A wall
 * clock that steps may divide an instant: grants of the window before keep it for themselves. */
static uint64_t first_instant(const struct state *state, uint64_t now_ns)
{
    const int divided = state->last == now_ns && (state->count != 0 || state->start > now_ns);
    return now_ns + (divided ? 1 : 0);
}

/* The state as it is at `at`: in the present window. */
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

/* How long the window of `now` will last. */
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

/* Counts `amount`, more than 0, in the window of `now`; with FIRST_USE it may be what opens it. */
static void store_grant(const struct config *config, struct state *state, struct state now,
                        uint64_t amount)
{
    if (config->anchor == FIRST_USE && now.number == 0) {
        now.number = 1;
        now.start = now.last;
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

/* Within the window of the grant only: what is before it is no longer counted anyway. */
static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    struct state *state = memory;
    struct state now = current_state(bytes, state, at);
    if (granted_ns >= now.start)
        now.count = amount < now.count ? now.count - amount : 0;
    *state = now;
}

/* The count of the present window goes on in the window that is present by the new settings. */
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

/* A window that was begun lasts, and those since creation go on from it. A wall clock that is set back
 * would find that the past is forgotten. */
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
    /* Nothing counts, so nothing of this window is left to be given back. A new state would not
     * know that this instant has grants of the window before. */
    return now.start <= at->now_ns;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof algorithm,
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
};

PLUGIN_TABLE("fixed_window", "a counter per window; windows from the first use or on a calendar");

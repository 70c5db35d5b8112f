/* SPDX-License-Identifier: MIT */
/*
 * Calendar: so many units per day, week or month, by the local time of a zone. A counter that
 * restarts when the period does, whatever that lasts: a day of 23 or 25 hours, where a clock is set
 * forward or back, has the same capacity as any other. zone.h says when a period begins.
 *
 * As with the anchor `epoch` of fixed_window, the wall clock may step. A forward step opens the
 * period it leads to. A backward step does not reopen one that has ended: the present one lasts
 * until its end is reached again.
 */
#include "declare.h"
#include "tzif.h"

enum { PERIOD = CAPACITY + 1, ZONE, INITIAL };

#define NUMBER_MAX (UINT64_C(1) << 20) /* no instant is in a later period */
#define SECOND_NS  INT64_C(1000000000)

static const char *const periods[] = {"day", "week", "month", NULL};
static const struct weir_parameter parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "capacity",
     .type = WEIR_PARAMETER_AMOUNT,
     .flags = WEIR_PARAMETER_REQUIRED, /* a share of it would not know the zone */
     .min = 1,
     .max = AMOUNT_MAX,
     .doc = "units granted per period"},
    {.size = sizeof(struct weir_parameter),
     .name = "period",
     .type = WEIR_PARAMETER_CHOICE,
     .choices = periods,
     .doc = "a day (default), a week that begins on Monday, or a month"},
    {.size = sizeof(struct weir_parameter),
     .name = "zone",
     .type = WEIR_PARAMETER_ZONE,
     .doc = "the time zone by which they begin, as Europe/Berlin; default: UTC"},
    PARAMETER("initial", WEIR_PARAMETER_AMOUNT, 0, AMOUNT_MAX,
              "units available in the first period; default: the capacity"),
};

struct config {
    uint64_t capacity, period, initial;
    int64_t first_offset_s;
    uint64_t changes_n;
    struct zone_change changes[];
};

struct state {
    uint64_t start;  /* no earlier grant counts in the period */
    uint64_t number; /* of the period */
    uint64_t count;  /* units granted in it */
    uint64_t last;   /* latest instant seen */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    const struct weir_value *zone = setup->values[ZONE];
    uint64_t capacity = setup->values[CAPACITY]->value, initial;
    struct config *config = bytes;
    struct zone_changes changes = {.items = config ? config->changes : NULL};
    if (read_initial(setup, INITIAL, capacity, &initial, reterr) < 0)
        return -1;
    if (zone->zone && zone_parse_file(zone->zone, (size_t)zone->value, &changes) < 0)
        return refuse_parameter(reterr, ZONE,
                                "its file is damaged, of the first version of TZif, "
                                "or counts leap seconds");
    ret->config = sizeof(struct config) + changes.n * sizeof(struct zone_change);
    ret->state = sizeof(struct state);
    ret->amount_max = capacity;
    if (!config)
        return 0;
    config->capacity = capacity;
    config->period = setup->values[PERIOD]->value;
    config->initial = initial;
    config->changes_n = changes.n;
    config->first_offset_s = changes.first_offset_s;
    return 0;
}

/* Returns the zone, as long as the configuration is there. */
static struct zone zone_of(const struct config *config)
{
    return (struct zone){config->first_offset_s, config->changes_n, config->changes};
}

/* Returns the number of the period at an instant. All time before 1970 belongs to period 0. */
static uint64_t number_at(const struct config *config, uint64_t now, int64_t wall_offset_ns)
{
    const struct zone zone = zone_of(config);
    i128 wall = (i128)now + wall_offset_ns;
    return wall < 0 ? 0 : period_at(&zone, config->period, (int64_t)(wall / SECOND_NS));
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    struct state *state = memory;
    state->start = state->last = at->now_ns;
    state->count = config->capacity - config->initial;
    state->number = number_at(config, at->now_ns, at->wall_offset_ns);
}

/* Returns the state at `at`, in the current period. A step of the wall clock may divide an instant
 * between two periods; grants at that instant count for the earlier one. */
static struct state current_state(const struct config *config, const struct state *state,
                                  const struct weir_instant *at)
{
    struct state now = *state;
    now.last = max_u64(at->now_ns, state->last);
    uint64_t number = number_at(config, now.last, at->wall_offset_ns);
    if (number <= state->number)
        return now;
    now.number = number;
    now.start = now.last;
    if (state->last == now.last && (state->count != 0 || state->start > now.last))
        now.start++;
    now.count = 0;
    return now;
}

static uint64_t units_left(const struct config *config, const struct state *now)
{
    return now->count < config->capacity ? config->capacity - now->count : 0;
}

/* Returns the instant at which the period of `now` ends. */
static uint64_t ends_at(const struct config *config, const struct state *now,
                        int64_t wall_offset_ns)
{
    const struct zone zone = zone_of(config);
    i128 begin = (i128)period_begins_at(&zone, config->period, now->number + 1) * SECOND_NS;
    return instant_after(now->last, (u128)(begin - wall_offset_ns - (i128)now->last));
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
    if (amount <= units_left(config, &now))
        return at->now_ns;
    return ends_at(config, &now, at->wall_offset_ns);
}

/* Counts `amount` > 0 in the period of `now`. Its first grant is its start: an empty state is as a
 * new one, which may be forgotten and made anew. */
static void store_grant(struct state *state, struct state now, uint64_t amount)
{
    if (now.count == 0)
        now.start = max_u64(now.start, now.last);
    now.count += amount;
    *state = now;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    if (amount != 0)
        store_grant(memory, current_state(bytes, memory, at), amount);
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
        return ends_at(config, &now, at->wall_offset_ns);
    store_grant(memory, now, amount);
    return at->now_ns;
}

/* Refunds only within the period of the grant. Earlier grants no longer count. */
static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    struct state *state = memory;
    struct state now = current_state(bytes, state, at);
    if (granted_ns >= now.start)
        now.count = amount < now.count ? now.count - amount : 0;
    *state = now;
}

/* Carries the count of the current period into that of the new configuration. */
static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    struct state now = current_state(old_bytes, old_memory, at);
    now.number = number_at(bytes, now.last, at->wall_offset_ns);
    *(struct state *)memory = now;
}

static int check(const void *bytes, const void *memory)
{
    const struct state *state = memory;
    (void)bytes;
    if (state->number > NUMBER_MAX || state->count > AMOUNT_MAX)
        return -1;
    return state->start > state->last && state->start - state->last > 1 ? -1 : 0;
}

/* A wall clock that is set back would reveal that the past was lost. */
static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    struct state now = current_state(config, state, at);
    if (state->last > at->now_ns || now.count != 0 || config->initial != config->capacity)
        return 0;
    /* Nothing is counted. But a new state would not know of this instant's grants in the period
     * before. */
    return now.number == number_at(config, at->now_ns, at->wall_offset_ns) &&
           now.start <= at->now_ns;
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

PLUGIN_TABLE("calendar", UINT64_C(0x67c35d2a9e93661d),
             "so many per day, week or month, by the local time of a zone");

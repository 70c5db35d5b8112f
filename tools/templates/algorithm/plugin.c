/*
 * __NAME__: an algorithm for weir. It grants one unit each `interval` on average, up to `burst`
 * units at once, and leaves at least `gap` between two grants.
 *
 * This is the generic cell rate algorithm (ITU-T Recommendation I.371, annex A) with a gap. The
 * next unit is expected at the theoretical arrival time TAT, and units may be ahead of it by the
 * burst:
 *
 *     n is granted at t iff t >= next and max(TAT, t) + n * interval - t <= burst * interval;
 *     then TAT = max(TAT, t) + n * interval and next = t + gap.
 *
 * All values are whole nanoseconds, so nothing is rounded.
 */
#include <string.h>
#include <weir/algorithm.h>

enum { INTERVAL, BURST, GAP };

/* So that no sum of instants overflows before the end of the clock: 36 years. */
#define LONGEST_NS (UINT64_C(1) << 60)

static const struct weir_parameter parameters[] = {
    [INTERVAL] = {.size = sizeof(struct weir_parameter),
                  .name = "interval",
                  .type = WEIR_PARAMETER_DURATION,
                  .flags = WEIR_PARAMETER_REQUIRED,
                  .min = 1,
                  .max = LONGEST_NS,
                  .doc = "time in which one unit comes"},
    [BURST] = {.size = sizeof(struct weir_parameter),
               .name = "burst",
               .type = WEIR_PARAMETER_AMOUNT,
               .min = 1,
               .max = LONGEST_NS,
               .default_value = 1,
               .doc = "units that may come at once; default 1"},
    [GAP] = {.size = sizeof(struct weir_parameter),
             .name = "gap",
             .type = WEIR_PARAMETER_DURATION,
             .max = LONGEST_NS,
             .doc = "least time between two grants; default: none"},
};

struct config {
    uint64_t interval_ns, burst, gap_ns;
    uint64_t full_ns; /* burst * interval */
};

struct state {
    uint64_t tat_ns;  /* the theoretical arrival time; in the past: all of the burst is there */
    uint64_t next_ns; /* the end of the gap */
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    static const char too_long[] = "times `interval` is more than 36 years: make one of them less";
    struct config made = {.interval_ns = setup->values[INTERVAL]->value,
                          .burst = setup->values[BURST]->value,
                          .gap_ns = setup->values[GAP]->value};

    if (made.burst > LONGEST_NS / made.interval_ns) {
        reterr->parameter = BURST;
        memcpy(reterr->message, too_long, sizeof(too_long));
        return -1;
    }
    made.full_ns = made.burst * made.interval_ns;
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = made.burst;
    if (bytes)
        memcpy(bytes, &made, sizeof(made));
    return 0;
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the instant `wait_ns` after another one, or the last instant that there is. */
static uint64_t after(uint64_t instant, uint64_t wait_ns)
{
    return wait_ns < WEIR_INSTANT_MAX - instant ? instant + wait_ns : WEIR_INSTANT_MAX;
}

/* Returns how far TAT is ahead of `now`: the time after which all of the burst is there. */
static uint64_t ahead_of(const struct state *state, uint64_t now)
{
    return state->tat_ns > now ? state->tat_ns - now : 0;
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t ready = later_of(at->now_ns, state->next_ns), cost, spare;

    if (amount > config->burst)
        return WEIR_NEVER;
    cost = amount * config->interval_ns;
    spare = config->full_ns - cost;
    if (state->tat_ns > spare)
        ready = later_of(ready, state->tat_ns - spare);
    if (later_of(state->tat_ns, ready) > WEIR_INSTANT_MAX - cost) /* TAT would not exist */
        return at->now_ns < WEIR_INSTANT_MAX ? WEIR_INSTANT_MAX : WEIR_NEVER;
    return ready;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;

    state->tat_ns = later_of(state->tat_ns, at->now_ns) + amount * config->interval_ns;
    state->next_ns = after(at->now_ns, config->gap_ns);
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t ahead = ahead_of(state, at->now_ns), room = WEIR_INSTANT_MAX - at->now_ns;

    room = room < config->full_ns ? room : config->full_ns;
    if (state->next_ns > at->now_ns || ahead > room)
        return 0;
    return (room - ahead) / config->interval_ns;
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    uint64_t ready = ready_at(bytes, memory, at, amount);

    if (ready == at->now_ns)
        take(bytes, memory, at, amount);
    return ready;
}

/* Moves TAT back, at most to `now`: more than the burst is never there. The gap stays. */
static void give_back(struct state *state, uint64_t now, uint64_t back_ns)
{
    uint64_t ahead = ahead_of(state, now);

    state->tat_ns -= back_ns < ahead ? back_ns : ahead;
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;

    (void)granted_ns;
    give_back(memory, at->now_ns, amount * config->interval_ns);
}

/* Gives back less by the time since the grant, in which the units would have come anyway. */
static void refund_strict(const void *bytes, void *memory, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
    const struct config *config = bytes;
    uint64_t back = amount * config->interval_ns;
    uint64_t since = at->now_ns > granted_ns ? at->now_ns - granted_ns : 0;

    give_back(memory, at->now_ns, back > since ? back - since : 0);
}

/* Moves TAT on, at most to two bursts from now: then the debt is one burst. */
static void charge(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t ahead = ahead_of(state, at->now_ns), most = 2 * config->full_ns;
    uint64_t room = ahead < most ? most - ahead : 0;

    if (amount < room / config->interval_ns)
        room = amount * config->interval_ns;
    state->tat_ns = after(later_of(state->tat_ns, at->now_ns), room);
}

/* Returns whether the bytes can be a state. Another process may have written anything there. */
static int check(const void *bytes, const void *memory)
{
    const struct state *state = memory;

    (void)bytes;
    return state->tat_ns <= WEIR_INSTANT_MAX && state->next_ns <= WEIR_INSTANT_MAX ? 0 : -1;
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct state *state = memory;

    (void)bytes;
    return state->tat_ns <= at->now_ns && state->next_ns <= at->now_ns;
}

static const struct weir_gauge gauges[] = {
    {.size = sizeof(struct weir_gauge),
     .name = "recovery",
     .doc = "time until all of the burst is there",
     .type = WEIR_PARAMETER_DURATION},
};

static void observe(const void *bytes, const void *memory, const struct weir_instant *at,
                    uint64_t *ret)
{
    (void)bytes;
    ret[0] = ahead_of(memory, at->now_ns);
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL,
    .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
    .ready_at = ready_at,
    .take = take,
    .refund = refund,
    .charge = charge,
    .available = available,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .refund_strict = refund_strict,
    .gauges = gauges,
    .gauges_n = sizeof(gauges) / sizeof(gauges[0]),
    .observe = observe,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .parameters_n = sizeof(parameters) / sizeof(parameters[0]),
    .name = "__NAME__",
    .version = "0.1",
    .summary = "one unit each interval, some at once, and a gap between grants",
    .parameters = parameters,
    .ops = &algorithm,
    .state_id = UINT64_C(__STATE_ID__), /* a new one for each change of config or state */
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

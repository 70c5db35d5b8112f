// __NAME__: an algorithm for weir. It grants one unit each `interval` on average, up to `burst`
// units at once, and leaves at least `gap` between two grants.
//
// This is the generic cell rate algorithm (ITU-T Recommendation I.371, annex A) with a gap. The
// next unit is expected at the theoretical arrival time TAT, and units may be ahead of it by the
// burst:
//
//     n is granted at t iff t >= next and max(TAT, t) + n * interval - t <= burst * interval;
//     then TAT = max(TAT, t) + n * interval and next = t + gap.
//
// All values are whole nanoseconds, so nothing is rounded. Nothing of the library of C++ is linked.
#include <weir/algorithm.h>

namespace
{
enum { INTERVAL, BURST, GAP, PARAMETERS };

// So that no sum of instants overflows before the end of the clock: 36 years.
constexpr uint64_t longest_ns = UINT64_C(1) << 60;

struct config {
    uint64_t interval_ns, burst, gap_ns;
    uint64_t full_ns; // burst * interval
};

struct state {
    uint64_t tat_ns;  // the theoretical arrival time; in the past: all of the burst is there
    uint64_t next_ns; // the end of the gap
};

const config *config_of(const void *bytes)
{
    return static_cast<const config *>(bytes);
}

const state *state_of(const void *memory)
{
    return static_cast<const state *>(memory);
}

state *state_of(void *memory)
{
    return static_cast<state *>(memory);
}

int configure(const weir_setup *setup, void *bytes, weir_footprint *ret, weir_reason *reterr)
{
    static constexpr char too_long[] = "times `interval` is more than 36 years: make one of them "
                                       "less";
    config made = {setup->values[INTERVAL]->value, setup->values[BURST]->value,
                   setup->values[GAP]->value, 0};

    if (made.burst > longest_ns / made.interval_ns) {
        reterr->parameter = BURST;
        for (size_t i = 0; i < sizeof(too_long); i++)
            reterr->message[i] = too_long[i];
        return -1;
    }
    made.full_ns = made.burst * made.interval_ns;
    ret->config = sizeof(config);
    ret->state = sizeof(state);
    ret->amount_max = made.burst;
    if (bytes)
        *static_cast<config *>(bytes) = made;
    return 0;
}

uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// Returns the instant `wait_ns` after another one, or the last instant that there is.
uint64_t after(uint64_t instant, uint64_t wait_ns)
{
    return wait_ns < WEIR_INSTANT_MAX - instant ? instant + wait_ns : WEIR_INSTANT_MAX;
}

// Returns how far TAT is ahead of `now`: the time after which all of the burst is there.
uint64_t ahead_of(const state *state, uint64_t now)
{
    return state->tat_ns > now ? state->tat_ns - now : 0;
}

uint64_t ready_at(const void *bytes, const void *memory, const weir_instant *at, uint64_t amount)
{
    const auto *config = config_of(bytes);
    const auto *state = state_of(memory);
    uint64_t ready = later_of(at->now_ns, state->next_ns);

    if (amount > config->burst)
        return WEIR_NEVER;
    uint64_t cost = amount * config->interval_ns, spare = config->full_ns - cost;
    if (state->tat_ns > spare)
        ready = later_of(ready, state->tat_ns - spare);
    if (later_of(state->tat_ns, ready) > WEIR_INSTANT_MAX - cost) // TAT would not exist
        return at->now_ns < WEIR_INSTANT_MAX ? WEIR_INSTANT_MAX : WEIR_NEVER;
    return ready;
}

void take(const void *bytes, void *memory, const weir_instant *at, uint64_t amount)
{
    const auto *config = config_of(bytes);
    auto *state = state_of(memory);

    state->tat_ns = later_of(state->tat_ns, at->now_ns) + amount * config->interval_ns;
    state->next_ns = after(at->now_ns, config->gap_ns);
}

uint64_t available(const void *bytes, const void *memory, const weir_instant *at)
{
    const auto *config = config_of(bytes);
    const auto *state = state_of(memory);
    uint64_t ahead = ahead_of(state, at->now_ns), room = WEIR_INSTANT_MAX - at->now_ns;

    room = room < config->full_ns ? room : config->full_ns;
    if (state->next_ns > at->now_ns || ahead > room)
        return 0;
    return (room - ahead) / config->interval_ns;
}

uint64_t try_take(const void *bytes, void *memory, const weir_instant *at, uint64_t amount)
{
    uint64_t ready = ready_at(bytes, memory, at, amount);

    if (ready == at->now_ns)
        take(bytes, memory, at, amount);
    return ready;
}

// Moves TAT back, at most to `now`: more than the burst is never there. The gap stays.
void give_back(state *state, uint64_t now, uint64_t back_ns)
{
    uint64_t ahead = ahead_of(state, now);

    state->tat_ns -= back_ns < ahead ? back_ns : ahead;
}

void refund(const void *bytes, void *memory, const weir_instant *at, uint64_t amount, uint64_t)
{
    give_back(state_of(memory), at->now_ns, amount * config_of(bytes)->interval_ns);
}

// Gives back less by the time since the grant, in which the units would have come anyway.
void refund_strict(const void *bytes, void *memory, const weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    uint64_t back = amount * config_of(bytes)->interval_ns;
    uint64_t since = at->now_ns > granted_ns ? at->now_ns - granted_ns : 0;

    give_back(state_of(memory), at->now_ns, back > since ? back - since : 0);
}

// Moves TAT on, at most to two bursts from now: then the debt is one burst.
void charge(const void *bytes, void *memory, const weir_instant *at, uint64_t amount)
{
    const auto *config = config_of(bytes);
    auto *state = state_of(memory);
    uint64_t ahead = ahead_of(state, at->now_ns), most = 2 * config->full_ns;
    uint64_t room = ahead < most ? most - ahead : 0;

    if (amount < room / config->interval_ns)
        room = amount * config->interval_ns;
    state->tat_ns = after(later_of(state->tat_ns, at->now_ns), room);
}

// Returns whether the bytes can be a state. Another process may have written anything there.
int check(const void *, const void *memory)
{
    const auto *state = state_of(memory);

    return state->tat_ns <= WEIR_INSTANT_MAX && state->next_ns <= WEIR_INSTANT_MAX ? 0 : -1;
}

int is_new(const void *, const void *memory, const weir_instant *at)
{
    const auto *state = state_of(memory);

    return state->tat_ns <= at->now_ns && state->next_ns <= at->now_ns;
}

void observe(const void *, const void *memory, const weir_instant *at, uint64_t *ret)
{
    ret[0] = ahead_of(state_of(memory), at->now_ns);
}

// Structs are filled by name, one member after the other: those of a later header have more.
constexpr weir_parameter parameter(const char *name, uint32_t type, const char *doc)
{
    weir_parameter made{};
    made.size = sizeof(made);
    made.name = name;
    made.type = type;
    made.max = longest_ns;
    made.doc = doc;
    return made;
}

constexpr weir_parameter interval()
{
    weir_parameter made =
        parameter("interval", WEIR_PARAMETER_DURATION, "time in which one unit comes");
    made.flags = WEIR_PARAMETER_REQUIRED;
    made.min = 1;
    return made;
}

constexpr weir_parameter burst()
{
    weir_parameter made =
        parameter("burst", WEIR_PARAMETER_AMOUNT, "units that may come at once; default 1");
    made.min = 1;
    made.default_value = 1;
    return made;
}

constexpr weir_parameter parameters[PARAMETERS] = {
    interval(),
    burst(),
    parameter("gap", WEIR_PARAMETER_DURATION, "least time between two grants; default: none"),
};

constexpr weir_gauge recovery()
{
    weir_gauge made{};
    made.size = sizeof(made);
    made.name = "recovery";
    made.doc = "time until all of the burst is there";
    made.type = WEIR_PARAMETER_DURATION;
    return made;
}

constexpr weir_gauge gauges[] = {recovery()};

constexpr weir_algorithm make_algorithm()
{
    weir_algorithm made{};
    made.size = sizeof(made);
    made.types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL;
    made.flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_MONOTONE;
    made.configure = configure;
    made.ready_at = ready_at;
    made.take = take;
    made.refund = refund;
    made.charge = charge;
    made.available = available;
    made.check = check;
    made.try_take = try_take;
    made.is_new = is_new;
    made.refund_strict = refund_strict;
    made.gauges = gauges;
    made.gauges_n = 1;
    made.observe = observe;
    return made;
}

constexpr weir_algorithm algorithm = make_algorithm();

constexpr weir_plugin make_plugin()
{
    weir_plugin made{};
    made.size = sizeof(made);
    made.kind = WEIR_PLUGIN_ALGORITHM;
    made.parameters_n = PARAMETERS;
    made.name = "__NAME__";
    made.version = "0.1";
    made.summary = "one unit each interval, some at once, and a gap between grants";
    made.parameters = parameters;
    made.ops = &algorithm;
    made.state_id = UINT64_C(__STATE_ID__); // a new one for each change of config or state
    return made;
}

constexpr weir_plugin plugin = make_plugin();
constexpr const weir_plugin *plugins[] = {&plugin};

constexpr weir_plugin_table make_table()
{
    weir_plugin_table made{};
    made.size = sizeof(made);
    made.abi_minor = WEIR_PLUGIN_ABI_MINOR;
    made.plugins_n = 1;
    made.plugins = plugins;
    return made;
}
} // namespace

const weir_plugin_table weir_plugins_v1 = make_table();

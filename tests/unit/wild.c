/* SPDX-License-Identifier: MIT */
/*
 * Plugins that do what the project's own do not: a balancer that answers out of range, two that
 * read the views, one that follows the route, and some that answer as a test says (mirror.h); an
 * algorithm that never grants more than one unit,
 * though it announces a larger amount, one that time does not refill, but a refund, one that
 * sets the top bit of its word when it refunds, though it says that this bit is always clear; and
 * one of a resource, which each release leaves one unit smaller.
 */
#include "mirror.h"
#include "typed.h"
#include <weir/algorithm.h>
#include <weir/balancer.h>

static uint32_t pick_beyond(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    return request->sets_n + 1;
}

static const struct weir_set_view *view_at(const struct weir_pick *request, uint32_t i)
{
    return (const struct weir_set_view *)(const void *)((const char *)request->views +
                                                        i * request->view_size);
}

/* The set with the fewest holders and waiters together. */
static uint32_t pick_emptiest(const void *config, void *state, const struct weir_pick *request)
{
    uint32_t best = 0;
    (void)config, (void)state;
    for (uint32_t i = 1; i < request->sets_n; i++)
        if (view_at(request, i)->held + view_at(request, i)->waiting <
            view_at(request, best)->held + view_at(request, best)->waiting)
            best = i;
    return best;
}

/* The set that would grant first. */
static uint32_t pick_earliest(const void *config, void *state, const struct weir_pick *request)
{
    uint32_t best = 0;
    (void)config, (void)state;
    for (uint32_t i = 1; i < request->sets_n; i++)
        if (view_at(request, i)->ready_at_ns < view_at(request, best)->ready_at_ns)
            best = i;
    return best;
}

/* The caller's route. */
static uint32_t pick_route(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    return (uint32_t)(request->route % request->sets_n);
}

/* Writes down what it is told, and answers as the test says. */
static uint32_t pick_mirror(const void *config, void *state, const struct weir_pick *request)
{
    struct mirror *mirror = (struct mirror *)(uintptr_t)request->route; /* NOLINT */
    (void)config;
    *(uint64_t *)state = request->route;
    mirror->pick = *request;
    for (uint32_t i = 0; request->views && i < request->sets_n && i < 4; i++)
        mirror->views[i] = *view_at(request, i);
    return mirror->answers[mirror->picks_n++ % 16];
}

static void outcome_mirror(const void *config, void *state, const struct weir_pick_outcome *outcome)
{
    struct mirror *mirror = (struct mirror *)(uintptr_t) * (const uint64_t *)state; /* NOLINT */
    (void)config;
    mirror->outcomes[mirror->outcomes_n++ % 16] = *outcome;
}

static int configure_mirror(const struct weir_setup *setup, void *config,
                            struct weir_footprint *ret, struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->state = sizeof(uint64_t);
    return 0;
}

#define MIRROR(name_, flags_)                                                                      \
    static const struct weir_balancer name_##_ops = {.size = sizeof(name_##_ops),                  \
                                                     .flags = flags_,                              \
                                                     .configure = configure_mirror,                \
                                                     .pick = pick_mirror,                          \
                                                     .outcome = outcome_mirror};                   \
    static const struct weir_plugin name_##_plugin = {.size = sizeof(name_##_plugin),              \
                                                      .kind = WEIR_PLUGIN_BALANCER,                \
                                                      .name = #name_,                              \
                                                      .version = "1",                              \
                                                      .summary = "for tests",                      \
                                                      .ops = &name_##_ops}

MIRROR(mirror_blind, 0);
MIRROR(mirror_views, WEIR_BALANCER_VIEWS);
MIRROR(mirror_looks, WEIR_BALANCER_LOOKS);
MIRROR(mirror_ranks, WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS);

#define BALANCER(name_, flags_, pick_)                                                             \
    static const struct weir_balancer name_##_ops = {                                              \
        .size = sizeof(name_##_ops), .flags = flags_, .pick = pick_};                              \
    static const struct weir_plugin name_##_plugin = {.size = sizeof(name_##_plugin),              \
                                                      .kind = WEIR_PLUGIN_BALANCER,                \
                                                      .name = #name_,                              \
                                                      .version = "1",                              \
                                                      .summary = "for tests",                      \
                                                      .ops = &name_##_ops}

BALANCER(wild, 0, pick_beyond);
BALANCER(emptiest, WEIR_BALANCER_VIEWS, pick_emptiest);
BALANCER(earliest, WEIR_BALANCER_VIEWS, pick_earliest);
BALANCER(route, 0, pick_route);

#define ALGORITHM(name_, ...)                                                                      \
    static const struct weir_algorithm name_##_ops = {.size = sizeof(name_##_ops), __VA_ARGS__};   \
    static const struct weir_plugin name_##_plugin = {.size = sizeof(name_##_plugin),              \
                                                      .kind = WEIR_PLUGIN_ALGORITHM,               \
                                                      .name = #name_,                              \
                                                      .version = "1",                              \
                                                      .summary = "for tests",                      \
                                                      .ops = &name_##_ops}

static int configure_stingy(const struct weir_setup *setup, void *config,
                            struct weir_footprint *ret, struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->config = ret->state = 0;
    ret->amount_max = 10;
    return 0;
}

static uint64_t ready_stingy(const void *config, const void *state, const struct weir_instant *at,
                             uint64_t amount)
{
    (void)config, (void)state;
    return amount > 1 ? WEIR_NEVER : at->now_ns;
}

static void take_stingy(const void *config, void *state, const struct weir_instant *at,
                        uint64_t amount)
{
    (void)config, (void)state, (void)at, (void)amount;
}

static uint64_t available_stingy(const void *config, const void *state,
                                 const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
    return 1;
}

ALGORITHM(stingy, .types = 1u << WEIR_LIMIT_RATE, .configure = configure_stingy,
          .ready_at = ready_stingy, .take = take_stingy, .available = available_stingy);

static int configure_stock(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                           struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->config = 0;
    ret->state = sizeof(uint64_t);
    ret->amount_max = 10;
    return 0;
}

static uint64_t ready_stock(const void *config, const void *state, const struct weir_instant *at,
                            uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config;
    return *taken + amount <= 10 ? at->now_ns : WEIR_BLOCKED;
}

static void take_stock(const void *config, void *state, const struct weir_instant *at,
                       uint64_t amount)
{
    uint64_t *taken = state;
    (void)config, (void)at;
    *taken += amount;
}

static void refund_stock(const void *config, void *state, const struct weir_instant *at,
                         uint64_t amount, uint64_t granted_ns)
{
    uint64_t *taken = state;
    (void)config, (void)at, (void)granted_ns;
    *taken -= amount;
}

static uint64_t available_stock(const void *config, const void *state,
                                const struct weir_instant *at)
{
    const uint64_t *taken = state;
    (void)config, (void)at;
    return 10 - *taken;
}

ALGORITHM(stock, .types = 1u << WEIR_LIMIT_RATE, .flags = WEIR_ALGORITHM_REFUNDS,
          .configure = configure_stock, .ready_at = ready_stock, .take = take_stock,
          .refund = refund_stock, .available = available_stock);

static void refund_spill(const void *config, void *state, const struct weir_instant *at,
                         uint64_t amount, uint64_t granted_ns)
{
    uint64_t *taken = state;
    (void)config, (void)at, (void)amount, (void)granted_ns;
    *taken |= UINT64_C(1) << 63;
}

ALGORITHM(spill, .types = 1u << WEIR_LIMIT_RATE,
          .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_WORD, .configure = configure_stock,
          .ready_at = ready_stock, .take = take_stock, .refund = refund_spill,
          .available = available_stock);

/* Its low half is what is held, its high half how often something was released. */
static uint64_t ready_worn(const void *config, const void *state, const struct weir_instant *at,
                           uint64_t amount)
{
    const uint64_t *word = state;
    (void)config;
    return (*word >> 32) + (uint32_t)*word + amount <= 10 ? at->now_ns : WEIR_BLOCKED;
}

static uint64_t available_worn(const void *config, const void *state, const struct weir_instant *at)
{
    const uint64_t *word = state;
    (void)config, (void)at;
    return 10 - (*word >> 32) - (uint32_t)*word;
}

static void release_worn(const void *config, void *state, const struct weir_instant *at,
                         const struct weir_release *release)
{
    uint64_t *word = state;
    (void)config, (void)at;
    *word += (UINT64_C(1) << 32) - release->amount;
}

ALGORITHM(worn, .types = 1u << WEIR_LIMIT_RESOURCE, .flags = WEIR_ALGORITHM_WORD,
          .configure = configure_stock, .ready_at = ready_worn, .take = take_stock,
          .available = available_worn, .release = release_worn);

/* Keeps what it was told of releases, and says so in its gauges. Two units are granted only after
 * an overload: that is seen where gauges are not. */
enum { WITNESS_HELD, WITNESS_RELEASES, WITNESS_OUTCOME, WITNESS_LATENCY, WITNESS_WORDS };

static int configure_witness(const struct weir_setup *setup, void *config,
                             struct weir_footprint *ret, struct weir_reason *reterr)
{
    configure_stock(setup, config, ret, reterr);
    ret->state = WITNESS_WORDS * sizeof(uint64_t);
    return 0;
}

static uint64_t ready_witness(const void *config, const void *state, const struct weir_instant *at,
                              uint64_t amount)
{
    const uint64_t *words = state;
    (void)config;
    if (amount == 2 && words[WITNESS_OUTCOME] != WEIR_OUTCOME_OVERLOAD)
        return WEIR_BLOCKED;
    return words[WITNESS_HELD] + amount <= 10 ? at->now_ns : WEIR_BLOCKED;
}

static void release_witness(const void *config, void *state, const struct weir_instant *at,
                            const struct weir_release *release)
{
    uint64_t *words = state;
    (void)config, (void)at;
    words[WITNESS_HELD] -= release->amount;
    words[WITNESS_RELEASES]++;
    words[WITNESS_OUTCOME] = release->outcome;
    words[WITNESS_LATENCY] = release->latency_ns;
}

static void observe_witness(const void *config, const void *state, const struct weir_instant *at,
                            uint64_t *ret)
{
    const uint64_t *words = state;
    (void)config, (void)at;
    for (int i = 0; i < WITNESS_WORDS; i++)
        ret[i] = words[i];
}

static const struct weir_gauge witness_gauges[] = {
    {sizeof(struct weir_gauge), "held", "units held", WEIR_PARAMETER_AMOUNT, 0},
    {sizeof(struct weir_gauge), "releases", "releases seen", WEIR_PARAMETER_AMOUNT, 0},
    {sizeof(struct weir_gauge), "outcome", "of the last", WEIR_PARAMETER_AMOUNT, 0},
    {sizeof(struct weir_gauge), "latency", "of the last", WEIR_PARAMETER_DURATION, 0},
};
static const struct weir_algorithm witness_ops = {
    .size = sizeof(witness_ops),
    .types = 1u << WEIR_LIMIT_RESOURCE,
    .configure = configure_witness,
    .ready_at = ready_witness,
    .take = take_stock,
    .available = available_stock,
    .release = release_witness,
    .gauges = witness_gauges,
    .gauges_n = sizeof(witness_gauges) / sizeof(*witness_gauges),
    .observe = observe_witness,
};
static const struct weir_plugin witness_plugin = {
    .size = sizeof(witness_plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .name = "witness",
    .version = "1",
    .summary = "for tests",
    .ops = &witness_ops,
};

/* ---- an algorithm that has parameters of all types ---- */

static int configure_typed(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                           struct weir_reason *reterr)
{
    const struct weir_value *const *values = setup->values;
    struct typed_config *typed = config;
    configure_stock(setup, config, ret, reterr);
    ret->config = sizeof(*typed);
    if (!typed)
        return 0;
    typed->share = values[0]->value;
    typed->room = values[1]->value;
    for (uint64_t i = 0; i < values[2]->value && i < sizeof(typed->label); i++)
        typed->label[i] = values[2]->text[i];
    typed->steps_n = values[3]->items_n;
    for (uint32_t i = 0; i < values[3]->items_n && i < 4; i++)
        typed->steps[i] = values[3]->items[i]->value;
    return 0;
}

static const struct weir_algorithm typed_ops = {
    .size = sizeof(typed_ops),
    .types = 1u << WEIR_LIMIT_CALL,
    .configure = configure_typed,
    .ready_at = ready_stock,
    .take = take_stock,
    .available = available_stock,
};
static const struct weir_parameter typed_parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "share",
     .type = WEIR_PARAMETER_RATIO,
     .max = WEIR_RATIO_ONE,
     .default_value = WEIR_RATIO_ONE / 2},
    {.size = sizeof(struct weir_parameter),
     .name = "room",
     .type = WEIR_PARAMETER_SIZE,
     .flags = WEIR_PARAMETER_REQUIRED,
     .min = 1,
     .max = 1 << 20},
    {.size = sizeof(struct weir_parameter), .name = "label", .type = WEIR_PARAMETER_TEXT, .max = 7},
    {.size = sizeof(struct weir_parameter),
     .name = "steps",
     .type = WEIR_PARAMETER_DURATION,
     .flags = WEIR_PARAMETER_LIST,
     .min = 1,
     .max = UINT64_MAX},
};
static const struct weir_plugin typed_plugin = {
    .size = sizeof(typed_plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .parameters_n = 4,
    .name = "typed",
    .version = "1",
    .summary = "for tests",
    .parameters = typed_parameters,
    .ops = &typed_ops,
};

static int configure_weighing(const struct weir_setup *setup, void *config,
                              struct weir_footprint *ret, struct weir_reason *reterr)
{
    struct weighing_config *weighing = config;
    (void)reterr;
    ret->config = sizeof(*weighing);
    ret->state = 8;
    for (uint32_t i = 0; weighing && i < setup->sets_n && i < 4; i++) {
        weighing->weights[i] = setup->sets[i]->weight;
        weighing->costs[i] = setup->sets[i]->values[0]->value;
    }
    return 0;
}

static const struct weir_balancer weighing_ops = {
    .size = sizeof(weighing_ops), .configure = configure_weighing, .pick = pick_route};
static const struct weir_parameter weighing_parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "cost",
     .type = WEIR_PARAMETER_AMOUNT,
     .flags = WEIR_PARAMETER_PER_SET,
     .min = 1,
     .max = 100,
     .default_value = 7},
};
static const struct weir_plugin weighing_plugin = {
    .size = sizeof(weighing_plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .parameters_n = 1,
    .name = "weighing",
    .version = "1",
    .summary = "for tests",
    .parameters = weighing_parameters,
    .ops = &weighing_ops,
};

static const struct weir_plugin *const plugins[] = {
    &mirror_blind_plugin, &mirror_views_plugin, &mirror_looks_plugin, &mirror_ranks_plugin,
    &weighing_plugin,     &typed_plugin,        &wild_plugin,         &emptiest_plugin,
    &earliest_plugin,     &route_plugin,        &stingy_plugin,       &stock_plugin,
    &spill_plugin,        &worn_plugin,         &witness_plugin,
};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = sizeof(plugins) / sizeof(*plugins),
    .plugins = plugins,
};

/* SPDX-License-Identifier: MIT */
/*
 * Algorithms for the tests of configuration. `peculiar` serves rates and resources, can neither
 * refund nor charge, and, told so, misbehaves when it is configured. `lenient` is the same, but can
 * refund, though not strictly.
 */
#include <weir/algorithm.h>

enum { CAPACITY, CONDUCT, FLAG };
enum {
    SANE,
    HUGE_CONFIG,
    ODD_STATE,
    HUGE_STATE,
    NO_AMOUNT,
    CONTRADICTORY,
    REFUSES_TWICE,
    GRUMPY,
    NEWER
};

static const char *const conducts[] = {
    "sane",          "huge_config",   "odd_state", "huge_state", "no_amount",
    "contradictory", "refuses_twice", "grumpy",    "newer",      0};

static const struct weir_parameter parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "capacity",
     .type = WEIR_PARAMETER_AMOUNT,
     .min = 1,
     .max = 1000,
     .default_value = 7,
     .doc = "units"},
    {.size = sizeof(struct weir_parameter),
     .name = "conduct",
     .type = WEIR_PARAMETER_CHOICE,
     .choices = conducts,
     .doc = "how to behave"},
    {.size = sizeof(struct weir_parameter),
     .name = "flag",
     .type = WEIR_PARAMETER_BOOLEAN,
     .default_value = 1,
     .doc = "doubles the capacity"},
};

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    static const char grumble[] = "not today";
    uint64_t conduct = setup->values[CONDUCT]->value;
    if (conduct == GRUMPY || (conduct == REFUSES_TWICE && config)) {
        for (unsigned i = 0; i < sizeof(grumble); i++)
            reterr->message[i] = grumble[i];
        return -1;
    }
    ret->flags = conduct == NEWER ? UINT32_C(1) << 31 : UINT32_C(1) << 15;
    ret->config = conduct == HUGE_CONFIG ? WEIR_CONFIG_MAX + 1 : 8;
    ret->state = conduct == ODD_STATE ? 12 : conduct == HUGE_STATE ? WEIR_STATE_MAX : 24;
    ret->amount_max = conduct == NO_AMOUNT
                          ? 0
                          : setup->values[CAPACITY]->value * (1 + setup->values[FLAG]->value);
    if (conduct == CONTRADICTORY && config)
        ret->state = 32;
    if (config)
        *(uint64_t *)config = ret->amount_max;
    return 0;
}

static void init(const void *config, void *state, const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
}

static uint64_t ready_at(const void *config, const void *state, const struct weir_instant *at,
                         uint64_t amount)
{
    const uint64_t *capacity = config;
    (void)state;
    return amount > *capacity ? WEIR_NEVER : at->now_ns;
}

static void take(const void *config, void *state, const struct weir_instant *at, uint64_t amount)
{
    (void)config, (void)state, (void)at, (void)amount;
}

static void refund(const void *config, void *state, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    (void)config, (void)state, (void)at, (void)amount, (void)granted_ns;
}

static uint64_t available(const void *config, const void *state, const struct weir_instant *at)
{
    const uint64_t *capacity = config;
    (void)state, (void)at;
    return *capacity;
}

#define ALGORITHM(refund_)                                                                         \
    {                                                                                              \
        .size = sizeof(struct weir_algorithm),                                                     \
        .types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_RESOURCE, .configure = configure,        \
        .init = init, .ready_at = ready_at, .take = take, .refund = (refund_),                     \
        .available = available                                                                     \
    }
static const struct weir_algorithm peculiar = ALGORITHM(0), lenient = ALGORITHM(refund);

#define PLUGIN(name_, ops_)                                                                        \
    {                                                                                              \
        .size = sizeof(struct weir_plugin), .kind = WEIR_PLUGIN_ALGORITHM,                         \
        .parameters_n = sizeof(parameters) / sizeof(parameters[0]), .name = (name_),               \
        .version = "1.0", .summary = "for tests: misbehaves on request", .parameters = parameters, \
        .ops = (ops_)                                                                              \
    }
static const struct weir_plugin peculiar_plugin = PLUGIN("peculiar", &peculiar),
                                lenient_plugin = PLUGIN("lenient", &lenient);
static const struct weir_plugin *const plugins[] = {&peculiar_plugin, &lenient_plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 2,
    .plugins = plugins,
};

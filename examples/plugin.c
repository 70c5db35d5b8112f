/* SPDX-License-Identifier: MIT */
/*
 * A plugin as a third party writes one, against the installed headers alone: `acme.quota` grants so
 * many units in all, and then no more.
 *
 *     cc -std=c17 -fPIC -shared -fvisibility=hidden $(pkg-config --cflags weir-plugin) plugin.c \
 *         -o acme.quota.so
 *     weir plugins "$PWD"
 */
#include <weir/algorithm.h>

struct config {
    uint64_t capacity;
};

struct state {
    uint64_t used;
};

static const struct weir_parameter parameters[] = {{
    .size = sizeof(struct weir_parameter),
    .name = "capacity",
    .type = WEIR_PARAMETER_AMOUNT,
    .flags = WEIR_PARAMETER_REQUIRED,
    .min = 1,
    .max = INT64_MAX,
    .doc = "units granted in all",
}};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config *config = bytes;

    (void)reterr;
    ret->config = sizeof(struct config);
    ret->state = sizeof(struct state);
    ret->amount_max = setup->values[0]->value;
    if (config)
        config->capacity = setup->values[0]->value;
    return 0;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    struct state *state = memory;

    (void)bytes;
    (void)at;
    state->used = 0;
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;

    (void)at;
    return config->capacity - state->used;
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;

    if (amount > config->capacity)
        return WEIR_NEVER;
    return amount <= available(bytes, memory, at) ? at->now_ns : WEIR_BLOCKED;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    struct state *state = memory;

    (void)bytes;
    (void)at;
    state->used += amount;
}

static const struct weir_algorithm quota = {
    .size = sizeof(quota),
    .types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL,
    .configure = configure,
    .init = init,
    .ready_at = ready_at,
    .take = take,
    .available = available,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .parameters_n = 1,
    .name = "acme.quota",
    .version = "1.0",
    .summary = "so many units in all",
    .parameters = parameters,
    .ops = &quota,
    .state_id = UINT64_C(0x3f0c57d1a8e2946b), /* made once: od -An -N8 -tx8 /dev/urandom */
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

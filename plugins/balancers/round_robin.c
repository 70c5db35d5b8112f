/* SPDX-License-Identifier: MIT */
/* Round robin: the i-th pick (from 0) of worker w over n sets is (i + w) mod n. So workers that
 * start together begin at different sets. */
#include <weir/balancer.h>

struct state {
    uint64_t picks;
};

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->config = 0;
    ret->state = sizeof(struct state);
    ret->amount_max = 1;
    return 0;
}

static uint32_t pick(const void *config, void *memory, const struct weir_pick *request)
{
    (void)config;
    struct state *state = memory;
    uint64_t n = request->sets_n, worker = request->worker;
    return (uint32_t)((state->picks++ % n + worker) % n);
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .configure = configure,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "round_robin",
    .version = "1.0",
    .summary = "one set after the other; every worker starts at its own",
    .ops = &balancer,
    .state_id = UINT64_C(0x515478df9c92c214),
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

/* SPDX-License-Identifier: MIT */
/*
 * Random: all sets are equally likely. The core's 64 random bits are read as a fraction of 1 and
 * multiplied by n (D. Lemire: "Fast random integer generation in an interval", ACM TOMACS 29 (1),
 * 2019, without the rejection step). No set's probability differs from 1/n by more than 2^-64.
 */
#include <weir/balancer.h>

__extension__ typedef unsigned __int128 u128;

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    uint32_t n = request->sets_n;
    return (uint32_t)((u128)request->random * n >> 64);
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "random",
    .version = "1.0",
    .summary = "any set, all equally likely; the pool's seed makes it repeatable",
    .ops = &balancer,
    .state_id = UINT64_C(0x265ef00811f8fa63),
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

/* SPDX-License-Identifier: MIT */
/* A balancer that picks sets in turn, and, by a macro, one of several that break a promise. */
#include <string.h>
#include <weir/balancer.h>

struct state {
    uint64_t turn;
};

#define OPAQUE(value) __asm__ volatile("" : "+r"(value))

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)setup;
    (void)reterr;
    ret->config = 8;
    ret->state = sizeof(struct state);
#ifdef BROKEN_FOOTPRINT
    ret->state = 3;
#endif
    if (config)
        memcpy(config, &(uint64_t){1}, 8);
    return 0;
}

static uint32_t pick(const void *config, void *memory, const struct weir_pick *request)
{
    struct state *state = memory;

    (void)config;
#ifdef BROKEN_CONFIG_WRITTEN
    memset((void *)(uintptr_t)config, 0, 8);
#endif
#ifdef BROKEN_INDEX
    return (uint32_t)(state->turn++ % (request->sets_n + 1));
#endif
#ifdef BROKEN_VIEWS
    return (uint32_t)(request->views[0].held % request->sets_n);
#endif
#ifdef BROKEN_VIEWS_WRITTEN
    memset((void *)(uintptr_t)request->views, 0, 8);
#endif
#ifdef BROKEN_BEHIND_STATE
    memset((unsigned char *)memory + sizeof(*state), 1, 1);
#endif
#ifdef BROKEN_HIDDEN
    static uint64_t turns;
    return (uint32_t)(turns++ % request->sets_n);
#endif
#ifdef BROKEN_ADDRESS
    return (uint32_t)((uintptr_t)memory / 4096 % request->sets_n);
#endif
#ifdef BROKEN_UNINITIALIZED
    volatile uint64_t noise[64];
    return (uint32_t)(noise[32] % request->sets_n);
#endif
#ifdef BROKEN_BIAS
    return (uint32_t)(request->random % (request->sets_n > 2 ? request->sets_n - 1 : 1));
#endif
#ifdef BROKEN_LOOKS
    return WEIR_PICK_LOOK;
#endif
#ifdef BROKEN_ENDLESS
    for (uint64_t i = 1; i != 0;)
        OPAQUE(i);
#endif
#ifdef BROKEN_SLOW
    for (uint64_t i = 0; i < 200000; i++)
        OPAQUE(i);
#endif
    return (uint32_t)(state->turn++ % request->sets_n);
}

static const struct weir_balancer ops = {
    .size = sizeof(ops),
#ifdef BROKEN_LOOKS
    .flags = WEIR_BALANCER_LOOKS,
#endif
#ifdef BROKEN_VIEWS_WRITTEN
    .flags = WEIR_BALANCER_VIEWS,
#endif
    .configure = configure,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "acme.turns",
    .version = "1.0",
    .summary = "sets in turn, tested",
    .ops = &ops,
    .state_id = UINT64_C(0x2b9d43cf53a1706e),
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(struct weir_plugin_table),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

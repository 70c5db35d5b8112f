/* SPDX-License-Identifier: MIT */
/* A balancer that picks sets in turn, and, by a macro, one of several that break a promise. */
#include <string.h>
#include <weir/balancer.h>

#if defined(IS_WEIGHED) || defined(BROKEN_WEIGHTS_OF_LEAST) || defined(BROKEN_WEIGHTS_UNEVEN)
#define BY_WEIGHT
#define FLAGS WEIR_BALANCER_WEIGHS
#elif defined(BROKEN_WEIGHTS_IGNORED)
#define FLAGS WEIR_BALANCER_WEIGHS
#elif defined(BROKEN_LOOKS)
#define FLAGS WEIR_BALANCER_LOOKS
#elif defined(BROKEN_RANKS) || defined(BROKEN_RANKS_INDEX)
#define FLAGS (WEIR_BALANCER_VIEWS | WEIR_BALANCER_RANKS)
#elif defined(BROKEN_VIEW_SIZE) || defined(BROKEN_WEIGHTS_INVERTED) || defined(BROKEN_VIEWS_WRITTEN)
#define FLAGS WEIR_BALANCER_VIEWS
#else
#define FLAGS 0
#endif

struct state {
    uint64_t turn;
};

#define OPAQUE(value) __asm__ volatile("" : "+r"(value))

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)reterr;
#ifdef BY_WEIGHT
    uint64_t *shares = config; /* the sum of the weights up to each set */
    ret->config = setup->sets_n * sizeof(uint64_t);
    ret->state = sizeof(struct state);
    for (uint32_t i = 0; shares && i < setup->sets_n; i++)
        shares[i] = (i ? shares[i - 1] : 0) + setup->sets[i]->weight;
    return 0;
#endif
    (void)setup;
    ret->config = 8;
    ret->state = sizeof(struct state);
#ifdef BROKEN_FOOTPRINT
    ret->state = 3;
#endif
#ifdef BROKEN_FOOTPRINT_NEWER
    ret->flags = UINT32_C(1) << 16;
#endif
    if (config)
        memcpy(config, &(uint64_t){1}, 8);
    return 0;
}

#ifdef BY_WEIGHT
static uint32_t pick_by_weight(const uint64_t *shares, const struct weir_pick *request)
{
    uint64_t total = shares[request->sets_n - 1], at = request->random % total;
    uint32_t i = 0;

#ifdef BROKEN_WEIGHTS_UNEVEN
    at = at / 2 + (request->random >> 63) * at / 3; /* more of the first ones */
#endif
    while (i + 1 < request->sets_n && at >= shares[i])
        i++;
#ifdef BROKEN_WEIGHTS_OF_LEAST
    if (shares[i] - (i ? shares[i - 1] : 0) < total / request->sets_n / 2)
        i = (i + 1) % request->sets_n; /* one that weighs little gets nothing */
#endif
    return i;
}
#endif

#ifdef BROKEN_WEIGHTS_INVERTED
static uint32_t pick_lightest(const struct state *state, const struct weir_pick *request)
{
    uint32_t best = (uint32_t)(state->turn % request->sets_n);

    for (uint32_t i = 0; i < request->sets_n; i++) {
        const struct weir_set_view *view =
            (const void *)((const char *)request->views + i * request->view_size);
        const struct weir_set_view *of_best =
            (const void *)((const char *)request->views + best * request->view_size);

        if (view->weight < of_best->weight)
            best = i;
    }
    return best;
}
#endif

static uint32_t pick(const void *config, void *memory, const struct weir_pick *request)
{
    struct state *state = memory;

    (void)config;
#ifdef BY_WEIGHT
    return pick_by_weight(config, request);
#endif
#ifdef BROKEN_WEIGHTS_IGNORED
    return (uint32_t)(request->random % request->sets_n);
#endif
#ifdef BROKEN_WEIGHTS_INVERTED
    state->turn++;
    return pick_lightest(state, request);
#endif
#ifdef BROKEN_RANKS
    return (uint32_t)((state->turn + request->attempt / 2) % request->sets_n);
#endif
#ifdef BROKEN_RANKS_INDEX
    return (uint32_t)(state->turn % request->sets_n) + 2 * request->attempt;
#endif
#ifdef BROKEN_VIEW_SIZE
    uint32_t best = 0;
    for (uint32_t i = 1; i < request->sets_n; i++)
        if (request->views[i].available > request->views[best].available)
            best = i;
    return best;
#endif
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
#ifdef BROKEN_SYSTEM_CALL
    long call = 39;
    __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
#endif
#ifdef BROKEN_SLOW
    for (uint64_t i = 0; i < 200000; i++)
        OPAQUE(i);
#endif
    return (uint32_t)(state->turn++ % request->sets_n);
}

static void outcome(const void *config, void *memory, const struct weir_pick_outcome *outcome)
{
    (void)config;
    (void)outcome;
#ifdef BROKEN_OUTCOME
    memset((unsigned char *)memory + sizeof(struct state), 1, 1);
#endif
#ifdef BROKEN_OUTCOME_TABLE
    static const unsigned char costs[] = {0, 1};
    ((struct state *)memory)->turn += ((const volatile unsigned char *)costs)[outcome->result];
#endif
}

static const struct weir_balancer ops = {
    .size = sizeof(ops),
    .flags = FLAGS,
    .configure = configure,
    .pick = pick,
    .outcome = outcome,
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

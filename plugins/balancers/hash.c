/* SPDX-License-Identifier: MIT */
/*
 * Consistent hashing by rendezvous (D. Thaler, C. Ravishankar, "Using Name-Based Mappings to
 * Increase Hit Rates", IEEE/ACM ToN 6 (1), 1998): each set has a score for a route, a hash of the
 * route and of the set's id; the highest one wins. A set that comes takes over its share of routes,
 * and one that goes leaves its own to the others; no other route moves. The second choice is the
 * second score. With weights the score is the hash h as -weight / log h, h from 0 to 1
 * (Schindelhauer, Schomaker, "Weighted Distributed Hash Tables", SPAA 2005). A request without a
 * route goes to a random set, by the same shares.
 */
#include "views.h"

/* log2(1 + i/16), in parts of 2^26. */
static const uint32_t log_table[17] = {
    0,        5869532,  11403474, 16638134, 21604229, 26327977, 30831934, 35135648, 39256169,
    43208457, 47005714, 50659643, 54180672, 57578130, 60860398, 64035030, 67108864,
};

/* Mixes a route and an id (finalizer of SplitMix64: Steele, Lea, Flood, 2014). */
static uint64_t mix(uint64_t route, uint64_t id)
{
    uint64_t x = route * UINT64_C(0x9e3779b97f4a7c15) ^ id;

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns -log2(hash / 2^64) in parts of 2^26. */
static uint64_t minus_log(uint64_t hash)
{
    int zeros = __builtin_clzll(hash | 1);
    uint64_t fraction = (hash | 1) << zeros << 1; /* of the mantissa, 64 bits */
    uint32_t part = (uint32_t)(fraction >> 60);   /* 16 pieces, each a line */
    uint64_t within = fraction << 4 >> 38;        /* 26 bits */
    uint64_t low = log_table[part], high = log_table[part + 1];

    return ((uint64_t)(zeros + 1) << 26) - low - ((high - low) * within >> 26);
}

struct score {
    uint64_t hash, weight;
};

static int is_higher(const struct score *a, const struct score *b)
{
    __extension__ typedef unsigned __int128 u128;

    if (a->weight == b->weight)
        return a->hash > b->hash;
    return (u128)minus_log(a->hash) * b->weight < (u128)minus_log(b->hash) * a->weight;
}

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    uint64_t route = request->route ? request->route : request->random;
    uint32_t best = UINT32_MAX;
    struct score of_best = {0};

    for (uint32_t i = 0; i < request->sets_n; i++) {
        const struct weir_set_view *view = views_at(request, i);
        struct score score = {.hash = mix(route, view->id), .weight = view->weight};

        if (view->flags & WEIR_VIEW_TRIED)
            continue;
        if (best != UINT32_MAX && !is_higher(&score, &of_best))
            continue;
        best = i;
        of_best = score;
    }
    return best;
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS | WEIR_BALANCER_WEIGHS,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "hash",
    .version = "1.0",
    .summary = "one set for each route, the same in all workers, also when others come and go",
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

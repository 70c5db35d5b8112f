/* SPDX-License-Identifier: MIT */
/*
 * Least loaded: looks at all sets, and takes the one with the smallest part of its capacity in use,
 * divided by its weight; of sets that are not ready the one with the fewest waiters. Where sets are
 * alike, a random one: workers that start together spread.
 */
#include "views.h"

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    uint32_t n = request->sets_n;
    uint32_t start = views_draw((uint32_t)request->random, n);
    uint32_t best = views_next_untried(request, start);

    for (uint32_t i = 0, at = start; i < n; i++, at = at + 1 < n ? at + 1 : 0)
        if (!views_has(request, at, WEIR_VIEW_TRIED) && views_is_better(request, at, best))
            best = at;
    return best;
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_VIEWS | WEIR_BALANCER_RANKS,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "least_loaded",
    .version = "1.0",
    .summary = "the set with the smallest part of its capacity in use, by weight",
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

/* SPDX-License-Identifier: MIT */
/*
 * Soonest: looks at all sets, and takes the one that would grant first. One that is short of a
 * resource comes after those that have a forecast; of equal ones the one with the fewest waiters,
 * and then a random one.
 */
#include "views.h"

static int is_sooner(const struct weir_pick *request, uint32_t a, uint32_t b)
{
    const struct weir_set_view *x = views_at(request, a), *y = views_at(request, b);

    if (x->ready_at_ns != y->ready_at_ns)
        return x->ready_at_ns < y->ready_at_ns;
    return x->waiting < y->waiting;
}

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    uint32_t n = request->sets_n;
    uint32_t start = views_draw((uint32_t)request->random, n);
    uint32_t best = views_next_untried(request, start);

    for (uint32_t i = 0, at = start; i < n; i++, at = at + 1 < n ? at + 1 : 0)
        if (!views_has(request, at, WEIR_VIEW_TRIED) && is_sooner(request, at, best))
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
    .name = "soonest",
    .version = "1.0",
    .summary = "the set that would grant first",
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

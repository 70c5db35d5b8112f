/* SPDX-License-Identifier: MIT */
/*
 * Smooth weighted round robin: of each `total` picks a set gets as many as its weight, evenly
 * spread (nginx, ngx_http_upstream_round_robin.c, 2012). A pick adds to each set's credit its
 * weight, and takes `total` from the set that then has the most. So credits sum up to 0. Each
 * worker starts at another point of the sequence.
 */
#include "views.h"

enum { STEPS_MAX = 64 }; /* picks that a worker may be ahead at its start */

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)config, (void)reterr;
    ret->config = 0;
    ret->state = (uint64_t)setup->sets_n * sizeof(int64_t);
    ret->amount_max = 1;
    return 0;
}

static uint32_t step(int64_t *credits, const struct weir_pick *request)
{
    uint32_t best = 0;
    int64_t total = 0;

    for (uint32_t i = 0; i < request->sets_n; i++) {
        int64_t weight = (int64_t)views_at(request, i)->weight;

        credits[i] += weight;
        total += weight;
        if (credits[i] > credits[best])
            best = i;
    }
    credits[best] -= total;
    return best;
}

static void init(const void *config, void *state, const struct weir_pick *first)
{
    uint32_t steps = first->worker % (first->sets_n < STEPS_MAX ? first->sets_n : STEPS_MAX);

    (void)config;
    while (steps--)
        step(state, first);
}

/* Returns the set that is next in the sequence, of those that have not refused the request. */
static uint32_t pick_other(const int64_t *credits, const struct weir_pick *request)
{
    uint32_t best = views_next_untried(request, 0);

    for (uint32_t i = best + 1; i < request->sets_n; i++)
        if (!views_has(request, i, WEIR_VIEW_TRIED) && credits[i] > credits[best])
            best = i;
    return best;
}

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config;
    return request->attempt ? pick_other(state, request) : step(state, request);
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS | WEIR_BALANCER_WEIGHS,
    .configure = configure,
    .init = init,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "weighted",
    .version = "1.0",
    .summary = "one set after the other, each as often as its weight says, evenly spread",
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

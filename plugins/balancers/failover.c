/* SPDX-License-Identifier: MIT */
/*
 * Failover: the first set in the order of the pool that grants within `patience`; if none does, the
 * one that would grant first. A set that refused with an error other than having to wait (its
 * engine is away, it is broken) is passed over for `rest`, unless all are. It looks no further than
 * it has to.
 */
#include "views.h"
#include <errno.h>

struct config {
    uint64_t patience_ns, rest_ns;
};

enum { PARAMETER_PATIENCE, PARAMETER_REST };

static const struct weir_parameter parameters[] = {
    [PARAMETER_PATIENCE] = {.size = sizeof(struct weir_parameter),
                            .name = "patience",
                            .type = WEIR_PARAMETER_DURATION,
                            .max = WEIR_CLOCK_MAX,
                            .doc = "how far away a forecast grant may be; default: ready now"},
    [PARAMETER_REST] = {.size = sizeof(struct weir_parameter),
                        .name = "rest",
                        .type = WEIR_PARAMETER_DURATION,
                        .max = WEIR_CLOCK_MAX,
                        .doc = "how long a set that failed is passed over; default: not at all"},
};

static int configure(const struct weir_setup *setup, void *memory, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    struct config *config = memory;

    (void)reterr;
    ret->config = sizeof(*config);
    ret->state = (uint64_t)setup->sets_n * sizeof(uint64_t); /* of each set, until when it rests */
    ret->amount_max = 1;
    if (config)
        *config = (struct config){setup->values[PARAMETER_PATIENCE]->value,
                                  setup->values[PARAMETER_REST]->value};
    return 0;
}

/* Returns the set that would grant first, of those that may be asked. */
static uint32_t pick_soonest(const struct weir_pick *request, const uint64_t *rests_until)
{
    uint32_t best = request->sets_n;

    for (uint32_t i = 0; i < request->sets_n; i++) {
        if (views_has(request, i, WEIR_VIEW_TRIED) || rests_until[i] > request->now_ns)
            continue;
        if (best == request->sets_n ||
            views_at(request, i)->ready_at_ns < views_at(request, best)->ready_at_ns)
            best = i;
    }
    return best < request->sets_n ? best : views_next_untried(request, 0);
}

static uint32_t pick(const void *memory, void *state, const struct weir_pick *request)
{
    const struct config *config = memory;
    const uint64_t *rests_until = state;

    for (uint32_t i = 0; i < request->sets_n; i++) {
        const struct weir_set_view *view = views_at(request, i);

        if (view->flags & WEIR_VIEW_TRIED || rests_until[i] > request->now_ns)
            continue;
        if (!(view->flags & WEIR_VIEW_LIVE))
            return i | WEIR_PICK_LOOK;
        if (view->ready_at_ns < WEIR_BLOCKED &&
            view->ready_at_ns - request->now_ns <= config->patience_ns)
            return i;
    }
    return pick_soonest(request, rests_until);
}

static void outcome(const void *memory, void *state, const struct weir_pick_outcome *outcome)
{
    const struct config *config = memory;
    uint64_t *rests_until = state;

    if (outcome->result == -EHOSTUNREACH || outcome->result == -EUCLEAN)
        rests_until[outcome->index] = outcome->now_ns + config->rest_ns;
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS,
    .configure = configure,
    .pick = pick,
    .outcome = outcome,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "failover",
    .version = "1.0",
    .summary = "the first set in the pool's order that grants in time",
    .parameters_n = sizeof(parameters) / sizeof(*parameters),
    .parameters = parameters,
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

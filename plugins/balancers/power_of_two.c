/* SPDX-License-Identifier: MIT */
/*
 * Power of two choices: looks at two random sets, and takes the less loaded one (M. Mitzenmacher,
 * "The Power of Two Choices in Randomized Load Balancing", IEEE TPDS 12 (10), 2001). It costs the
 * same over many sets as over two, and workers that look at one moment do not all take the same
 * set.
 */
#include "views.h"

/* Draws two sets that have not refused the request; one and the same if there is only one. */
static void draw(const struct weir_pick *request, uint32_t *ret_a, uint32_t *ret_b)
{
    uint32_t n = request->sets_n;
    uint32_t a = views_draw((uint32_t)request->random, n);
    uint32_t b = a + 1 + views_draw((uint32_t)(request->random >> 32), n - 1);

    b = b < n ? b : b - n;
    if (request->attempt) {
        a = views_next_untried(request, a);
        b = views_next_untried(request, b);
    }
    *ret_a = a;
    *ret_b = b;
}

static uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state;
    uint32_t a, b;

    if (request->sets_n == 1)
        return 0;
    draw(request, &a, &b);
    if (a == b)
        return a;
    if (!views_has(request, a, WEIR_VIEW_LIVE))
        return a | WEIR_PICK_LOOK;
    if (!views_has(request, b, WEIR_VIEW_LIVE))
        return b | WEIR_PICK_LOOK;
    return views_is_better(request, b, a) ? b : a;
}

static const struct weir_balancer balancer = {
    .size = sizeof(balancer),
    .flags = WEIR_BALANCER_LOOKS | WEIR_BALANCER_RANKS,
    .pick = pick,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BALANCER,
    .name = "power_of_two",
    .version = "1.0",
    .summary = "the less loaded one of two random sets",
    .ops = &balancer,
};
static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

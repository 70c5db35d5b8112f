/* SPDX-License-Identifier: MIT */
/* Makes the configuration of a plugin of the values of its parameters. The plugin's answers are
 * checked, too. */
#include "os/os.h"
#include "plugin/plugin.h"
#include <errno.h>
#include <stdio.h>

void plugin_set_up(struct weir_setup *ret, const struct plugin *plugin,
                   const struct weir_value *const *values)
{
    ret->size = sizeof(*ret);
    ret->abi_minor = WEIR_PLUGIN_ABI_MINOR;
    ret->values_n = plugin->info.parameters_n;
    ret->values = values;
}

/* Calls a plugin's `configure` once. */
static int plugin_call_configure(const struct plugin *plugin, const struct weir_setup *setup,
                                 void *config, struct weir_footprint *ret,
                                 struct weir_reason *reterr)
{
    *ret = (struct weir_footprint){.size = sizeof(*ret)};
    *reterr = (struct weir_reason){.size = sizeof(*reterr), .parameter = UINT32_MAX};
    int r = plugin->info.kind == WEIR_PLUGIN_ALGORITHM
                ? plugin->algorithm.configure(setup, config, ret, reterr)
                : plugin->balancer.configure(setup, config, ret, reterr);
    reterr->message[sizeof(reterr->message) - 1] = '\0';
    return r == 0 ? 0 : -EINVAL;
}

/* Returns whether the plugin's claims about its own needs are possible. */
static bool plugin_footprint_is_possible(const struct plugin *plugin,
                                         const struct weir_footprint *footprint)
{
    if (footprint->config > WEIR_CONFIG_MAX || footprint->state > WEIR_STATE_MAX)
        return false;
    return footprint->state % 8 == 0 &&
           (plugin->info.kind == WEIR_PLUGIN_BALANCER || footprint->amount_max >= 1);
}

/* Returns whether the two calls of `configure` said the same. */
static bool plugin_footprints_are_equal(const struct weir_footprint *a,
                                        const struct weir_footprint *b)
{
    return a->config == b->config && a->state == b->state && a->amount_max == b->amount_max &&
           a->flags == b->flags;
}

static bool plugin_has_configure(const struct plugin *plugin)
{
    if (plugin->info.kind == WEIR_PLUGIN_BACKEND)
        return false;
    return plugin->info.kind == WEIR_PLUGIN_ALGORITHM ? plugin->algorithm.configure != NULL
                                                      : plugin->balancer.configure != NULL;
}

static int plugin_blame(struct weir_reason *reterr, const char *what)
{
    snprintf(reterr->message, sizeof(reterr->message), "%s", what);
    return -ENOEXEC;
}

int plugin_configure(const struct plugin *plugin, const struct weir_setup *setup, void **ret_config,
                     struct weir_footprint *ret, struct weir_reason *reterr)
{
    struct weir_footprint again;
    void *config;
    *ret = (struct weir_footprint){0};
    if (!plugin_has_configure(plugin))
        return 0;
    if (plugin_call_configure(plugin, setup, NULL, ret, reterr) != 0)
        return -EINVAL;
    if ((ret->flags & WEIR_FLAGS_NEEDED) != 0)
        return plugin_blame(reterr, "needs a newer weir");
    if (!plugin_footprint_is_possible(plugin, ret))
        return plugin_blame(reterr, "requests an impossible amount of memory");
    config = os_alloc_aligned(16, ret->config > 0 ? (size_t)ret->config : 16);
    if (!config)
        return -ENOMEM;
    if (plugin_call_configure(plugin, setup, config, &again, reterr) != 0 ||
        !plugin_footprints_are_equal(&again, ret)) {
        os_free(config);
        return plugin_blame(reterr, "contradicts itself when configured");
    }
    *ret_config = config;
    return 0;
}

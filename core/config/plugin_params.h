/* SPDX-License-Identifier: MIT */
/*
 * Parameters of plugins. Settings as given become values of the types that the plugin declares, and
 * the plugin makes its configuration of them. Every error becomes a complaint. Functions return 0
 * even if they complained, or -ENOMEM.
 */
#ifndef WEIR_CORE_CONFIG_PLUGIN_PARAMS_H
#define WEIR_CORE_CONFIG_PLUGIN_PARAMS_H

#include "config/config_ast.h"
#include "plugin/plugin.h"

/* The limit or pool that has the parameters. */
struct params_owner {
    struct mark mark;
    const struct settings *settings;
    const char *const *fields; /* other names that are allowed there */
    size_t fields_n;
    const char *name; /* name of the algorithm or balancer; NULL: unknown */
};

/* Values for one call of `configure`, and what is known of them. Reused for one owner after the
 * other. */
struct plugin_params {
    struct complaints *complaints;
    struct weir_value *values;
    const struct setting **settings; /* as given; NULL: default */
    bool *hinted; /* named in a hint for an unknown field; parameters, then fields */
    size_t capacity;
};

/* Assigns the settings to the plugin's parameters, and complains about settings that are no
 * parameter. `plugin` NULL: the plugin is unknown. */
int plugin_params_assign(struct plugin_params *params, const struct params_owner *owner,
                         const struct plugin *plugin);
/* Fills `params->values`. Sets `*ret_ok` to false if it complained. */
void plugin_params_read(struct plugin_params *params, const struct params_owner *owner,
                        const struct plugin *plugin, bool *ret_ok);
/* Makes the plugin's configuration in two calls of the plugin: one for its size, one for its bytes.
 * Sets `*ret_ok` to false if it complained; then there is no configuration. */
int plugin_params_configure(struct plugin_params *params, const struct params_owner *owner,
                            const struct plugin *plugin, uint32_t sets_n, void **ret_config,
                            struct weir_footprint *ret, bool *ret_ok);
void plugin_params_free(struct plugin_params *params);

#endif

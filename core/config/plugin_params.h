/* SPDX-License-Identifier: MIT */
/*
 * Parameters of plugins: settings as written become values that suit what the plugin declares, and
 * the plugin makes its configuration of them. Every mistake becomes a complaint; functions return 0
 * whether they complained or not, and -ENOMEM.
 */
#ifndef WEIR_CORE_CONFIG_PLUGIN_PARAMS_H
#define WEIR_CORE_CONFIG_PLUGIN_PARAMS_H

#include "config/config_ast.h"
#include "plugin/plugin.h"

/* The owner of parameters: a limit or a pool. */
struct params_owner {
    struct mark mark;
    const struct settings *settings;
    const char *const *fields; /* what else may be written there */
    size_t fields_n;
    const char *name; /* the algorithm's or balancer's name */
};

/* Values for one call of `configure`, and what else is known of them. One owner after the other. */
struct plugin_params {
    struct complaints *complaints;
    struct weir_value *values;
    const struct setting **settings; /* NULL: the default is used */
    bool *hinted; /* an unknown field was perhaps meant to be this one; fields follow parameters */
    size_t capacity;
};

/*
 * Assigns the settings to the plugin's parameters; complains of those that belong to none. `plugin`
 * NULL: it is not known.
 */
int plugin_params_assign(struct plugin_params *params, const struct params_owner *owner,
                         const struct plugin *plugin);
/* Fills parameters->values. `*ret_ok` false: something was complained about. */
void plugin_params_read(struct plugin_params *params, const struct params_owner *owner,
                        const struct plugin *plugin, bool *ret_ok);
/*
 * Lets the plugin make its configuration, in two calls: how large it is, then its bytes. `*ret_ok`
 * false: something was complained about; there is no configuration then.
 */
int plugin_params_configure(struct plugin_params *params, const struct params_owner *owner,
                            const struct plugin *plugin, uint32_t sets_n, void **ret_config,
                            struct weir_footprint *ret, bool *ret_ok);
void plugin_params_free(struct plugin_params *params);

#endif

/* SPDX-License-Identifier: MIT */
/* The table of plugins that a file exports: checked, and copied into complete structs of ours. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_ABI_H
#define WEIR_CORE_PLUGIN_PLUGIN_ABI_H

#include "plugin/plugin.h"

/* No struct of the ABI will ever be larger. */
#define ABI_STRUCT_MAX 4096u

#define PLUGINS_MAX           64u  /* in one file */
#define PLUGIN_PARAMETERS_MAX 64u  /* of one plugin */
#define PLUGIN_CHOICES_MAX    64u  /* of one parameter */
#define PLUGIN_NAME_MAX       64u  /* bytes of a name, of a plugin, parameter or choice */
#define PLUGIN_STRING_MAX     255u /* bytes of any other text */

/* One plugin of a file, in the two forms in which it is shown: to the core, and to a caller. */
struct plugin_entry {
    struct plugin plugin;
    struct weir_plugin info;
};

/* Why a table or a file is refused: one line that names the plugin if there is one to name. */
struct refusal_reason {
    char text[300];
};

/* [a-z0-9_]+, not longer than PLUGIN_NAME_MAX. Never a path. */
bool plugin_abi_is_name(const char *text);

/* "algorithm", "balancer". */
const char *plugin_abi_kind_name(enum weir_plugin_kind kind);

/*
 * Reads a table. Returns 0, -ENOEXEC (refused as a whole: `cause` says why) or -ENOMEM. On success
 * `ret` is an array of `*ret_n`, to be freed by plugin_abi_free; `path` is borrowed.
 */
int plugin_abi_read(const struct weir_plugin_table *table, const char *path,
                    struct plugin_entry **ret, uint32_t *ret_n, struct refusal_reason *reason);
void plugin_abi_free(struct plugin_entry *entries, uint32_t n);

#endif

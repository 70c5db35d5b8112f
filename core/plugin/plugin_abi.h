/* SPDX-License-Identifier: MIT */
/* Validation of the plugin ABI table that a file exports, and copying into complete structs. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_ABI_H
#define WEIR_CORE_PLUGIN_PLUGIN_ABI_H

#include "plugin/plugin.h"

/* Maximum size of any struct of the ABI, now and in the future. */
#define ABI_STRUCT_MAX 4096u

#define PLUGINS_MAX        64u  /* per file */
#define PLUGIN_CHOICES_MAX 64u  /* per parameter */
#define PLUGIN_NAME_MAX    64u  /* bytes in the name of a plugin, parameter or choice */
#define PLUGIN_STRING_MAX  255u /* bytes in any other text */

/* One plugin of a file in two forms: for the core, and for the user of the library. */
struct plugin_entry {
    struct plugin plugin;
    struct weir_plugin info;
};

/* Why a table or a file is refused: one line, which names the plugin if it has a name. */
struct refusal_reason {
    char text[300];
};

/* Returns whether `text` matches [a-z0-9_]+ and is at most PLUGIN_NAME_MAX bytes long. So it is
 * never a path. */
bool plugin_abi_is_name(const char *text);

/* Returns "algorithm" or "balancer". */
const char *plugin_abi_kind_name(enum weir_plugin_kind kind);

/* Reads a table. Returns 0, -ENOEXEC (refused as a whole; `reason` says why) or -ENOMEM. On success
 * `*ret` is an array of `*ret_n` entries, freed by plugin_abi_free(); `path` is borrowed. */
int plugin_abi_read(const struct weir_plugin_table *table, const char *path,
                    struct plugin_entry **ret, uint32_t *ret_n, struct refusal_reason *reason);
void plugin_abi_free(struct plugin_entry *entries, uint32_t n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Lists the built-in plugins. The build compiles this file a second time for the static library,
 * with the plugins' names in WEIR_BUILTIN_PLUGINS. There, the symbol of each plugin's table ends in
 * the plugin's name.
 */
#include "plugin/plugin_file.h"

#ifndef WEIR_BUILTIN_PLUGINS
#define WEIR_BUILTIN_PLUGINS(each)
#endif

#define DECLARE(name) extern const struct weir_plugin_table weir_plugins_v1_##name;
#define ENTRY(name)   {#name ".so", &weir_plugins_v1_##name},

/* clang-format off */
WEIR_BUILTIN_PLUGINS(DECLARE)

const struct plugin_builtin plugin_builtins[] = {
    WEIR_BUILTIN_PLUGINS(ENTRY)
    {NULL, NULL},
};

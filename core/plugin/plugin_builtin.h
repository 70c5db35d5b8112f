/* SPDX-License-Identifier: MIT */
/* The project's plugins inside the static library. For the search they form one more directory,
 * with a file NAME.so for each. The shared library has none, and loads files. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_BUILTIN_H
#define WEIR_CORE_PLUGIN_PLUGIN_BUILTIN_H

#include <stdbool.h>
#include <weir/plugin.h>

/* The name of that directory in paths and messages. */
#define PLUGIN_BUILTIN_DIR "<built in>"

struct plugin_builtin {
    const char *file; /* "gcra.so"; NULL: end of the list */
    const struct weir_plugin_table *table;
};

extern const struct plugin_builtin plugin_builtins[];

static inline bool plugin_builtin_any(void)
{
    return plugin_builtins[0].file != NULL;
}

#endif

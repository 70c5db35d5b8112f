/* SPDX-License-Identifier: MIT */
/*
 * Plugins: found by name in directories, checked, loaded, never unloaded. What the rest of the core
 * sees are complete tables: fields that a plugin's (shorter) structs lack are filled in.
 */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_H
#define WEIR_CORE_PLUGIN_PLUGIN_H

#include "base/error.h"
#include <weir/algorithm.h>
#include <weir/balancer.h>
#include <weir/instance.h>

/* One plugin, as loaded. Lives as long as its `struct plugins`. */
struct plugin {
    enum weir_plugin_kind kind;
    const char *name, *version, *summary;
    const char *path;                  /* of its file */
    struct weir_parameter *parameters; /* complete copies; strings belong to the file */
    uint32_t parameters_n;
    union {
        struct weir_algorithm algorithm;
        struct weir_balancer balancer;
    };
};

struct plugin_search; /* the directories of one instance and what was loaded from them */

/*
 * The search goes through `dirs` (NULL-terminated), WEIR_PLUGIN_PATH, the plugins built into a
 * static library, and the installed directory.
 */
int plugin_search_new(struct plugin_search **ret, const char *const *dirs);
/* Adds directories of a configuration, searched after `dirs` and before WEIR_PLUGIN_PATH. */
int plugin_search_add_dirs(struct plugin_search *plugins, const char *const *dirs, size_t n);
void plugin_search_free(struct plugin_search *plugins);

/*
 * The plugin of that kind and name. Returns 0; -ENOENT (in none of the directories), -ENOEXEC (a
 * file is there but refused), -EINVAL (not a name), -ENOMEM; `reterr` names file, plugin and cause,
 * and for an unknown name the closest known one. Not thread-safe: the caller holds the instance's
 * lock.
 */
int plugin_search_find(struct plugin_search *plugins, enum weir_plugin_kind kind, const char *name,
                       const struct plugin **ret, struct weir_error *reterr);

#endif

/* SPDX-License-Identifier: MIT */
/* Plugins: found by name in directories, checked, loaded, never unloaded. The rest of the core sees
 * complete structs: fields that an older plugin's shorter structs lack are filled in. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_H
#define WEIR_CORE_PLUGIN_PLUGIN_H

#include "base/error.h"
#include <stddef.h>
#include <weir/algorithm.h>
#include <weir/backend.h>
#include <weir/balancer.h>
#include <weir/instance.h>

#define PLUGIN_KINDS          (WEIR_PLUGIN_BACKEND + 1)
#define PLUGIN_PARAMETERS_MAX 64u /* per plugin */

extern const char *const plugin_kind_names[PLUGIN_KINDS];

/* A loaded plugin. Lives as long as its struct plugin_search. */
struct plugin {
    struct weir_plugin info;           /* complete; the strings belong to the file */
    const char *path;                  /* path of the plugin's file */
    struct weir_parameter *parameters; /* complete copies */
    struct weir_gauge *gauges;         /* complete copies */
    char *skipped; /* owned; why this library cannot use it, then only kind and name are valid; or
                    * NULL */
    union {
        struct weir_algorithm algorithm;
        struct weir_balancer balancer;
        struct weir_backend backend;
    };
};

/* Returns the plugin of an algorithm that a limit has. */
static inline const struct plugin *plugin_of_algorithm(const struct weir_algorithm *algorithm)
{
    return (const struct plugin *)((const char *)algorithm - offsetof(struct plugin, algorithm));
}

/* Fills `ret`, but for the fields about the owner. The values stay the caller's. */
void plugin_set_up(struct weir_setup *ret, const struct plugin *plugin,
                   const struct weir_value *const *values);

/*
 * Makes the configuration of a plugin of the values of its parameters, in two calls of the plugin:
 * one for its size, one for its bytes. A plugin without `configure` has no configuration and no
 * footprint. Returns 0; -EINVAL (it refuses them: `reterr` says why); -ENOEXEC (the plugin itself
 * is wrong: the message of `reterr` says what it does); -ENOMEM.
 */
int plugin_configure(const struct plugin *plugin, const struct weir_setup *setup, void **ret_config,
                     struct weir_footprint *ret, struct weir_reason *reterr);

struct plugin_file;
struct plugin_search; /* an instance's directories, and the files loaded from them */

/* Creates a search. Its order is `dirs` (NULL-terminated, or NULL), WEIR_PLUGIN_PATH, the plugins
 * built into a static library, and the installed directory. Returns 0 or -ENOMEM. */
int plugin_search_new(struct plugin_search **ret, const char *const *dirs);
/* Adds a directory of a configuration, unless it is known. It is searched after `dirs` and before
 * WEIR_PLUGIN_PATH. Returns 0 or -ENOMEM. */
int plugin_search_add_dir(struct plugin_search *plugins, const char *dir);
void plugin_search_free(struct plugin_search *plugins);

/*
 * Finds the plugin of a kind and name, and loads its file if necessary. Returns 0; -ENOENT (in none
 * of the directories); -ENOEXEC (the plugin, or a file of that name, is refused); -EINVAL (not a
 * name); -ENOMEM. `reterr` names file, plugin and reason; for an unknown name also the most similar
 * known one. Not thread-safe: the caller holds the instance's lock.
 */
int plugin_search_find(struct plugin_search *plugins, enum weir_plugin_kind kind, const char *name,
                       const struct plugin **ret, struct weir_error *reterr);

/* Callbacks return 0 to go on. Any other value becomes the result of plugin_search_visit(). */
struct plugin_visitor {
    int (*visit)(void *userdata, const struct plugin_file *file); /* see plugin_file.h */
    /* Called in its place, if it is not NULL, for each file that there may be: none is loaded. */
    int (*list)(void *userdata, const char *dir, const char *name);
    /* Reports a directory that cannot be read, with the negative errno; NULL: none is reported. An
     * absent directory is reported only if the program or its configuration named it. */
    int (*unreadable)(void *userdata, const char *dir, int code);
    void *userdata;
};

/* Visits every file in the order of the search. Returns 0, the value of a callback, or -ENOMEM. */
int plugin_search_visit(struct plugin_search *plugins, const struct plugin_visitor *visitor);

/* Returns the path of a file that would have the plugin's place if there was not the plugin: one of
 * a later directory, with another plugin of its kind and name. NULL: there is none, or it cannot be
 * looked at. Loads files. */
const char *plugin_search_hidden(struct plugin_search *plugins, const struct plugin *plugin);

#endif

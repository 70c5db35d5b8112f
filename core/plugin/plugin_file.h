/* SPDX-License-Identifier: MIT */
/* A plugin file: whether it may be trusted, whether it is a plugin, and its plugins. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_FILE_H
#define WEIR_CORE_PLUGIN_PLUGIN_FILE_H

#include "plugin/plugin.h"

#define PLUGIN_NAME_MAX 64u /* bytes in the name of a plugin, parameter or choice */

struct plugin_file {
    const char *dir; /* not owned */
    char *path;
    const char *name;          /* in `path`, behind `dir` */
    struct weir_error refusal; /* code 0: the file is accepted */
    struct plugin *plugins;
    uint32_t plugins_n;
    struct plugin_file *next; /* link of the owner's list */
};

/*
 * Checks the file NAME in DIR, and loads it if it passes. Returns 0 (accepted or refused: see
 * `refusal`), -ENOENT (no such file) or -ENOMEM.
 *
 * The file that was checked is the file that is loaded, as long as only root and the user can
 * replace files in the directory. That is checked too. Loading through a descriptor
 * (/proc/self/fd) would avoid that condition. But the dynamic linker identifies libraries by that
 * name: it would mistake the next file with the same number for the loaded one. Debuggers would not
 * find the file either.
 */
int plugin_file_load(struct plugin_file **ret, const char *dir, const char *name);
void plugin_file_free(struct plugin_file *file); /* the library stays loaded */

/* Refuses a file: fills `refusal` and returns -ENOEXEC. */
__attribute__((format(printf, 2, 3))) int plugin_file_refuse(struct plugin_file *file,
                                                             const char *format, ...);

/* Reads the ABI table that a file exports into `plugins` (plugin_abi.c). Returns 0, -ENOEXEC
 * (refused as a whole) or -ENOMEM. */
int plugin_abi_read(struct plugin_file *file, const struct weir_plugin_table *table);
/* Frees the file's plugins. */
void plugin_abi_free(struct plugin_file *file);

/* Returns whether `text` matches [a-z0-9_]+ and is at most PLUGIN_NAME_MAX bytes long. */
bool plugin_abi_is_name(const char *text);
/* Returns whether `text` is two such names with a dot between, or one. So it is never a path. */
bool plugin_abi_is_plugin_name(const char *text);

/*
 * The project's plugins inside the static library (plugin_builtin.c). For the search they form one
 * more directory, with a file NAME.so for each. The shared library has none, and loads files.
 */
struct plugin_builtin {
    const char *file; /* "gcra.so"; NULL: end of the list */
    const struct weir_plugin_table *table;
};
extern const struct plugin_builtin plugin_builtins[];

/* The name of that directory in paths and messages. */
#define PLUGIN_BUILTIN_DIR "<built in>"

#endif

/* SPDX-License-Identifier: MIT */
/* A plugin file: whether it may be trusted, whether it is a plugin, and its plugins. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_FILE_H
#define WEIR_CORE_PLUGIN_PLUGIN_FILE_H

#include "plugin/plugin_abi.h"

struct plugin_file {
    char *path;
    struct weir_error refusal; /* code 0: the file is accepted */
    struct plugin_entry *entries;
    uint32_t entries_n;
    struct plugin_file *next; /* link of the owner's list */
};

/*
 * Checks the file NAME in DIRECTORY, and loads it if it passes. Returns 0 (accepted or refused: see
 * `refusal`), -ENOENT (no such file) or -ENOMEM.
 *
 * The file that was checked is the file that is loaded, as long as only root and the user can
 * replace files in the directory. That is checked too. Loading through a descriptor
 * (/proc/self/fd) would avoid that condition. But the dynamic linker identifies libraries by that
 * name: it would mistake the next file with the same number for the loaded one. Debuggers would not
 * find the file either.
 */
int plugin_file_load(struct plugin_file **ret, const char *directory, const char *name);
void plugin_file_free(struct plugin_file *file); /* the library stays loaded */

#endif

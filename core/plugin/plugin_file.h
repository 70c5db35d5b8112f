/* SPDX-License-Identifier: MIT */
/* One plugin file: whether it may be trusted, whether it is one, and what is in it. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_FILE_H
#define WEIR_CORE_PLUGIN_PLUGIN_FILE_H

#include "plugin/plugin_abi.h"

struct plugin_file {
    char *path;
    struct weir_error refusal; /* code 0: the file is accepted */
    struct plugin_entry *entries;
    uint32_t entries_n;
    struct plugin_file *next; /* the owner's */
};

/*
 * Looks at the file NAME in DIRECTORY, and loads it if everything is right with it. Returns 0
 * (accepted or refused: see `refusal`), -ENOENT (there is no such file) or -ENOMEM.
 *
 * What was checked is what is loaded, as far as the directory goes: nobody but root and the user
 * can replace a file in it. Loading through a descriptor (/proc/self/fd) would not rest on that,
 * but the dynamic linker knows libraries by that name, and would take the next file that gets the
 * same number for one it has already; debuggers would not find the file either.
 */
int plugin_file_load(struct plugin_file **ret, const char *directory, const char *name);
void plugin_file_free(struct plugin_file *file); /* what was loaded stays loaded */

#endif

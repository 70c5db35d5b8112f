/* SPDX-License-Identifier: MIT */
/*
 * A look at a plugin file in a process of its own. Whatever the file does when it is loaded, as
 * crash, hang or end the process, the command goes on and says so.
 */
#ifndef WEIR_TOOLS_PLUGIN_LOOK_H
#define WEIR_TOOLS_PLUGIN_LOOK_H

#include <stdbool.h>
#include <stdio.h>
#include <weir/plugin.h>
#include <weir/weir.h>

enum look_outcome { LOOK_PLUGIN, LOOK_SKIPPED, LOOK_REFUSED, LOOK_OUTCOMES };

/* What is known of a plugin, or of a file that is refused. */
struct look {
    char *path;
    enum look_outcome outcome;
    uint32_t kind; /* of a plugin, like the next */
    uint64_t state_id;
    char name[72], version[256];
    char *text; /* what `render` wrote */
    size_t text_size;
};

struct looks {
    struct look *items;
    size_t n;
    /* Writes the entry, in the process that loads the file. */
    void (*render)(FILE *out, const struct weir_plugin_info *info);
};

/* Adds what a file has. Returns 0, or a negative errno: no process can be had, or no memory. */
int looks_add_file(struct looks *looks, const char *path, uint64_t timeout_ns);
/* Adds a file or directory that is refused. Returns 0 or -ENOMEM. */
int looks_add_refusal(struct looks *looks, const char *path, const struct weir_error *refusal);
void looks_free(struct looks *looks);

/* Returns the plugin of this kind and name that is used, as the library finds it. */
const struct look *looks_used(const struct looks *looks, const struct look *plugin);
/* Returns whether the plugin is hidden by another one, with the name in its place. */
bool looks_is_hidden(const struct looks *looks, const struct look *plugin);

#endif

/* SPDX-License-Identifier: MIT */
/* Iteration over all plugin files of an instance's directories. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_SEARCH_H
#define WEIR_CORE_PLUGIN_PLUGIN_SEARCH_H

#include "plugin/plugin_file.h"

/* Callbacks return 0 to go on. Any other value becomes the result of plugin_search_visit(). */
struct plugin_visitor {
    int (*visit)(void *userdata, const struct plugin_file *file);
    /* Reports a directory that cannot be read, with the negative errno. An absent directory is
     * reported only if the program or its configuration named it. */
    int (*unreadable)(void *userdata, const char *dir, int code);
    void *userdata;
};

/* Visits every file in the order of the search. Returns 0, the value of a callback, or -ENOMEM. */
int plugin_search_visit(struct plugin_search *plugins, const struct plugin_visitor *visitor);

#endif

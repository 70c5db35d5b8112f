/* SPDX-License-Identifier: MIT */
/* All plugin files of an instance's directories, one after the other. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_SEARCH_H
#define WEIR_CORE_PLUGIN_PLUGIN_SEARCH_H

#include "plugin/plugin_file.h"

/* Both return 0 to go on, or what plugin_search_visit is to return. */
struct plugin_visitor {
    int (*visit)(void *userdata, const struct plugin_file *file);
    /* A directory that cannot be read, and why (a negative errno); an absent one only if the
     * program or its configuration named it. */
    int (*unreadable)(void *userdata, const char *dir, int code);
    void *userdata;
};

/* Visits every file in the order of the search. Returns 0, what a visit returned, or -ENOMEM. */
int plugin_search_visit(struct plugin_search *plugins, const struct plugin_visitor *visitor);

#endif

/* SPDX-License-Identifier: MIT */
/* A set `api` on the Redis server of a test, at the path of a socket or a URL. */
#ifndef WEIR_TESTS_SERVER_SET_H
#define WEIR_TESTS_SERVER_SET_H

#include "lib/require.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

/* Opens an instance with these fields of the backend, and these of the set, in YAML's flow style.
 * Ends the program if that fails. */
static inline void server_set_open(weir **ret_w, weir_pool **ret_pool, const char *plugin,
                                   const char *path, const char *backend, const char *set)
{
    char text[2048];
    struct weir_error error;
    struct weir_options options = {.size = sizeof(options), .text = text};

    snprintf(text, sizeof(text),
             "version: 1\nplugin_dirs: [ \"%.*s\" ]\n"
             "backends: { main: { type: redis, url: \"%s%s\", %s } }\n"
             "sets: { api: { backend: main, %s } }\n",
             (int)(strrchr(plugin, '/') - plugin), plugin, strstr(path, "://") ? "" : "unix://",
             path, backend, set);
    if (weir_open(ret_w, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    require(weir_pool_open(ret_pool, *ret_w, "api", 0, NULL) == 0);
}

#endif

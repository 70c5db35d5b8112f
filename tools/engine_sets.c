/* SPDX-License-Identifier: MIT */
/* The sets of a configuration that engines keep. */
#include "engine_sets.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Nothing is written besides what a command shows: an engine that is away shows there. */
static void drop_log(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata, (void)level, (void)message;
}

int engine_sets_open(struct engine_sets *sets, const struct source *source,
                     struct weir_error *reterr)
{
    struct weir_options options = source_options(source);
    const char *log = secure_getenv("WEIR_LOG"); /* then the library writes */
    int r;

    if (sets->w || (!source->file && !secure_getenv("WEIR_CONFIG")))
        return 0;
    options.flags = WEIR_OPEN_APART;
    options.log = log && *log ? NULL : drop_log;
    r = weir_open(&sets->w, &options, reterr);
    /* A configuration of the environment need not be one, if the command line says where sets are.
     */
    return r < 0 && !source->file && source->process_dir ? 0 : r;
}

/* A pool has another name than its sets. */
static bool is_engine_set(const weir_set *set, const char *name)
{
    struct weir_set_info info = {.size = sizeof(info)};

    weir_set_info(set, &info);
    return strcmp(weir_set_name(set), name) == 0 && strcmp(info.backend, "thread") != 0 &&
           strcmp(info.backend, "process") != 0;
}

int engine_sets_find(const struct engine_sets *sets, const char *name, weir_pool **ret)
{
    int r = weir_pool_open(ret, sets->w, name, 0, NULL);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (is_engine_set(weir_pool_set(*ret, 0), name))
        return 1;
    *ret = weir_pool_close(*ret);
    return 0;
}

static int look_at(const struct engine_sets *sets, const char *name,
                   int (*found)(void *userdata, const char *name, weir_set *set), void *userdata)
{
    weir_pool *pool = NULL;
    int r = engine_sets_find(sets, name, &pool);

    if (r > 0)
        r = found(userdata, name, weir_pool_set(pool, 0));
    weir_pool_close(pool);
    return r;
}

int engine_sets_each(const struct engine_sets *sets,
                     int (*found)(void *userdata, const char *name, weir_set *set), void *userdata)
{
    int n = sets->w ? weir_sets(sets->w, NULL, 0) : 0, r = 0;
    const char **names;

    if (n <= 0)
        return n;
    names = calloc((size_t)n, sizeof(*names));
    if (!names)
        return -ENOMEM;
    weir_sets(sets->w, names, (size_t)n);
    for (int i = 0; i < n && r == 0; i++)
        r = look_at(sets, names[i], found, userdata);
    free(names);
    return r;
}

void engine_sets_close(struct engine_sets *sets)
{
    weir_close(sets->w);
    *sets = (struct engine_sets){0};
}

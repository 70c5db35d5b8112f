/* SPDX-License-Identifier: MIT */
/* The sets of a configuration that engines keep: for processes of any machine. */
#ifndef WEIR_TOOLS_ENGINE_SETS_H
#define WEIR_TOOLS_ENGINE_SETS_H

#include "source.h"

/* An instance that asks the engines. It stays open from one look to the next, so that an engine
 * that is away is waited for once only. All zero: not opened yet. */
struct engine_sets {
    weir *w;
};

/* Opens it, unless it is open. Returns 0, also without a configuration (then `w` is NULL), or a
 * negative errno with the reason. */
int engine_sets_open(struct engine_sets *sets, const struct source *source,
                     struct weir_error *reterr);

/* Calls `found` for each set that an engine keeps, with its name, until one call returns another
 * value than 0. Returns that value, or a negative errno. */
int engine_sets_each(const struct engine_sets *sets,
                     int (*found)(void *userdata, const char *name, weir_set *set), void *userdata);

/* Opens the set of this name if an engine keeps it. Returns 1, with the pool, which the caller
 * closes; 0: there is none; or a negative errno. */
int engine_sets_find(const struct engine_sets *sets, const char *name, weir_pool **ret);

void engine_sets_close(struct engine_sets *sets);

#endif

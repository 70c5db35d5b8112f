/* SPDX-License-Identifier: MIT */
/*
 * What the parts of resolving share: resolve.c (names, plugins) and one file each for sets, limits
 * and pools. Every mistake becomes a complaint; functions return 0 whether they complained or not,
 * and -ENOMEM.
 */
#ifndef WEIR_CORE_CONFIG_RESOLVE_H
#define WEIR_CORE_CONFIG_RESOLVE_H

#include "base/str_map.h"
#include "config/plan.h"
#include "config/plugin_params.h"
#include <errno.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct resolver {
    const struct definition *definition;
    struct plugins *plugins;
    const struct known_names *known;
    struct plan *plan;
    struct complaints *complaints;

    struct names set_names, pool_names; /* of the plan */
    struct names algorithms, balancers;
    struct found *found;         /* all that `algorithms` and `balancers` name */
    const char **set_candidates; /* names of all sets, once a hint was wanted */
    size_t comparisons;          /* made for such hints */
    struct parameters parameters;
};

#define say(resolver, code, mark, ...)                                                             \
    ((void)complain((resolver)->complaints, code_for((mark), (code)), (mark), __VA_ARGS__))

/* In a text every mistake is one of the configuration; in code it may be about what exists. */
static inline int code_for(struct mark mark, int code)
{
    return mark.line != 0 && code != -ENOEXEC ? -EINVAL : code;
}

int copy_text(const char *text, char **ret);

/* Finds a plugin, or complains at `mark` and leaves NULL. */
int plugin_resolve(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                   struct mark mark, const struct plugin **ret);

/* Whether the instance has a set or pool of this name already. */
bool name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool);

/* resolve_set.c: its fields and limits, and where their states lie. */
int set_resolve(struct resolver *resolver, const struct set_definition *definition,
                struct set_plan *plan);

/* resolve_limit.c */
int limit_resolve(struct resolver *resolver, const struct limit_definition *definition,
                  struct limit *limit);

/* resolve_pool.c: its sets, which may be defined anywhere, and its balancer. */
int pool_resolve(struct resolver *resolver, const struct pool_definition *definition,
                 struct pool_plan *plan);

#endif

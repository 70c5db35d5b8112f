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

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct resolver {
    const struct config_ast *ast;
    struct plugin_search *plugins;
    const struct known_names *known_names;
    struct plan *plan;
    struct complaints *complaints;

    struct str_map set_names, pool_names; /* of the plan */
    struct str_map algorithms, balancers;
    struct plugin_lookup *lookups; /* all that `algorithms` and `balancers` name */
    const char **set_candidates;   /* names of all sets, once a hint was wanted */
    size_t comparisons;            /* made for such hints */
    struct plugin_params params;
};

#define resolve_complain(resolver, code, mark, ...)                                                \
    ((void)complaint_add((resolver)->complaints, resolve_complaint_code((mark), (code)), (mark),   \
                         __VA_ARGS__))

/* In a text every mistake is one of the configuration; in code it may be about what exists. */
static inline int resolve_complaint_code(struct mark mark, int code)
{
    return mark.line != 0 && code != -ENOEXEC ? -EINVAL : code;
}

int resolve_copy_text(const char *text, char **ret);

/* Finds a plugin, or complains at `mark` and leaves NULL. */
int resolve_plugin(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                   struct mark mark, const struct plugin **ret);

/* Whether the instance has a set or pool of this name already. */
bool resolve_name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool);

/* resolve_set.c: its fields and limits, and where their states lie. */
int resolve_set(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan);

/* resolve_limit.c */
int resolve_limit(struct resolver *resolver, const struct ast_limit *ast, struct limit *limit);

/* resolve_pool.c: its sets, which may be defined anywhere, and its balancer. */
int resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan);

#endif

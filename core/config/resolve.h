/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the resolver share: resolve.c (names, plugins) and a file each for sets, limits
 * and pools. Every error becomes a complaint. Functions return 0 even if they complained, or
 * -ENOMEM.
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
    struct plugin_lookup *lookups; /* values of `algorithms` and `balancers` */
    const char **set_candidates;   /* names of all sets; made for the first hint */
    size_t comparisons;            /* made for hints */
    struct plugin_params params;
};

#define resolve_complain(resolver, code, mark, ...)                                                \
    ((void)complaint_add((resolver)->complaints, resolve_complaint_code((mark), (code)), (mark),   \
                         __VA_ARGS__))

/* Returns the code of a complaint. An error in a text is -EINVAL, or -ENOEXEC for a bad plugin. An
 * error in code may also say that something exists or not. */
static inline int resolve_complaint_code(struct mark mark, int code)
{
    return mark.line != 0 && code != -ENOEXEC ? -EINVAL : code;
}

int resolve_copy_text(const char *text, char **ret);

/* Finds a plugin. If there is none, complains at `mark` and sets `*ret` to NULL. */
int resolve_plugin(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                   struct mark mark, const struct plugin **ret);

/* Returns whether the instance already has a set or pool of this name. */
bool resolve_name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool);

/* Resolves the fields and limits of a set, and places the states of its limits (resolve_set.c). */
int resolve_set(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan);

/* Resolves a limit (resolve_limit.c). */
int resolve_limit(struct resolver *resolver, const struct ast_limit *ast, struct limit *limit);

/* Resolves a pool: its sets, which may be defined anywhere, and its balancer (resolve_pool.c). */
int resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the resolver share: resolve.c (names, plugins), and a file each for sets,
 * limits, pools and parameters of plugins. Every error becomes a complaint. If memory is short,
 * `complaints->memory_failed` is set, and the run ends soon.
 */
#ifndef WEIR_CORE_CONFIG_RESOLVE_H
#define WEIR_CORE_CONFIG_RESOLVE_H

#include "base/str_map.h"
#include "config/plan.h"

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The limit or pool that has parameters, and the plugin that they are for. */
struct params_owner {
    struct mark mark;
    const struct settings *settings;
    const char *const *fields; /* other names that are allowed there */
    size_t fields_n;
    const struct plugin *plugin; /* NULL: unknown */
};

enum { PARAMS_FIELDS_MAX = 10 };

/* Parameters of one owner: values for one call of `configure`, and what is known of them. */
struct plugin_params {
    struct weir_value values[PLUGIN_PARAMETERS_MAX];
    const struct weir_value *addresses[PLUGIN_PARAMETERS_MAX]; /* of the values */
    const struct setting *settings[PLUGIN_PARAMETERS_MAX];     /* as given; NULL: default */
    /* Names in a hint for an unknown field; parameters, then fields. */
    bool hinted[PLUGIN_PARAMETERS_MAX + PARAMS_FIELDS_MAX];
};

struct resolver {
    struct config_ast *ast; /* its memory serves the resolver, too */
    struct plugin_search *plugins;
    const struct known_names *known_names;
    struct plan *plan;
    struct complaints *complaints;

    struct str_map set_names, pool_names; /* of the plan; each with a struct config_value */
    struct str_map lookups[PLUGIN_KINDS];
    const char **set_candidates; /* names of all sets; made for the first hint */
    size_t comparisons;          /* made for hints */
    struct plugin_params params;
};

/* Returns memory of the plan. NULL: none was asked for, or memory is short. */
void *resolve_alloc(struct resolver *resolver, size_t n, size_t size);
char *resolve_strdup(struct resolver *resolver, const char *text);
/* Returns memory that is freed with the AST, or NULL. */
void *resolve_scratch(struct resolver *resolver, size_t n, size_t size);

/* Finds a plugin. If there is none, complains at `mark` and returns NULL. */
const struct plugin *resolve_plugin(struct resolver *resolver, enum weir_plugin_kind kind,
                                    const char *name, struct mark mark);

/* Warns, once for each plugin, of one that hides another one of its name. */
void resolve_warn_hidden(struct resolver *resolver, enum weir_plugin_kind kind,
                         const struct config_value *name);

/* Returns whether the instance already has a set or pool of this name. */
bool resolve_name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool);

/* Resolves the fields and limits of a set, and places the states of its limits (resolve_set.c). */
void resolve_set(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan);

/* Resolves the classes of a set, the limits of which are resolved, and the class of a pool
 * (resolve_classes.c). */
void resolve_classes(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan);
void resolve_pool_class(struct resolver *resolver, const struct ast_pool *ast,
                        struct pool_plan *plan);

/* Resolves a limit (resolve_limit.c). */
void resolve_limit(struct resolver *resolver, const struct ast_limit *ast, struct limit *limit);

/* Reads `shadow` and `enforce` of a limit, or of a set for its limits: the percent of requests that
 * a limit does not refuse. Returns false if a complaint was added (resolve_limit.c). */
bool resolve_shadow(struct resolver *resolver, const struct config_value *shadow,
                    const struct config_value *enforce, uint8_t *ret);

/* Resolves a pool: its sets, which may be defined anywhere, and its balancer (resolve_pool.c). */
void resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan);

/* Resolves a backend: its plugin, and the values of the parameters; where a set is kept by one,
 * what the engine must know of its limits (resolve_backend.c). */
void resolve_backend(struct resolver *resolver, const struct ast_backend *ast,
                     struct backend_plan *plan);
/* Returns whether the set says where its state is, or may leave it out. */
bool resolve_engine(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan);
/* Stores the parameters of the limit that was resolved last. */
void resolve_engine_limit(struct resolver *resolver, const struct ast_limit *ast,
                          struct set_plan *plan, uint32_t i);

/* Assigns the settings to the plugin's parameters, and complains about settings that are no
 * parameter (resolve_params.c). */
void resolve_params_assign(struct resolver *resolver, const struct params_owner *owner);

/* Adds warnings about a configuration without a complaint to `complaints->warnings`, which is not
 * NULL (resolve_warn.c). */
void resolve_warn(struct resolver *resolver);

/* Reads a value as it was given. Returns false if a complaint was added, now or earlier. */
bool resolve_params_read_setting(struct resolver *resolver, const struct weir_parameter *parameter,
                                 const struct setting *setting, struct weir_value *ret);

/* Reads the values of the parameters. Returns false if a complaint was added, now or earlier. */
bool resolve_params_read(struct resolver *resolver, const struct params_owner *owner);

/*
 * Reads the values of the parameters, and makes the plugin's configuration in two calls of the
 * plugin: one for its size, one for its bytes. `about` says what the owner is. Returns
 * false if a complaint was added or memory is short. A plugin without `configure` has no
 * configuration and no footprint.
 */
bool resolve_params_configure(struct resolver *resolver, const struct params_owner *owner,
                              const struct weir_setup *about, void **ret_config,
                              struct weir_footprint *ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A definition: what a configuration text or a specification in code says, before names are looked
 * up and numbers are checked. Every item carries its place, so that complaints can name it.
 *
 *     YAML text ──config_yaml.c──►┐
 *                            ├─► struct definition ──resolve.c──► struct plan
 *     C specs ──config_spec.c──────►┘
 */
#ifndef WEIR_CORE_CONFIG_CONFIG_AST_H
#define WEIR_CORE_CONFIG_CONFIG_AST_H

#include "base/error.h"
#include <stdbool.h>
#include <weir/pool.h>

/*
 * A scalar as written. `text` NULL: not given, or, if it has a mark, given in a shape that was
 * complained about already: no more is said about it.
 */
struct config_value {
    const char *text;
    struct mark mark;
};

/* A name with a value, as written. */
struct setting {
    struct config_value name;
    struct config_value value;
};

struct settings {
    struct setting *items;
    size_t n;
};

struct ast_limit {
    struct mark mark;
    struct config_value type, key, algorithm;
    struct config_value refund, overuse, lease;
    struct settings settings; /* capacity, window, burst, …: everything else */
};

struct ast_keyed {
    struct mark mark; /* without a line: not given by a text */
    bool given;
    struct config_value max_keys, memory, evict;
};

struct ast_set {
    struct config_value
        name; /* its mark is the set's; without text only in a wrong specification */
    struct config_value backend, lifetime;
    struct config_value timeout, max_wait, max_waiters, strict, fair;
    struct ast_keyed keyed;
    struct settings config;
    struct ast_limit *limits;
    size_t limits_n;
};

struct ast_pool {
    struct config_value name; /* no text: a pool in code that cannot be opened by name */
    struct config_value balancer, seed;
    struct config_value *sets; /* names */
    size_t sets_n;
    struct settings settings; /* parameters of the balancer */
};

struct config_ast {
    struct ast_set *sets;
    size_t sets_n;
    struct ast_pool *pools;
    size_t pools_n;
    struct config_value *plugin_dirs;
    size_t plugin_dirs_n;
    struct config_value process_dir, clock;
    struct ast_chunk *memory; /* all of the above lives here */
};

/* A bound on everything: what a configuration may hold. */
#define CONFIG_TEXT_MAX      ((size_t)16 << 20) /* bytes; give it to os_file_read */
#define CONFIG_DEPTH_MAX     16                 /* nested lists and mappings */
#define CONFIG_NAME_MAX      255                /* bytes of a name or key */
#define CONFIG_SETS_MAX      ((size_t)1 << 20)  /* sets, and names in a pool */
#define CONFIG_SETTINGS_MAX  ((size_t)64)       /* parameters of one limit or balancer */
#define CONFIG_ENTRIES_MAX   ((size_t)4096)     /* of one `config` map */
#define CONFIG_DIRS_MAX      ((size_t)64)       /* plugin_dirs */
#define CONFIG_SPEC_SIZE_MAX ((size_t)4096)     /* bytes of one struct of a specification */

/* Memory that goes all at once with the definition. NULL when there is none. */
void *config_ast_alloc(struct config_ast *ast, size_t n, size_t size);
char *config_ast_strdup(struct config_ast *ast, const char *text, size_t length);
/* Makes room for one more item, zeroed, behind the `*n` items there are; returns all of them. */
void *config_ast_append(struct config_ast *ast, void *items, size_t *n, size_t size);
void config_ast_free(struct config_ast *ast);

/*
 * config_yaml.c: reads YAML. Adds every complaint it finds (syntax, unknown or repeated fields, wrong
 * shapes, missing version) and reads on; only a mistake of syntax ends the reading. Returns 0;
 * -EINVAL (complaints were added; `ret` holds what was understood, and resolving that finds the
 * rest of the mistakes); -EBADMSG (the same, but the reading ended early); -ENOMEM. `ret` must be
 * freed whatever is returned.
 */
int config_yaml_parse(const char *text, size_t length, struct config_ast *ret,
                      struct complaints *complaints);

/*
 * The same of the configuration that weir_open reads with these options; nothing at all if there is
 * none. `complaints->file` becomes its name. Also what reading the file returns.
 */
int config_yaml_load(const struct weir_options *options, struct config_ast *ret,
                     struct complaints *complaints);

/*
 * config_spec.c: the same from specifications in code; everything is copied. Returns 0; -EBADMSG (sizes,
 * counts or pointers are wrong: complaints were added, and `ret` is not complete); -ENOMEM. `ret`
 * must be freed whatever is returned.
 */
int config_spec_read(const struct weir_pool_spec *spec, struct config_ast *ret,
                     struct complaints *complaints);

#endif

/* SPDX-License-Identifier: MIT */
/* The config AST: what a configuration text or a specification in code says, before names are
 * looked up and numbers are checked. Every item has its location, so that complaints can name it.
 */
#ifndef WEIR_CORE_CONFIG_CONFIG_AST_H
#define WEIR_CORE_CONFIG_CONFIG_AST_H

#include "base/error.h"
#include <weir/pool.h>

/* A value as given. Without text it was not given, or, if it has a mark, it was of a wrong kind:
 * then a complaint was added already, and no other follows. */
struct config_value {
    const char *text;
    struct mark mark;
};

/* A name with a value, as given. */
struct setting {
    struct config_value name;
    struct config_value value;
    const char *refusal; /* what is wrong with the value if it has no text: to be complained about
                          * unless the name is wrong already */
    const char *list;    /* of a list, which has no text: its values, with commas between */
};

struct settings {
    struct setting *items;
    size_t n;
};

/* `lease: { for: … }`: units are taken ahead from an engine. */
struct ast_lease_ahead {
    struct config_value name; /* "lease"; no text: not given so */
    struct config_value span;
};

/* A part of a text begins with its name, or with a value that has only its mark. */
struct ast_limit {
    struct config_value name; /* never a text: requests name limits by key */
    struct config_value type, key, algorithm;
    struct config_value refund, overuse, shadow, enforce, max_hold, max_hold_action;
    struct config_value lease; /* as a number; no text: not given, or lease_ahead is */
    struct ast_lease_ahead lease_ahead;
    struct settings settings; /* capacity, window, burst, …: everything else */
};

struct ast_subjects {
    struct config_value name; /* "subjects"; no text: not given */
    struct config_value max, memory, evict;
};

struct ast_set {
    struct config_value name; /* its mark is the set's; no text only in an invalid specification */
    struct config_value backend, lifetime, on_failure, revision;
    struct config_value timeout, max_wait, max_waiters, strict, fair, clock, hold_histogram;
    struct config_value shadow, enforce; /* of its limits that say nothing else */
    struct config_value priorities, ageing;
    struct settings shares;
    struct ast_subjects subjects;
    struct settings config;
    struct ast_limit *limits;
    size_t limits_n;
};

/* An engine that keeps sets. */
struct ast_backend {
    struct config_value name;
    struct config_value type;
    struct settings settings; /* parameters of the plugin */
};

/* A set of a pool. */
struct ast_pool_set {
    struct config_value name; /* in the text a name alone, or that of a mapping */
    struct config_value named, weight;
    struct settings settings; /* parameters of the balancer for this set */
};

struct ast_pool {
    struct config_value name; /* no text: a pool in code that cannot be opened by name */
    struct config_value balancer, seed, try_, wait, class_;
    struct ast_pool_set *sets;
    size_t sets_n;
    struct settings settings; /* parameters of the balancer */
};

struct config_ast {
    struct ast_set *sets;
    size_t sets_n;
    struct ast_pool *pools;
    size_t pools_n;
    struct ast_backend *backends;
    size_t backends_n;
    struct config_value *plugin_dirs;
    size_t plugin_dirs_n;
    struct config_value version, process_dir, clock, publish;
    struct complaints *complaints; /* where errors are reported */
    struct ast_memory *memory;     /* all of the above lives here */
    bool memory_failed;            /* an allocation failed */
};

/* Bounds on everything that a configuration may hold. */
#define CONFIG_TEXT_MAX      ((size_t)16 << 20) /* bytes; for os_file_read() */
#define CONFIG_DEPTH_MAX     16                 /* nested lists and mappings */
#define CONFIG_NAME_MAX      255                /* bytes of a name or key */
#define CONFIG_SETS_MAX      ((size_t)1 << 20)  /* sets, and names in a pool */
#define CONFIG_SETTINGS_MAX  ((size_t)64)       /* parameters of one limit or balancer */
#define CONFIG_ENTRIES_MAX   ((size_t)4096)     /* of one `config` map */
#define CONFIG_DIRS_MAX      ((size_t)64)       /* plugin_dirs */
#define CONFIG_BACKENDS_MAX  ((size_t)64)       /* backends */
#define CONFIG_SPEC_SIZE_MAX ((size_t)4096)     /* bytes of one struct of a specification */

/* Allocate memory that is freed as a whole with the AST, zeroed. Return NULL if out of memory. */
void *config_ast_alloc(struct config_ast *ast, size_t n, size_t size);
char *config_ast_strdup(struct config_ast *ast, const char *text, size_t length);
/* Appends a zeroed item to the array of `*n` items at which the pointer `*array` points. The array
 * may move. Returns the item, or NULL if out of memory. */
void *config_ast_append(struct config_ast *ast, void *array, size_t *n, size_t size);
void config_ast_free(struct config_ast *ast);

/*
 * Reads YAML (config_yaml.c). Adds every complaint that it finds (syntax, unknown or repeated
 * fields, wrong kinds, missing version) and goes on; only an error of syntax ends the reading.
 * Returns 0; -EINVAL (complaints were added; resolving `ret`, which holds what was understood,
 * finds the rest of the errors); -EBADMSG (complaints were added, and the reading ended early);
 * -ENOMEM. `ret` must be freed in any case.
 */
int config_yaml_parse(const char *text, size_t length, struct config_ast *ret,
                      struct complaints *complaints);

/*
 * Reads the configuration that weir_open() reads with these options; nothing if there is none. Sets
 * `complaints->file` to its name. Returns what config_yaml_parse() returns, or the error of reading
 * the file. `ret` must be freed in any case.
 */
int config_yaml_load(const struct weir_options *options, struct config_ast *ret,
                     struct complaints *complaints);

/*
 * Copies specifications in code (config_spec.c). Returns 0; -EBADMSG (sizes, counts or pointers are
 * wrong; complaints were added, and `ret` is incomplete); -ENOMEM. `ret` must be freed in any case.
 */
int config_spec_read(const struct weir_pool_spec *spec, struct config_ast *ret,
                     struct complaints *complaints);

#endif

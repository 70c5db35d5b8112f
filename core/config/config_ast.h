/* SPDX-License-Identifier: MIT */
/*
 * A definition: what a configuration text or a specification in code says, before names are looked
 * up and numbers are checked. Every item carries its place, so that complaints can name it.
 *
 *     YAML text ──config.c──►┐
 *                            ├─► struct definition ──resolve.c──► struct plan
 *     C specs ──spec.c──────►┘
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
struct scalar {
    const char *text;
    struct mark mark;
};

/* A name with a value, as written. */
struct setting {
    struct scalar name;
    struct scalar value;
};

struct settings {
    struct setting *items;
    size_t n;
};

struct limit_definition {
    struct mark mark;
    struct scalar type, key, algorithm;
    struct scalar refund, overuse, lease;
    struct settings settings; /* capacity, window, burst, …: everything else */
};

struct keyed_definition {
    struct mark mark; /* without a line: not given by a text */
    bool given;
    struct scalar max_keys, memory, evict;
};

struct set_definition {
    struct scalar name; /* its mark is the set's; without text only in a wrong specification */
    struct scalar backend, lifetime;
    struct scalar timeout, max_wait, max_waiters, strict, fair;
    struct keyed_definition keyed;
    struct settings config;
    struct limit_definition *limits;
    size_t limits_n;
};

struct pool_definition {
    struct scalar name; /* no text: a pool in code that cannot be opened by name */
    struct scalar balancer, seed;
    struct scalar *sets; /* names */
    size_t sets_n;
    struct settings settings; /* parameters of the balancer */
};

struct definition {
    struct set_definition *sets;
    size_t sets_n;
    struct pool_definition *pools;
    size_t pools_n;
    struct scalar *plugin_dirs;
    size_t plugin_dirs_n;
    struct scalar process_dir, clock;
    struct chunk *memory; /* all of the above lives here */
};

/* A bound on everything: what a configuration may hold. */
#define CONFIG_TEXT_MAX      ((size_t)16 << 20) /* bytes; give it to sys_read_file */
#define CONFIG_DEPTH_MAX     16                 /* nested lists and mappings */
#define CONFIG_NAME_MAX      255                /* bytes of a name or key */
#define CONFIG_SETS_MAX      ((size_t)1 << 20)  /* sets, and names in a pool */
#define CONFIG_SETTINGS_MAX  ((size_t)64)       /* parameters of one limit or balancer */
#define CONFIG_ENTRIES_MAX   ((size_t)4096)     /* of one `config` map */
#define CONFIG_DIRS_MAX      ((size_t)64)       /* plugin_dirs */
#define CONFIG_SPEC_SIZE_MAX ((size_t)4096)     /* bytes of one struct of a specification */

/* Memory that goes all at once with the definition. NULL when there is none. */
void *definition_alloc(struct definition *definition, size_t n, size_t size);
char *definition_strdup(struct definition *definition, const char *text, size_t length);
/* Makes room for one more item, zeroed, behind the `*n` items there are; returns all of them. */
void *definition_append(struct definition *definition, void *items, size_t *n, size_t size);
void definition_free(struct definition *definition);

/*
 * config.c: reads YAML. Adds every complaint it finds (syntax, unknown or repeated fields, wrong
 * shapes, missing version) and reads on; only a mistake of syntax ends the reading. Returns 0;
 * -EINVAL (complaints were added; `ret` holds what was understood, and resolving that finds the
 * rest of the mistakes); -EBADMSG (the same, but the reading ended early); -ENOMEM. `ret` must be
 * freed whatever is returned.
 */
int config_parse(const char *text, size_t length, struct definition *ret,
                 struct complaints *complaints);

/*
 * The same of the configuration that weir_open reads with these options; nothing at all if there is
 * none. `complaints->file` becomes its name. Also what reading the file returns.
 */
int config_find(const struct weir_options *options, struct definition *ret,
                struct complaints *complaints);

/*
 * spec.c: the same from specifications in code; everything is copied. Returns 0; -EBADMSG (sizes,
 * counts or pointers are wrong: complaints were added, and `ret` is not complete); -ENOMEM. `ret`
 * must be freed whatever is returned.
 */
int spec_define(const struct weir_pool_spec *spec, struct definition *ret,
                struct complaints *complaints);

#endif

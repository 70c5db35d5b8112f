/* SPDX-License-Identifier: MIT */
/*
 * A definition: what a configuration text or a specification in code says, before names are looked
 * up and numbers are checked. Every item carries its place, so that complaints can name it.
 *
 *     YAML text ──config.c──►┐
 *                            ├─► struct definition ──resolve.c──► struct plan (limits, ready to
 * run) C specs ──spec.c──────►┘
 */
#ifndef WEIR_CORE_DEFINITION_H
#define WEIR_CORE_DEFINITION_H

#include "error.h"
#include <stdbool.h>
#include <weir/pool.h>

/* A scalar as written. `text` NULL: not given. */
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
    struct scalar refund, overuse;
    struct settings settings; /* capacity, window, burst, …: everything else */
};

struct set_definition {
    struct scalar name; /* its mark is the set's */
    struct scalar backend, timeout, max_wait, max_waiters, strict, fair;
    struct settings config;
    struct limit_definition *limits;
    size_t limits_n;
};

struct pool_definition {
    struct scalar name;
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
    struct chunk *memory; /* all of the above lives here */
};

/* Memory that goes all at once with the definition. NULL when there is none. */
void *definition_alloc(struct definition *definition, size_t n, size_t size);
char *definition_strdup(struct definition *definition, const char *text, size_t length);
void definition_free(struct definition *definition);

/*
 * config.c: reads YAML. Adds every complaint it finds (syntax, unknown or repeated fields, wrong
 * shapes, missing version) and reads on. Returns 0, -EINVAL (complaints were added) or -ENOMEM.
 */
int config_parse(const char *text, size_t length, struct definition *ret,
                 struct complaints *complaints);

/* spec.c: the same from specifications in code; everything is copied. 0, -EINVAL, -ENOMEM. */
int spec_define(const struct weir_pool_spec *spec, struct definition *ret,
                struct complaints *complaints);

#endif

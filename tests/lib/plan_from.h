/* SPDX-License-Identifier: MIT */
/* Plans of texts and of specifications. */
#ifndef WEIR_TESTS_PLAN_FROM_H
#define WEIR_TESTS_PLAN_FROM_H

#include "config/plan.h"

static inline int plan_from_text(const char *text, size_t length, struct plugin_search *plugins,
                                 struct plan *ret, struct complaints *complaints)
{
    struct config_ast ast;
    int r = config_yaml_parse(text, length, &ast, complaints);
    return plan_resolve(r, &ast, plugins, NULL, ret);
}

static inline int plan_from_spec(const struct weir_pool_spec *spec, struct plugin_search *plugins,
                                 const struct known_names *known, struct plan *ret,
                                 struct complaints *complaints)
{
    struct config_ast ast;
    int r = config_spec_read(spec, &ast, complaints);
    return plan_resolve(r, &ast, plugins, known, ret);
}

#endif

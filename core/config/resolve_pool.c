/* SPDX-License-Identifier: MIT */
/* Resolves pools: the sets that they name, and the balancer between them. */
#include "config/resolve.h"
#include "config/value.h"

/* Bound on name comparisons for hints, so that a large and very wrong file takes a bounded time. */
#define COMPARISONS_MAX ((size_t)1 << 22)

/* Returns the hint for a name that is not a set, or an empty one if hints take too long. */
static struct hint resolve_hint_set(struct resolver *resolver, const char *name)
{
    const struct config_ast *ast = resolver->ast;
    struct hint none = {0};
    resolver->comparisons += ast->sets_n;
    if (complaints_full(resolver->complaints) || resolver->comparisons > COMPARISONS_MAX)
        return none;
    if (!resolver->set_candidates) {
        resolver->set_candidates = resolve_scratch(resolver, ast->sets_n, sizeof(char *));
        if (!resolver->set_candidates)
            return none;
        for (size_t i = 0; i < ast->sets_n; i++)
            resolver->set_candidates[i] = ast->sets[i].name.text;
    }
    return hint_find(name, resolver->set_candidates, ast->sets_n);
}

/* Complains unless the name is that of a set of the plan or the instance. */
static void resolve_pool_check_set(struct resolver *resolver, const struct config_value *name)
{
    bool is_pool = str_map_find(&resolver->pool_names, name->text) != NULL;
    if (str_map_find(&resolver->set_names, name->text))
        return;
    if (!is_pool && resolve_name_is_known(resolver, name->text, &is_pool) && !is_pool)
        return;
    if (is_pool)
        complain(resolver->complaints, name->mark, "`%s` is a pool: a pool is made of sets",
                 error_text(name->text).text);
    else
        complaint_add(resolver->complaints, -ENOENT, name->mark, "there is no set `%s`%s",
                      error_text(name->text).text, resolve_hint_set(resolver, name->text).text);
}

static void resolve_pool_sets(struct resolver *resolver, const struct ast_pool *ast,
                              struct pool_plan *plan)
{
    struct str_map seen = {0};
    plan->sets = resolve_alloc(resolver, ast->sets_n, sizeof(*plan->sets));
    if (!plan->sets)
        return;
    if (str_map_reserve(&seen, ast->sets_n) < 0)
        resolver->complaints->memory_failed = true;
    for (size_t i = 0; i < ast->sets_n && !resolver->complaints->memory_failed; i++) {
        struct config_value *name = &ast->sets[i];
        if (str_map_find(&seen, name->text)) {
            complain(resolver->complaints, name->mark, "the set `%s` is named twice here",
                     error_text(name->text).text);
            continue;
        }
        str_map_add(&seen, name->text, name);
        plan->sets[plan->sets_n++] = resolve_strdup(resolver, name->text);
        resolve_pool_check_set(resolver, name);
    }
    str_map_free(&seen);
}

static void resolve_pool_balancer(struct resolver *resolver, const struct ast_pool *ast,
                                  struct pool_plan *plan)
{
    static const char *const fields[] = {"balancer", "seed", "sets"};
    const struct config_value *name = &ast->balancer;
    struct params_owner owner = {.mark = ast->name.mark,
                                 .settings = &ast->settings,
                                 .fields = fields,
                                 .fields_n = ARRAY_LENGTH(fields)};
    struct weir_footprint footprint;
    if (!value_is_given(name) && ast->settings.n == 0 && ast->sets_n <= 1)
        return; /* nothing to choose from */
    if (name->text)
        owner.plugin = resolve_plugin(resolver, WEIR_PLUGIN_BALANCER, name->text, name->mark);
    else if (!value_is_given(name))
        owner.plugin =
            resolve_plugin(resolver, WEIR_PLUGIN_BALANCER, "round_robin", ast->name.mark);
    resolve_params_assign(resolver, &owner);
    if (!owner.plugin)
        return;
    const struct weir_setup about = {.sets_n = plan->sets_n > 0 ? plan->sets_n : 1};
    if (resolve_params_configure(resolver, &owner, &about, &plan->config, &footprint))
        plan->state_words = (uint32_t)(footprint.state / 8);
    plan->balancer = owner.plugin;
}

void resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan)
{
    resolver->complaints->location = (struct spec_location){.pool = ast->name.text};
    if (ast->name.text)
        plan->name = resolve_strdup(resolver, ast->name.text);
    resolve_pool_sets(resolver, ast, plan);
    resolve_pool_balancer(resolver, ast, plan);
    value_read_number(resolver->complaints, "seed", &ast->seed, UNITS_AMOUNT, 1, UINT64_MAX,
                      &plan->seed);
    resolver->complaints->location = (struct spec_location){0};
}

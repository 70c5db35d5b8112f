/* SPDX-License-Identifier: MIT */
/* Resolves pools: the sets that they name, and the balancer between them. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"

/* Bound on name comparisons for hints, so that a large and very wrong file takes a bounded time. */
#define COMPARISONS_MAX ((size_t)1 << 22)

/* Complains about a name that is not a set of the plan or the instance. */
static int resolve_complain_missing_set(struct resolver *resolver, const struct config_value *name,
                                        bool is_pool)
{
    const struct config_ast *ast = resolver->ast;
    const char *closest = NULL;
    if (is_pool) {
        resolve_complain(resolver, -EINVAL, name->mark, "`%s` is a pool: a pool is made of sets",
                         error_text(name->text).text);
        return 0;
    }
    resolver->comparisons += ast->sets_n;
    if (!complaints_full(resolver->complaints) && resolver->comparisons <= COMPARISONS_MAX) {
        if (resolver->set_candidates == NULL) {
            resolver->set_candidates = os_alloc(ast->sets_n, sizeof(char *));
            if (resolver->set_candidates == NULL)
                return -ENOMEM;
            for (size_t i = 0; i < ast->sets_n; i++)
                resolver->set_candidates[i] = ast->sets[i].name.text;
        }
        closest = hint_find(name->text, resolver->set_candidates, ast->sets_n);
    }
    resolve_complain(resolver, -ENOENT, name->mark, "there is no set `%s`%s",
                     error_text(name->text).text, hint_format(closest).text);
    return 0;
}

/* Complains unless the name is that of a set. */
static int resolve_pool_check_set(struct resolver *resolver, const struct config_value *name)
{
    bool is_pool = str_map_find(&resolver->pool_names, name->text) != NULL;
    if (str_map_find(&resolver->set_names, name->text) != NULL)
        return 0;
    if (!is_pool && resolve_name_is_known(resolver, name->text, &is_pool) && !is_pool)
        return 0;
    return resolve_complain_missing_set(resolver, name, is_pool);
}

static int resolve_pool_sets(struct resolver *resolver, const struct ast_pool *ast,
                             struct pool_plan *plan)
{
    struct str_map seen = {0};
    int rc = 0;
    if (ast->sets_n == 0)
        return 0;
    plan->sets = os_alloc(ast->sets_n, sizeof *plan->sets);
    if (plan->sets == NULL || str_map_reserve(&seen, ast->sets_n) < 0)
        rc = -ENOMEM;
    for (size_t i = 0; i < ast->sets_n && rc == 0; i++) {
        const struct config_value *name = &ast->sets[i];
        if (str_map_find(&seen, name->text) != NULL) {
            resolve_complain(resolver, -EINVAL, name->mark, "the set `%s` is named twice here",
                             error_text(name->text).text);
            continue;
        }
        WEIR_INVARIANT(plan->sets_n < ast->sets_n);
        rc = resolve_copy_text(name->text, &plan->sets[plan->sets_n]);
        if (rc < 0)
            break;
        str_map_add(&seen, plan->sets[plan->sets_n], plan->sets);
        plan->sets_n++;
        rc = resolve_pool_check_set(resolver, name);
    }
    str_map_free(&seen);
    return rc;
}

static int resolve_pool_balancer(struct resolver *resolver, const struct ast_pool *ast,
                                 struct pool_plan *plan)
{
    static const char *const fields[] = {"balancer", "seed", "sets"};
    const struct config_value *name = &ast->balancer;
    const struct plugin *plugin = NULL;
    int rc = 0;
    if (name->text == NULL && ast->settings.n == 0 && ast->sets_n <= 1)
        return 0; /* nothing to choose from */
    if (!value_is_invalid(name))
        rc = resolve_plugin(resolver, WEIR_PLUGIN_BALANCER,
                            name->text != NULL ? name->text : "round_robin",
                            name->text != NULL ? name->mark : ast->name.mark, &plugin);
    const struct params_owner owner = {.mark = ast->name.mark,
                                       .settings = &ast->settings,
                                       .fields = fields,
                                       .fields_n = ARRAY_LENGTH(fields),
                                       .name = plugin != NULL ? plugin->name : NULL};
    if (rc == 0)
        rc = plugin_params_assign(&resolver->params, &owner, plugin);
    if (rc < 0 || plugin == NULL)
        return rc;
    bool ok;
    struct weir_footprint footprint;
    plugin_params_read(&resolver->params, &owner, plugin, &ok);
    if (ok && plugin->balancer.configure != NULL) {
        uint32_t sets_n = plan->sets_n > 0 ? plan->sets_n : 1;
        rc = plugin_params_configure(&resolver->params, &owner, plugin, sets_n, &plan->config,
                                     &footprint, &ok);
        if (rc == 0 && ok)
            plan->state_words = (uint32_t)(footprint.state / 8);
    }
    plan->balancer = plugin;
    return rc;
}

int resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan)
{
    resolver->complaints->location = (struct spec_location){.pool = ast->name.text};
    int rc = 0;
    if (ast->name.text != NULL)
        rc = resolve_copy_text(ast->name.text, &plan->name);
    if (rc == 0)
        rc = resolve_pool_sets(resolver, ast, plan);
    if (rc == 0)
        rc = resolve_pool_balancer(resolver, ast, plan);
    if (ast->seed.text != NULL)
        value_read_number(resolver->complaints, "seed", &ast->seed, false, 1, UINT64_MAX,
                          &plan->seed);
    resolver->complaints->location = (struct spec_location){0};
    return rc;
}

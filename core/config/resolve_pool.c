/* SPDX-License-Identifier: MIT */
/* Resolves pools: the sets that they name, and the balancer between them. */
#include "config/resolve.h"
#include "config/value.h"
#include <string.h>

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

/* Returns the name of a set, as it was written; without a text if that was complained about. */
static struct config_value *resolve_pool_set_name(struct resolver *resolver,
                                                  struct ast_pool_set *ast)
{
    if (!ast->name.text && value_is_given(&ast->named))
        ast->name = ast->named;
    else if (!ast->name.text)
        complain(resolver->complaints, ast->name.mark,
                 "a set of a pool needs `name`, as in `{ name: a, weight: 3 }`");
    return &ast->name;
}

static void resolve_pool_sets(struct resolver *resolver, const struct ast_pool *ast,
                              struct pool_plan *plan)
{
    struct str_map seen = {0};
    plan->sets = resolve_alloc(resolver, ast->sets_n, sizeof(*plan->sets));
    plan->weights = resolve_alloc(resolver, ast->sets_n, sizeof(*plan->weights));
    if (!plan->sets || !plan->weights)
        return;
    if (str_map_reserve(&seen, ast->sets_n) < 0)
        resolver->complaints->memory_failed = true;
    for (size_t i = 0; i < ast->sets_n && !resolver->complaints->memory_failed; i++) {
        struct config_value *name = resolve_pool_set_name(resolver, &ast->sets[i]);
        if (!name->text)
            continue;
        if (str_map_find(&seen, name->text)) {
            complain(resolver->complaints, name->mark, "the set `%s` is named twice here",
                     error_text(name->text).text);
            continue;
        }
        str_map_add(&seen, name->text, name);
        plan->weights[plan->sets_n] = 1;
        value_read_number(resolver->complaints, "weight", &ast->sets[i].weight, UNITS_AMOUNT, 1,
                          WEIR_WEIGHT_MAX, &plan->weights[plan->sets_n]);
        plan->sets[plan->sets_n++] = resolve_strdup(resolver, name->text);
        resolve_pool_check_set(resolver, name);
    }
    str_map_free(&seen);
}

/* Returns the parameter that each set may have, or NULL. */
static const struct weir_parameter *resolve_pool_parameter(const struct plugin *plugin,
                                                           const char *name, uint32_t *ret_number)
{
    for (uint32_t i = 0; plugin && i < plugin->info.parameters_n; i++) {
        *ret_number = i;
        if ((plugin->parameters[i].flags & WEIR_PARAMETER_PER_SET) != 0 &&
            strcmp(plugin->parameters[i].name, name) == 0)
            return &plugin->parameters[i];
    }
    return NULL;
}

static void resolve_pool_complain_field(struct resolver *resolver, const struct plugin *plugin,
                                        const struct config_value *field)
{
    const char *names[PLUGIN_PARAMETERS_MAX + 2] = {"name", "weight"};
    size_t n = 2;
    for (uint32_t i = 0; plugin && i < plugin->info.parameters_n; i++)
        if ((plugin->parameters[i].flags & WEIR_PARAMETER_PER_SET) != 0)
            names[n++] = plugin->parameters[i].name;
    if (!value_complain_similar(resolver->complaints, field, names, n))
        complain(resolver->complaints, field->mark,
                 "`%s` is not a field of a set of a pool; there are: %s",
                 error_text(field->text).text, text_join(names, n, ", ", ", ").text);
}

/* Reads the values of one set: those of the pool, but for what is given for the set. */
static bool resolve_pool_set_values(struct resolver *resolver, const struct plugin *plugin,
                                    const struct ast_pool_set *ast, struct weir_set_setup *ret)
{
    uint32_t n = plugin->info.parameters_n, number;
    struct weir_value *values = resolve_scratch(resolver, n + 1, sizeof(*values));
    const struct weir_value **addresses = resolve_scratch(resolver, n + 1, sizeof(*addresses));
    bool ok = values && addresses;
    for (uint32_t i = 0; ok && i < n; i++) {
        values[i] = resolver->params.values[i];
        addresses[i] = &values[i];
    }
    for (size_t i = 0; ok && i < ast->settings.n; i++) {
        const struct setting *setting = &ast->settings.items[i];
        const struct weir_parameter *parameter =
            resolve_pool_parameter(plugin, setting->name.text, &number);
        if (!parameter)
            continue; /* complained about */
        values[number] = (struct weir_value){.size = sizeof(*values), .given = 1};
        ok = resolve_params_read_setting(resolver, parameter, setting, &values[number]);
    }
    ret->values = addresses;
    return ok;
}

/* Fills what the balancer is told of its sets. Returns false if a complaint was added. */
static bool resolve_pool_set_up(struct resolver *resolver, const struct params_owner *owner,
                                const struct ast_pool *ast, const struct pool_plan *plan,
                                struct weir_setup *ret)
{
    struct weir_set_setup *sets = resolve_scratch(resolver, plan->sets_n + 1, sizeof(*sets));
    const struct weir_set_setup **addresses =
        resolve_scratch(resolver, plan->sets_n + 1, sizeof(*addresses));
    ret->sets = addresses;
    if (!sets || !addresses || plan->sets_n != ast->sets_n || !resolve_params_read(resolver, owner))
        return false;
    for (uint32_t i = 0; i < plan->sets_n; i++) {
        sets[i] = (struct weir_set_setup){
            .size = sizeof(*sets), .name = plan->sets[i], .weight = plan->weights[i]};
        addresses[i] = &sets[i];
        if (!resolve_pool_set_values(resolver, owner->plugin, &ast->sets[i], &sets[i]))
            return false;
    }
    return true;
}

static void resolve_pool_balancer(struct resolver *resolver, const struct ast_pool *ast,
                                  struct pool_plan *plan)
{
    static const char *const fields[] = {"balancer", "class", "seed", "sets", "try", "wait"};
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
    for (size_t i = 0; i < ast->sets_n; i++)
        for (size_t j = 0; j < ast->sets[i].settings.n; j++)
            if (!resolve_pool_parameter(owner.plugin, ast->sets[i].settings.items[j].name.text,
                                        &(uint32_t){0}))
                resolve_pool_complain_field(resolver, owner.plugin,
                                            &ast->sets[i].settings.items[j].name);
    if (!owner.plugin)
        return;
    struct weir_setup about = {.sets_n = plan->sets_n > 0 ? plan->sets_n : 1};
    if (resolve_pool_set_up(resolver, &owner, ast, plan, &about) &&
        resolve_params_configure(resolver, &owner, &about, &plan->config, &footprint)) {
        plan->state_words = (uint32_t)(footprint.state / 8);
        plan->config_size = footprint.config;
    }
    plan->balancer = owner.plugin;
}

void resolve_pool(struct resolver *resolver, const struct ast_pool *ast, struct pool_plan *plan)
{
    static const char *const tries[] = {"one", "next"}, *const waits[] = {"picked", "any"};
    uint64_t try_ = 0, wait = 0;
    resolver->complaints->location = (struct spec_location){.pool = ast->name.text};
    if (ast->name.text)
        plan->name = resolve_strdup(resolver, ast->name.text);
    resolve_pool_sets(resolver, ast, plan);
    resolve_pool_class(resolver, ast, plan);
    resolve_pool_balancer(resolver, ast, plan);
    value_read_choice(resolver->complaints, "try", &ast->try_, tries, ARRAY_LENGTH(tries), &try_);
    plan->tries_next = try_ == 1;
    value_read_choice(resolver->complaints, "wait", &ast->wait, waits, ARRAY_LENGTH(waits), &wait);
    plan->waits_any = wait == 1;
    if (plan->waits_any && ast->sets_n > WEIR_POOL_WAIT_MAX)
        complaint_add(resolver->complaints, -EINVAL, ast->wait.mark,
                      "a request waits in at most %u sets, and the pool has %zu",
                      WEIR_POOL_WAIT_MAX, ast->sets_n);
    value_read_number(resolver->complaints, "seed", &ast->seed, UNITS_AMOUNT, 1, UINT64_MAX,
                      &plan->seed);
    resolver->complaints->location = (struct spec_location){0};
}

/* SPDX-License-Identifier: MIT */
/* Resolves backends, and the sets that engines keep. */
#include "base/invariant.h"
#include "config/resolve.h"
#include "config/value.h"
#include <string.h>

/* The tick of engines' clocks. */
#define ENGINE_TICK_NS UINT64_C(1000)

/* Copies the values of a backend's parameters, with the texts, which are of the AST. */
static void resolve_backend_values(struct resolver *resolver, const struct plugin *plugin,
                                   struct backend_plan *plan)
{
    const struct weir_value *values = resolver->params.values;
    uint32_t n = plugin->info.parameters_n;
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        size += values[i].text ? strlen(values[i].text) + 1 : 0;
    plan->values = resolve_alloc(resolver, n, sizeof(*plan->values));
    plan->addresses = resolve_alloc(resolver, n, sizeof(*plan->addresses));
    plan->texts = resolve_alloc(resolver, size, 1);
    if (resolver->complaints->memory_failed)
        return;
    plan->texts_size = size;
    for (uint32_t i = 0; i < n; i++) {
        plan->values[i] = values[i];
        plan->addresses[i] = &plan->values[i];
        if (!values[i].text)
            continue;
        plan->values[i].text = strcpy(plan->texts + at, values[i].text);
        at += strlen(values[i].text) + 1;
        if (plugin->parameters[i].flags & WEIR_PARAMETER_SECRET)
            explicit_bzero((char *)(uintptr_t)values[i].text, strlen(values[i].text));
    }
    plugin_set_up(&plan->setup, plugin, plan->addresses);
}

static void resolve_backend_name(struct resolver *resolver, const struct ast_backend *ast)
{
    const char *name = ast->name.text;
    if (!value_check_name(resolver->complaints, "the name of a backend", &ast->name))
        return;
    if (strcmp(name, "thread") == 0 || strcmp(name, "process") == 0)
        complain(resolver->complaints, ast->name.mark,
                 "`%s` is a backend that is always there: name this one otherwise", name);
}

void resolve_backend(struct resolver *resolver, const struct ast_backend *ast,
                     struct backend_plan *plan)
{
    static const char *const fields[] = {"type"};
    struct params_owner owner = {.mark = ast->name.mark,
                                 .settings = &ast->settings,
                                 .fields = fields,
                                 .fields_n = ARRAY_LENGTH(fields)};
    resolve_backend_name(resolver, ast);
    plan->name = resolve_strdup(resolver, ast->name.text);
    if (ast->type.text)
        owner.plugin =
            resolve_plugin(resolver, WEIR_PLUGIN_BACKEND, ast->type.text, ast->type.mark);
    else if (!value_is_given(&ast->type))
        complain(resolver->complaints, ast->name.mark,
                 "a backend needs `type`: the plugin of its engine, as `redis`");
    resolve_params_assign(resolver, &owner);
    if (!owner.plugin || !resolve_params_read(resolver, &owner))
        return;
    plan->plugin = owner.plugin;
    resolve_backend_values(resolver, owner.plugin, plan);
}

/* ---- sets ---- */

static void resolve_engine_on_failure(struct resolver *resolver, const struct ast_set *ast,
                                      struct set_plan *plan)
{
    static const char *const words[] = {"closed", "open", "wait", "local_share"};
    uint64_t word = ON_FAILURE_CLOSED;
    if (plan->backend != BACKEND_REMOTE && value_is_given(&ast->on_failure))
        complain(
            resolver->complaints, ast->on_failure.mark,
            "`on_failure` is for sets that an engine keeps: it needs a `backend` of `backends`");
    else
        value_read_choice(resolver->complaints, "on_failure", &ast->on_failure, words,
                          ARRAY_LENGTH(words), &word);
    plan->on_failure = (enum on_failure)word;
    if (word == ON_FAILURE_LOCAL_SHARE && ast->subjects.name.text)
        complain(
            resolver->complaints, ast->on_failure.mark,
            "`on_failure: local_share` is for sets without `subjects`: a process does not know "
            "how many others a subject uses");
}

static void resolve_engine_revision(struct resolver *resolver, const struct ast_set *ast,
                                    struct set_plan *plan)
{
    uint64_t revision = 0;
    if (plan->backend != BACKEND_REMOTE && value_is_given(&ast->revision))
        complain(resolver->complaints, ast->revision.mark,
                 "`revision` is for sets that an engine keeps: it needs a `backend` of `backends`");
    else
        value_read_number(resolver->complaints, "revision", &ast->revision, UNITS_AMOUNT, 0,
                          INT32_MAX, &revision);
    plan->revision = (uint32_t)revision;
}

/* Complains of a limit, or set, that is not enforced: engines know only those that are. */
static void resolve_engine_shadow(struct resolver *resolver, const struct config_value *shadow,
                                  const struct config_value *enforce)
{
    if (value_is_given(shadow) || value_is_given(enforce))
        complain(resolver->complaints, value_is_given(shadow) ? shadow->mark : enforce->mark,
                 "`shadow` and `enforce` are for the backends thread and process: an engine "
                 "enforces its limits for all requests");
}

/* Complains of what an engine does not do. */
static void resolve_engine_check(struct resolver *resolver, const struct ast_set *ast)
{
    const struct ast_subjects *subjects = &ast->subjects;
    const struct config_value *local[] = {&subjects->memory, &subjects->evict};
    for (size_t i = 0; i < ARRAY_LENGTH(local); i++)
        if (value_is_given(local[i]))
            complain(
                resolver->complaints, local[i]->mark,
                "`memory` and `evict` are for the backends thread and process: an engine forgets "
                "subjects as their limits recover");
    resolve_engine_shadow(resolver, &ast->shadow, &ast->enforce);
    for (size_t i = 0; i < ast->limits_n; i++) {
        resolve_engine_shadow(resolver, &ast->limits[i].shadow, &ast->limits[i].enforce);
        if (ast->limits[i].lease.text)
            complain(resolver->complaints, ast->limits[i].lease.mark,
                     "`lease` as a number is for the backends thread and process: of an engine "
                     "units are leased for a time, as in `lease: { for: 200ms }`");
    }
    if (ast->fair.text && strcmp(ast->fair.text, "per_limit") == 0)
        complain(resolver->complaints, ast->fair.mark,
                 "`fair: per_limit` is for the backends thread and process");
    if (value_is_given(&ast->clock))
        complain(resolver->complaints, ast->clock.mark,
                 "`clock` is for the backends thread and process: an engine has its own");
}

bool resolve_engine(struct resolver *resolver, const struct ast_set *ast, struct set_plan *plan)
{
    const struct config_ast *all = resolver->ast;
    const char *words[CONFIG_BACKENDS_MAX + BACKEND_REMOTE] = {
        [BACKEND_THREAD] = "thread", [BACKEND_PROCESS] = "process"};
    uint64_t word = BACKEND_THREAD;
    size_t n = BACKEND_REMOTE;
    WEIR_INVARIANT(all->backends_n <= CONFIG_BACKENDS_MAX);
    for (size_t i = 0; i < all->backends_n; i++)
        words[n++] = all->backends[i].name.text;
    bool known = value_read_choice(resolver->complaints, "backend", &ast->backend, words, n, &word);
    plan->backend = word < BACKEND_REMOTE ? (enum backend)word : BACKEND_REMOTE;
    if (plan->backend == BACKEND_REMOTE) {
        plan->engine = resolve_strdup(resolver, words[word]);
        resolve_engine_check(resolver, ast);
    }
    resolve_engine_on_failure(resolver, ast, plan);
    resolve_engine_revision(resolver, ast, plan);
    return known || !value_is_given(&ast->backend);
}

/* Returns why a limit cannot be leased, or NULL. What an engine cannot lease it says itself. */
static const char *resolve_engine_unleasable(const struct set_plan *plan, uint32_t i)
{
    const struct limit *limit = &plan->limits[i];
    if (plan->keyed.max_keys != 0)
        return "`lease` cannot be used with `subjects`: each would need units of its own";
    if (limit->charges)
        return "`lease` cannot be used with `overuse: charge`: the engine does not know of what is "
               "granted from a lease";
    return NULL;
}

/* Resolves `lease: { for: … }`. */
static void resolve_engine_lease(struct resolver *resolver, const struct ast_limit *ast,
                                 struct set_plan *plan, uint32_t i)
{
    const struct config_value *span = &ast->lease_ahead.span;
    const char *wrong = resolve_engine_unleasable(plan, i);
    uint64_t for_ns;
    if (!ast->lease_ahead.name.text)
        return;
    if (wrong)
        complain(resolver->complaints, ast->lease.mark, "%s", wrong);
    else if (!value_is_given(span))
        complain(resolver->complaints, ast->lease.mark,
                 "`lease` needs `for`: how long units may be used, as in `lease: { for: 200ms }`");
    else if (!value_read_number(resolver->complaints, "for", span, UNITS_DURATION, ENGINE_TICK_NS,
                                UINT64_MAX, &for_ns))
        return;
    else if (for_ns % ENGINE_TICK_NS != 0)
        complain(resolver->complaints, span->mark, "`for` has to be whole microseconds");
    else
        plan->settings[i].lease_for_ns = for_ns;
}

void resolve_engine_limit(struct resolver *resolver, const struct ast_limit *ast,
                          struct set_plan *plan, uint32_t i)
{
    const struct plugin *plugin = NULL;
    struct limit_settings *settings;
    if (!plan->settings)
        plan->settings = resolve_alloc(resolver, ast ? WEIR_LIMITS_MAX : 0, sizeof(*settings));
    if (ast->algorithm.text && plan->limits[i].algorithm)
        plugin = resolve_plugin(resolver, WEIR_PLUGIN_ALGORITHM, ast->algorithm.text,
                                ast->algorithm.mark);
    if (plan->on_failure == ON_FAILURE_LOCAL_SHARE && plugin &&
        !limit_is_divisible(&plan->limits[i]))
        complain(
            resolver->complaints, ast->algorithm.mark,
            "%s cannot be shared out (`on_failure: local_share`): it does not say which of its "
            "parameters are units",
            plugin->info.name);
    if (!plan->settings || !plugin)
        return;
    settings = &plan->settings[i];
    resolve_engine_lease(resolver, ast, plan, i);
    settings->items = resolve_alloc(resolver, plugin->info.parameters_n, sizeof(*settings->items));
    for (uint32_t j = 0; settings->items && j < plugin->info.parameters_n; j++) {
        if (resolver->params.values[j].given)
            settings->items[settings->n++] = (struct weir_backend_setting){
                plugin->parameters[j].name, resolver->params.values[j].value};
    }
}

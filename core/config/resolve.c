/* SPDX-License-Identifier: MIT */
/* Resolves a config AST to a plan: registers names, finds plugins, then resolves each
 * set and pool. */
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <stdio.h>
#include <string.h>

/* The result of a search for a plugin, so that each plugin is searched for once. */
struct plugin_lookup {
    struct plugin_lookup *next;
    const struct plugin *plugin; /* NULL: refused */
    struct weir_error refusal;
};

int resolve_copy_text(const char *text, char **ret)
{
    *ret = os_strdup(text);
    return *ret != NULL ? 0 : -ENOMEM;
}

int resolve_plugin(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                   struct mark mark, const struct plugin **ret)
{
    struct str_map *cache =
        kind == WEIR_PLUGIN_ALGORITHM ? &resolver->algorithms : &resolver->balancers;
    const struct str_map_entry *entry = str_map_find(cache, name);
    struct plugin_lookup *lookup;
    *ret = NULL;
    if (entry != NULL) {
        lookup = entry->value;
    } else {
        lookup = os_alloc(1, sizeof *lookup);
        if (lookup == NULL)
            return -ENOMEM;
        lookup->next = resolver->lookups;
        resolver->lookups = lookup;
        if (str_map_reserve(cache, 1) < 0)
            return -ENOMEM;
        int rc =
            plugin_search_find(resolver->plugins, kind, name, &lookup->plugin, &lookup->refusal);
        if (rc == -ENOMEM)
            return rc;
        lookup->refusal.code = rc;
        str_map_add(cache, name, lookup);
    }
    if (lookup->refusal.code < 0)
        resolve_complain(resolver, lookup->refusal.code, mark, "%s", lookup->refusal.message);
    else
        *ret = lookup->plugin;
    return 0;
}

bool resolve_name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool)
{
    const struct known_names *known = resolver->known_names;
    return known != NULL && known->find != NULL && known->find(known->userdata, name, ret_is_pool);
}

static void resolve_complain_taken(struct resolver *resolver, const struct config_value *name,
                                   bool is_pool, struct mark earlier)
{
    char line[32] = "";
    if (earlier.line != 0)
        snprintf(line, sizeof line, " (line %u)", earlier.line);
    resolve_complain(resolver, -EEXIST, name->mark,
                     "the name `%s` is already that of a %s%s: sets and pools share their names",
                     error_text(name->text).text, is_pool ? "pool" : "set", line);
}

/* Adds a name to the namespace of sets and pools, or complains that it is taken. */
static void resolve_register_name(struct resolver *resolver, const struct config_value *name,
                                  struct set_plan *set, struct pool_plan *pool)
{
    const struct plan *plan = resolver->plan;
    const struct config_ast *ast = resolver->ast;
    bool is_pool = false;
    /* An invalid name is registered too: a pool that refers to it is not another error. */
    value_check_name(resolver->complaints, set != NULL ? "the name of a set" : "the name of a pool",
                     name);
    const struct str_map_entry *earlier_set = str_map_find(&resolver->set_names, name->text),
                               *earlier_pool = str_map_find(&resolver->pool_names, name->text);
    if (earlier_set != NULL)
        resolve_complain_taken(
            resolver, name, false,
            ast->sets[(struct set_plan *)earlier_set->value - plan->sets].name.mark);
    else if (earlier_pool != NULL)
        resolve_complain_taken(
            resolver, name, true,
            ast->pools[(struct pool_plan *)earlier_pool->value - plan->pools].name.mark);
    else if (resolve_name_is_known(resolver, name->text, &is_pool))
        resolve_complain_taken(resolver, name, is_pool, (struct mark){0, 0});
    else if (set != NULL)
        str_map_add(&resolver->set_names, name->text, set);
    else
        str_map_add(&resolver->pool_names, name->text, pool);
}

static int resolve_register_names(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    struct plan *plan = resolver->plan;
    if (str_map_reserve(&resolver->set_names, ast->sets_n) < 0 ||
        str_map_reserve(&resolver->pool_names, ast->pools_n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < ast->sets_n; i++)
        resolve_register_name(resolver, &ast->sets[i].name, &plan->sets[i], NULL);
    for (size_t i = 0; i < ast->pools_n; i++) {
        if (ast->pools[i].name.text != NULL)
            resolve_register_name(resolver, &ast->pools[i].name, NULL, &plan->pools[i]);
    }
    return 0;
}

/* Returns false, with a complaint, for a relative path: it would differ from process to process. */
static bool resolve_check_path(struct resolver *resolver, const struct config_value *path)
{
    if (path->text[0] == '/')
        return true;
    resolve_complain(resolver, -EINVAL, path->mark,
                     "`%s` is not an absolute path: begin it with `/`",
                     error_text(path->text).text);
    return false;
}

static int resolve_process_dir(struct resolver *resolver)
{
    const struct config_value *dir = &resolver->ast->process_dir;
    if (dir->text == NULL || !resolve_check_path(resolver, dir))
        return 0;
    return resolve_copy_text(dir->text, &resolver->plan->process_dir);
}

static void resolve_clock(struct resolver *resolver)
{
    static const char *const words[] = {"monotonic", "tsc"};
    static const enum weir_clock_source sources[] = {WEIR_CLOCK_MONOTONIC, WEIR_CLOCK_TSC};
    const struct config_value *clock = &resolver->ast->clock;
    if (clock->text == NULL)
        return;
    int i = value_read_choice(resolver->complaints, "clock", clock, words, 2);
    if (i >= 0)
        resolver->plan->clock = sources[i];
}

static int resolve_plugin_dirs(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    const char *dirs[CONFIG_DIRS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < ast->plugin_dirs_n; i++) {
        const struct config_value *dir = &ast->plugin_dirs[i];
        if (resolve_check_path(resolver, dir))
            dirs[n++] = dir->text;
    }
    return n > 0 ? plugin_search_add_dirs(resolver->plugins, dirs, n) : 0;
}

static int resolve_all(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    struct plan *plan = resolver->plan;
    if (ast->sets_n > 0) {
        plan->sets = os_alloc(ast->sets_n, sizeof *plan->sets);
        if (plan->sets == NULL)
            return -ENOMEM;
        plan->sets_n = ast->sets_n;
    }
    if (ast->pools_n > 0) {
        plan->pools = os_alloc(ast->pools_n, sizeof *plan->pools);
        if (plan->pools == NULL)
            return -ENOMEM;
        plan->pools_n = ast->pools_n;
    }
    int rc = resolve_plugin_dirs(resolver);
    if (rc == 0)
        rc = resolve_process_dir(resolver);
    resolve_clock(resolver);
    if (rc == 0)
        rc = resolve_register_names(resolver);
    for (size_t i = 0; i < plan->sets_n && rc == 0; i++)
        rc = resolve_set(resolver, &ast->sets[i], &plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n && rc == 0; i++)
        rc = resolve_pool(resolver, &ast->pools[i], &plan->pools[i]);
    return rc;
}

int plan_resolve(const struct config_ast *ast, struct plugin_search *plugins,
                 const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    uint32_t before = complaints->total;
    *ret = (struct plan){0};
    struct resolver resolver = {.ast = ast,
                                .plugins = plugins,
                                .known_names = known,
                                .plan = ret,
                                .complaints = complaints,
                                .params.complaints = complaints};
    int rc = resolve_all(&resolver);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    if (rc < 0)
        plan_free(ret);
    str_map_free(&resolver.set_names);
    str_map_free(&resolver.pool_names);
    str_map_free(&resolver.algorithms);
    str_map_free(&resolver.balancers);
    while (resolver.lookups != NULL) {
        struct plugin_lookup *next = resolver.lookups->next;
        os_free(resolver.lookups);
        resolver.lookups = next;
    }
    os_free(resolver.set_candidates);
    plugin_params_free(&resolver.params);
    return rc;
}

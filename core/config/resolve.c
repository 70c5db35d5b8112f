/* SPDX-License-Identifier: MIT */
/* Resolves a config AST to a plan: registers names, finds plugins, then resolves each
 * set and pool. */
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <stdio.h>

/* The result of a search for a plugin, so that each plugin is searched for once. */
struct plugin_lookup {
    const struct plugin *plugin; /* NULL: refused */
    struct weir_error refusal;
    bool is_warned_of; /* resolve_warn_hidden() looked for a file that is hidden */
};

void *resolve_alloc(struct resolver *resolver, size_t n, size_t size)
{
    void *memory = n > 0 ? os_alloc(n, size) : NULL;
    if (n > 0 && !memory)
        resolver->complaints->memory_failed = true;
    return memory;
}

char *resolve_strdup(struct resolver *resolver, const char *text)
{
    char *copy = os_strdup(text);
    if (!copy)
        resolver->complaints->memory_failed = true;
    return copy;
}

void *resolve_scratch(struct resolver *resolver, size_t n, size_t size)
{
    void *memory = config_ast_alloc(resolver->ast, n, size);
    if (!memory)
        resolver->complaints->memory_failed = true;
    return memory;
}

/* Returns the result of the search for a plugin, or NULL: out of memory. */
static struct plugin_lookup *resolve_lookup(struct resolver *resolver, enum weir_plugin_kind kind,
                                            const char *name)
{
    struct str_map *lookups = &resolver->lookups[kind];
    struct plugin_lookup *lookup = str_map_find(lookups, name);
    if (lookup)
        return lookup;
    lookup = resolve_scratch(resolver, 1, sizeof(*lookup));
    if (!lookup)
        return NULL;
    int r = str_map_reserve(lookups, 1);
    if (r == 0)
        r = plugin_search_find(resolver->plugins, kind, name, &lookup->plugin, &lookup->refusal);
    if (r == -ENOMEM) {
        resolver->complaints->memory_failed = true;
        return NULL;
    }
    lookup->refusal.code = r;
    str_map_add(lookups, name, lookup);
    return lookup;
}

const struct plugin *resolve_plugin(struct resolver *resolver, enum weir_plugin_kind kind,
                                    const char *name, struct mark mark)
{
    const struct plugin_lookup *lookup = resolve_lookup(resolver, kind, name);
    if (!lookup)
        return NULL;
    if (lookup->refusal.code < 0)
        complaint_add(resolver->complaints, lookup->refusal.code, mark, "%s",
                      lookup->refusal.message);
    return lookup->plugin;
}

void resolve_warn_hidden(struct resolver *resolver, enum weir_plugin_kind kind,
                         const struct config_value *name)
{
    struct plugin_lookup *lookup =
        name->text ? str_map_find(&resolver->lookups[kind], name->text) : NULL;
    const char *hidden;
    if (!lookup || !lookup->plugin || lookup->is_warned_of)
        return;
    lookup->is_warned_of = true;
    hidden = plugin_search_hidden(resolver->plugins, lookup->plugin);
    if (hidden)
        complain(resolver->complaints->warnings, name->mark,
                 "the %s `%s` is that of %s, which hides another one, that of %s",
                 plugin_kind_names[kind], name->text, error_text(lookup->plugin->path).text,
                 error_text(hidden).text);
}

bool resolve_name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool)
{
    const struct known_names *known = resolver->known_names;
    return known && known->find && known->find(known->userdata, name, ret_is_pool);
}

/* Adds a name to the namespace of sets and pools, or complains that it is taken. */
static void resolve_register_name(struct resolver *resolver, struct config_value *name,
                                  bool is_pool)
{
    /* An invalid name is registered too: a pool that refers to it is not another error. */
    value_check_name(resolver->complaints, is_pool ? "the name of a pool" : "the name of a set",
                     name);
    const struct config_value *set = str_map_find(&resolver->set_names, name->text),
                              *pool = str_map_find(&resolver->pool_names, name->text),
                              *earlier = set ? set : pool;
    bool taken_by_pool = !set && pool;
    if (!earlier && !resolve_name_is_known(resolver, name->text, &taken_by_pool)) {
        str_map_add(is_pool ? &resolver->pool_names : &resolver->set_names, name->text, name);
        return;
    }
    char line[32] = "";
    if (earlier && earlier->mark.line != 0)
        snprintf(line, sizeof(line), " (line %u)", earlier->mark.line);
    complaint_add(resolver->complaints, -EEXIST, name->mark,
                  "the name `%s` is already that of a %s%s: sets and pools share their names",
                  error_text(name->text).text, taken_by_pool ? "pool" : "set", line);
}

static void resolve_register_names(struct resolver *resolver)
{
    struct config_ast *ast = resolver->ast;
    if (str_map_reserve(&resolver->set_names, ast->sets_n) < 0 ||
        str_map_reserve(&resolver->pool_names, ast->pools_n) < 0) {
        resolver->complaints->memory_failed = true;
        return;
    }
    for (size_t i = 0; i < ast->sets_n; i++)
        resolve_register_name(resolver, &ast->sets[i].name, false);
    for (size_t i = 0; i < ast->pools_n; i++) {
        if (ast->pools[i].name.text)
            resolve_register_name(resolver, &ast->pools[i].name, true);
    }
}

static void resolve_process_dir(struct resolver *resolver)
{
    const struct config_value *dir = &resolver->ast->process_dir;
    if (dir->text && value_check_path(resolver->complaints, dir) == 0)
        resolver->plan->process_dir = resolve_strdup(resolver, dir->text);
}

static void resolve_clock(struct resolver *resolver)
{
    static const char *const words[] = {"monotonic", "tsc"};
    static const enum weir_clock_source sources[] = {WEIR_CLOCK_MONOTONIC, WEIR_CLOCK_TSC};
    uint64_t source;
    if (value_read_choice(resolver->complaints, "clock", &resolver->ast->clock, words,
                          ARRAY_LENGTH(words), &source))
        resolver->plan->clock = sources[source];
}

static void resolve_publish(struct resolver *resolver)
{
    bool is_wanted;
    if (value_read_boolean(resolver->complaints, "publish", &resolver->ast->publish, &is_wanted))
        resolver->plan->publish = is_wanted ? WEIR_YES : WEIR_NO;
}

static void resolve_plugin_dirs(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    for (size_t i = 0; i < ast->plugin_dirs_n; i++) {
        const struct config_value *dir = &ast->plugin_dirs[i];
        if (value_check_path(resolver->complaints, dir) == 0 &&
            plugin_search_add_dir(resolver->plugins, dir->text) < 0)
            resolver->complaints->memory_failed = true;
    }
}

static void resolve_all(struct resolver *resolver)
{
    const struct config_ast *ast = resolver->ast;
    const bool *memory_failed = &resolver->complaints->memory_failed;
    struct plan *plan = resolver->plan;
    plan->sets = resolve_alloc(resolver, ast->sets_n, sizeof(*plan->sets));
    plan->pools = resolve_alloc(resolver, ast->pools_n, sizeof(*plan->pools));
    plan->backends = resolve_alloc(resolver, ast->backends_n, sizeof(*plan->backends));
    resolve_plugin_dirs(resolver);
    resolve_process_dir(resolver);
    resolve_clock(resolver);
    resolve_publish(resolver);
    resolve_register_names(resolver);
    for (; plan->backends_n < ast->backends_n && !*memory_failed; plan->backends_n++)
        resolve_backend(resolver, &ast->backends[plan->backends_n],
                        &plan->backends[plan->backends_n]);
    for (; plan->sets_n < ast->sets_n && !*memory_failed; plan->sets_n++)
        resolve_set(resolver, &ast->sets[plan->sets_n], &plan->sets[plan->sets_n]);
    for (; plan->pools_n < ast->pools_n && !*memory_failed; plan->pools_n++)
        resolve_pool(resolver, &ast->pools[plan->pools_n], &plan->pools[plan->pools_n]);
}

int plan_resolve(int r, struct config_ast *ast, struct plugin_search *plugins,
                 const struct known_names *known, struct plan *ret)
{
    struct complaints *complaints = ast->complaints;
    struct resolver resolver = {.ast = ast,
                                .plugins = plugins,
                                .known_names = known,
                                .plan = ret,
                                .complaints = complaints};
    *ret = (struct plan){0};
    if (r == 0 || r == -EINVAL)
        resolve_all(&resolver);
    if (r == 0 && complaints->warnings && complaints_none(complaints))
        resolve_warn(&resolver);
    str_map_free(&resolver.set_names);
    str_map_free(&resolver.pool_names);
    for (size_t i = 0; i < PLUGIN_KINDS; i++)
        str_map_free(&resolver.lookups[i]);
    config_ast_free(ast);
    if (r == -ENOMEM)
        complaints->memory_failed = true;
    r = complaints_report(complaints);
    if (r < 0)
        plan_free(ret);
    return r;
}

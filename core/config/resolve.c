/* SPDX-License-Identifier: MIT */
/*
 * From a definition to a plan: names are registered, plugins found, and each set and pool is
 * resolved in turn.
 */
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <stdio.h>
#include <string.h>

/* A plugin that was looked for, so that it is looked for once. */
struct found {
    struct found *next;
    const struct plugin *plugin; /* NULL: refused */
    struct weir_error refusal;
};

int copy_text(const char *text, char **ret)
{
    *ret = sys_strdup(text);
    return *ret != NULL ? 0 : -ENOMEM;
}

int plugin_resolve(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                   struct mark mark, const struct plugin **ret)
{
    struct names *cache =
        kind == WEIR_PLUGIN_ALGORITHM ? &resolver->algorithms : &resolver->balancers;
    const struct name_entry *entry = names_find(cache, name);
    struct found *found;
    *ret = NULL;
    if (entry != NULL) {
        found = entry->what;
    } else {
        found = sys_alloc(1, sizeof *found);
        if (found == NULL)
            return -ENOMEM;
        found->next = resolver->found;
        resolver->found = found;
        if (names_reserve(cache, 1) < 0)
            return -ENOMEM;
        int rc = plugins_find(resolver->plugins, kind, name, &found->plugin, &found->refusal);
        if (rc == -ENOMEM)
            return rc;
        found->refusal.code = rc;
        names_add(cache, name, found);
    }
    if (found->refusal.code < 0)
        say(resolver, found->refusal.code, mark, "%s", found->refusal.message);
    else
        *ret = found->plugin;
    return 0;
}

bool name_is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool)
{
    const struct known_names *known = resolver->known;
    return known != NULL && known->find != NULL && known->find(known->userdata, name, ret_is_pool);
}

static void complain_of_taken(struct resolver *resolver, const struct scalar *name, bool is_pool,
                              struct mark earlier)
{
    char line[32] = "";
    if (earlier.line != 0)
        snprintf(line, sizeof line, " (line %u)", earlier.line);
    say(resolver, -EEXIST, name->mark,
        "the name `%s` is already that of a %s%s: sets and pools share their names",
        show(name->text).text, is_pool ? "pool" : "set", line);
}

/* Adds a name to the namespace of sets and pools, or complains that it is taken. */
static void name_register(struct resolver *resolver, const struct scalar *name,
                          struct set_plan *set, struct pool_plan *pool)
{
    const struct plan *plan = resolver->plan;
    const struct definition *definition = resolver->definition;
    bool is_pool = false;
    /* Even a name that will not do is known from here on: a pool that names it is not wrong too. */
    scalar_check_name(resolver->complaints,
                      set != NULL ? "the name of a set" : "the name of a pool", name);
    const struct name_entry *earlier_set = names_find(&resolver->set_names, name->text),
                            *earlier_pool = names_find(&resolver->pool_names, name->text);
    if (earlier_set != NULL)
        complain_of_taken(
            resolver, name, false,
            definition->sets[(struct set_plan *)earlier_set->what - plan->sets].name.mark);
    else if (earlier_pool != NULL)
        complain_of_taken(
            resolver, name, true,
            definition->pools[(struct pool_plan *)earlier_pool->what - plan->pools].name.mark);
    else if (name_is_known(resolver, name->text, &is_pool))
        complain_of_taken(resolver, name, is_pool, (struct mark){0, 0});
    else if (set != NULL)
        names_add(&resolver->set_names, name->text, set);
    else
        names_add(&resolver->pool_names, name->text, pool);
}

static int names_register(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    struct plan *plan = resolver->plan;
    if (names_reserve(&resolver->set_names, definition->sets_n) < 0 ||
        names_reserve(&resolver->pool_names, definition->pools_n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < definition->sets_n; i++)
        name_register(resolver, &definition->sets[i].name, &plan->sets[i], NULL);
    for (size_t i = 0; i < definition->pools_n; i++) {
        if (definition->pools[i].name.text != NULL)
            name_register(resolver, &definition->pools[i].name, NULL, &plan->pools[i]);
    }
    return 0;
}

/* False, and complained about: a relative path means another directory in every process. */
static bool path_is_absolute(struct resolver *resolver, const struct scalar *path)
{
    if (path->text[0] == '/')
        return true;
    say(resolver, -EINVAL, path->mark, "`%s` is not an absolute path: begin it with `/`",
        show(path->text).text);
    return false;
}

static int process_dir_read(struct resolver *resolver)
{
    const struct scalar *dir = &resolver->definition->process_dir;
    if (dir->text == NULL || !path_is_absolute(resolver, dir))
        return 0;
    return copy_text(dir->text, &resolver->plan->process_dir);
}

static void clock_read(struct resolver *resolver)
{
    static const char *const words[] = {"monotonic", "tsc"};
    static const enum weir_clock_source sources[] = {WEIR_CLOCK_MONOTONIC, WEIR_CLOCK_TSC};
    const struct scalar *clock = &resolver->definition->clock;
    if (clock->text == NULL)
        return;
    int i = scalar_read_word(resolver->complaints, "clock", clock, words, 2);
    if (i >= 0)
        resolver->plan->clock = sources[i];
}

static int dirs_read(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    const char *dirs[CONFIG_DIRS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < definition->plugin_dirs_n; i++) {
        const struct scalar *dir = &definition->plugin_dirs[i];
        if (path_is_absolute(resolver, dir))
            dirs[n++] = dir->text;
    }
    return n > 0 ? plugins_add_dirs(resolver->plugins, dirs, n) : 0;
}

static int everything_resolve(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    struct plan *plan = resolver->plan;
    if (definition->sets_n > 0) {
        plan->sets = sys_alloc(definition->sets_n, sizeof *plan->sets);
        if (plan->sets == NULL)
            return -ENOMEM;
        plan->sets_n = definition->sets_n;
    }
    if (definition->pools_n > 0) {
        plan->pools = sys_alloc(definition->pools_n, sizeof *plan->pools);
        if (plan->pools == NULL)
            return -ENOMEM;
        plan->pools_n = definition->pools_n;
    }
    int rc = dirs_read(resolver);
    if (rc == 0)
        rc = process_dir_read(resolver);
    clock_read(resolver);
    if (rc == 0)
        rc = names_register(resolver);
    for (size_t i = 0; i < plan->sets_n && rc == 0; i++)
        rc = set_resolve(resolver, &definition->sets[i], &plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n && rc == 0; i++)
        rc = pool_resolve(resolver, &definition->pools[i], &plan->pools[i]);
    return rc;
}

int plan_resolve(const struct definition *definition, struct plugins *plugins,
                 const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    uint32_t before = complaints->total;
    *ret = (struct plan){0};
    struct resolver resolver = {.definition = definition,
                                .plugins = plugins,
                                .known = known,
                                .plan = ret,
                                .complaints = complaints,
                                .parameters.complaints = complaints};
    int rc = everything_resolve(&resolver);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    if (rc < 0)
        plan_free(ret);
    names_free(&resolver.set_names);
    names_free(&resolver.pool_names);
    names_free(&resolver.algorithms);
    names_free(&resolver.balancers);
    while (resolver.found != NULL) {
        struct found *next = resolver.found->next;
        sys_free(resolver.found);
        resolver.found = next;
    }
    sys_free(resolver.set_candidates);
    parameters_free(&resolver.parameters);
    return rc;
}

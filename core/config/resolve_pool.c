/* SPDX-License-Identifier: MIT */
/* Pools of a definition become pools of a plan: the sets they name, the balancer between them. */
#include "base/mutant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"

/* Hints to sets' names end here, so that a large and very wrong file is not read for ever. */
#define COMPARISONS_MAX ((size_t)1 << 22)

/* Complains of a name that is no set of the plan or the instance. */
static int complain_of_missing_set(struct resolver *resolver, const struct scalar *name,
                                   bool is_pool)
{
    const struct definition *definition = resolver->definition;
    const char *closest = NULL;
    if (is_pool) {
        say(resolver, -EINVAL, name->mark, "`%s` is a pool: a pool is made of sets",
            show(name->text).text);
        return 0;
    }
    resolver->comparisons += definition->sets_n;
    if (!complaints_full(resolver->complaints) && resolver->comparisons <= COMPARISONS_MAX) {
        if (resolver->set_candidates == NULL) {
            resolver->set_candidates = sys_alloc(definition->sets_n, sizeof(char *));
            if (resolver->set_candidates == NULL)
                return -ENOMEM;
            for (size_t i = 0; i < definition->sets_n; i++)
                resolver->set_candidates[i] = definition->sets[i].name.text;
        }
        closest = closest_word(name->text, resolver->set_candidates, definition->sets_n);
    }
    say(resolver, -ENOENT, name->mark, "there is no set `%s`%s", show(name->text).text,
        hint_of(closest).text);
    return 0;
}

/* Complains unless the name is that of a set. */
static int pool_set_check(struct resolver *resolver, const struct scalar *name)
{
    bool is_pool = names_find(&resolver->pool_names, name->text) != NULL;
    if (MUTANT(82) || names_find(&resolver->set_names, name->text) != NULL)
        return 0;
    if (!is_pool && name_is_known(resolver, name->text, &is_pool) && !is_pool)
        return 0;
    return complain_of_missing_set(resolver, name, is_pool);
}

static int pool_sets_read(struct resolver *resolver, const struct pool_definition *definition,
                          struct pool_plan *plan)
{
    struct names seen = {0};
    int rc = 0;
    if (definition->sets_n == 0)
        return 0;
    plan->sets = sys_alloc(definition->sets_n, sizeof *plan->sets);
    if (plan->sets == NULL || names_reserve(&seen, definition->sets_n) < 0)
        rc = -ENOMEM;
    for (size_t i = 0; i < definition->sets_n && rc == 0; i++) {
        const struct scalar *name = &definition->sets[i];
        if (names_find(&seen, name->text) != NULL) {
            say(resolver, -EINVAL, name->mark, "the set `%s` is named twice here",
                show(name->text).text);
            continue;
        }
        rc = copy_text(name->text, &plan->sets[plan->sets_n]);
        if (rc < 0)
            break;
        names_add(&seen, plan->sets[plan->sets_n], plan->sets);
        plan->sets_n++;
        rc = pool_set_check(resolver, name);
    }
    names_free(&seen);
    return rc;
}

static int pool_balancer_read(struct resolver *resolver, const struct pool_definition *definition,
                              struct pool_plan *plan)
{
    static const char *const fields[] = {"balancer", "seed", "sets"};
    const struct scalar *name = &definition->balancer;
    const struct plugin *plugin = NULL;
    int rc = 0;
    if (name->text == NULL && definition->settings.n == 0 && definition->sets_n <= 1)
        return 0; /* nothing to choose from */
    if (!scalar_is_spoilt(name))
        rc = plugin_resolve(resolver, WEIR_PLUGIN_BALANCER,
                            name->text != NULL ? name->text : "round_robin",
                            name->text != NULL ? name->mark : definition->name.mark, &plugin);
    const struct owner owner = {.mark = definition->name.mark,
                                .settings = &definition->settings,
                                .fields = fields,
                                .fields_n = LENGTH(fields),
                                .what = plugin != NULL ? plugin->name : NULL};
    if (rc == 0)
        rc = parameters_assign(&resolver->parameters, &owner, plugin);
    if (rc < 0 || plugin == NULL)
        return rc;
    bool ok;
    struct weir_footprint footprint;
    parameters_read(&resolver->parameters, &owner, plugin, &ok);
    if (ok && plugin->balancer.configure != NULL) {
        uint32_t sets_n = plan->sets_n > 0 ? plan->sets_n : 1;
        rc = parameters_configure(&resolver->parameters, &owner, plugin, sets_n, &plan->config,
                                  &footprint, &ok);
        if (rc == 0 && ok)
            plan->state_words = (uint32_t)(footprint.state / 8);
    }
    plan->balancer = plugin;
    return rc;
}

int pool_resolve(struct resolver *resolver, const struct pool_definition *definition,
                 struct pool_plan *plan)
{
    resolver->complaints->place = (struct place){.pool = definition->name.text};
    int rc = 0;
    if (definition->name.text != NULL)
        rc = copy_text(definition->name.text, &plan->name);
    if (rc == 0)
        rc = pool_sets_read(resolver, definition, plan);
    if (rc == 0)
        rc = pool_balancer_read(resolver, definition, plan);
    if (definition->seed.text != NULL)
        scalar_read_quantity(resolver->complaints, "seed", &definition->seed, false, 1, UINT64_MAX,
                             &plan->seed);
    resolver->complaints->place = (struct place){0};
    return rc;
}

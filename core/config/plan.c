/* SPDX-License-Identifier: MIT */
/* Plans: made of a text or of specifications in code, and freed. */
#include "config/plan.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

/* Resolves what could be understood, and tells what was wrong with all of it. */
static int finish(int rc, struct definition *definition, struct plugins *plugins,
                  const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    if (rc == 0 || rc == -EINVAL) {
        int resolved = plan_resolve(definition, plugins, known, ret, complaints);
        rc = resolved < 0 ? resolved : rc;
    }
    definition_free(definition);
    if (rc == -ENOMEM)
        complaints->memory_failed = true;
    int told = complaints_tell(complaints);
    rc = told < 0 ? told : rc;
    if (rc < 0)
        plan_free(ret);
    return rc;
}

int plan_from_text(const char *text, size_t length, struct plugins *plugins, struct plan *ret,
                   struct complaints *complaints)
{
    struct definition definition;
    *ret = (struct plan){0};
    int rc = config_parse(text, length, &definition, complaints);
    return finish(rc, &definition, plugins, NULL, ret, complaints);
}

int plan_from_spec(const struct weir_pool_spec *spec, struct plugins *plugins,
                   const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    struct definition definition;
    *ret = (struct plan){0};
    int rc = spec_define(spec, &definition, complaints);
    return finish(rc, &definition, plugins, known, ret, complaints);
}

void limit_free(struct limit *limit)
{
    char *key;
    memcpy(&key, &limit->key, sizeof key); /* it is ours, though const to everybody else */
    sys_free(key);
    sys_free(limit->written);
    sys_free(limit->config);
    *limit = (struct limit){0};
}

void set_plan_free(struct set_plan *plan)
{
    for (uint32_t i = 0; i < plan->limits_n; i++)
        limit_free(&plan->limits[i]);
    for (uint32_t i = 0; i < plan->config_n; i++) {
        sys_free(plan->config[i].name);
        sys_free(plan->config[i].value);
    }
    sys_free(plan->limits);
    sys_free(plan->config);
    sys_free(plan->name);
    *plan = (struct set_plan){0};
}

void pool_plan_free(struct pool_plan *plan)
{
    for (uint32_t i = 0; i < plan->sets_n; i++)
        sys_free(plan->sets[i]);
    sys_free(plan->sets);
    sys_free(plan->config);
    sys_free(plan->name);
    *plan = (struct pool_plan){0};
}

static bool is_named(const char *name, const char *wanted)
{
    return name != NULL && strcmp(name, wanted) == 0;
}

/* All but the pool of this name. */
static void keep_pool(struct plan *plan, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < plan->pools_n; i++) {
        if (is_named(plan->pools[i].name, name))
            plan->pools[kept++] = plan->pools[i];
        else
            pool_plan_free(&plan->pools[i]);
    }
    plan->pools_n = kept;
}

/* Whether a set is the wanted one, or one of those of the only pool that is left. */
static bool is_wanted(const struct plan *plan, const char *set, const char *name)
{
    if (plan->pools_n == 0)
        return is_named(set, name);
    for (uint32_t i = 0; i < plan->pools[0].sets_n; i++)
        if (is_named(set, plan->pools[0].sets[i]))
            return true;
    return false;
}

void plan_keep(struct plan *plan, const char *name)
{
    size_t kept = 0;
    keep_pool(plan, name);
    for (size_t i = 0; i < plan->sets_n; i++) {
        if (is_wanted(plan, plan->sets[i].name, name))
            plan->sets[kept++] = plan->sets[i];
        else
            set_plan_free(&plan->sets[i]);
    }
    plan->sets_n = kept;
}

void plan_free(struct plan *plan)
{
    for (size_t i = 0; i < plan->sets_n; i++)
        set_plan_free(&plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n; i++)
        pool_plan_free(&plan->pools[i]);
    sys_free(plan->sets);
    sys_free(plan->pools);
    sys_free(plan->process_dir);
    *plan = (struct plan){0};
}

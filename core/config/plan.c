/* SPDX-License-Identifier: MIT */
/* Plans: the size of versions, selection and freeing. */
#include "config/plan.h"
#include "os/os.h"
#include "state/wait_queue.h"
#include <string.h>

_Static_assert(CONTENT_STATES + 2 * (SET_STATE_WORDS_MAX + KEYED_STATE_WORDS) + 1 <=
                   BLOCK_CONTENT_MAX,
               "a version can count its words with a forecast, which has the states once more");

const char *const limit_type_names[] = {NULL, "rate", "call", "resource"};
const char *const evict_names[] = {"oldest", "random", "none"};

uint32_t set_plan_block_class(const struct set_plan *plan)
{
    uint32_t words = plan->state_words + (plan->keyed.max_keys ? KEYED_STATE_WORDS : 0);
    bool has_waits = false;

    for (uint32_t i = 0; i < plan->limits_n; i++)
        has_waits |= plan->limits[i].type != WEIR_LIMIT_RESOURCE;
    /* Without a forecast there may be a word of toggle bits, within the same class. */
    return block_class_for(CONTENT_STATES + 1 + words + (has_waits ? words : 0));
}

void limit_free(struct limit *limit)
{
    char *key;
    memcpy(&key, &limit->key, sizeof(key)); /* the plan owns it; const for all other code */
    os_free(key);
    os_free(limit->settings_text);
    os_free(limit->config);
    *limit = (struct limit){0};
}

void set_plan_free(struct set_plan *plan)
{
    for (uint32_t i = 0; i < plan->limits_n; i++)
        limit_free(&plan->limits[i]);
    for (uint32_t i = 0; i < plan->config_n; i++) {
        os_free(plan->config[i].name);
        os_free(plan->config[i].value);
    }
    for (uint32_t i = 0; plan->settings && i < plan->limits_n; i++)
        os_free(plan->settings[i].items);
    os_free(plan->settings);
    os_free(plan->classes);
    os_free(plan->engine);
    os_free(plan->limits);
    os_free(plan->config);
    os_free(plan->name);
    *plan = (struct set_plan){0};
}

void backend_plan_free(struct backend_plan *plan)
{
    if (plan->texts)
        explicit_bzero(plan->texts, plan->texts_size);
    os_free(plan->texts);
    os_free(plan->addresses);
    os_free(plan->values);
    os_free(plan->name);
    *plan = (struct backend_plan){0};
}

void pool_plan_free(struct pool_plan *plan)
{
    for (uint32_t i = 0; i < plan->sets_n; i++)
        os_free(plan->sets[i]);
    os_free(plan->sets);
    os_free(plan->weights);
    os_free(plan->wait_class);
    os_free(plan->config);
    os_free(plan->name);
    *plan = (struct pool_plan){0};
}

/* Removes all pools but the one of this name. */
static void plan_select_pool(struct plan *plan, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->pools_n; i++) {
        if (plan->pools[i].name && strcmp(plan->pools[i].name, name) == 0)
            plan->pools[n++] = plan->pools[i];
        else
            pool_plan_free(&plan->pools[i]);
    }
    plan->pools_n = n;
}

/* Returns whether a set is the selected one, or belongs to the only pool that is left. */
static bool plan_is_selected(const struct plan *plan, const char *set, const char *name)
{
    if (plan->pools_n == 0)
        return strcmp(set, name) == 0;
    for (uint32_t i = 0; i < plan->pools[0].sets_n; i++)
        if (strcmp(set, plan->pools[0].sets[i]) == 0)
            return true;
    return false;
}

void plan_select(struct plan *plan, const char *name)
{
    size_t n = 0;
    plan_select_pool(plan, name);
    for (size_t i = 0; i < plan->sets_n; i++) {
        if (plan_is_selected(plan, plan->sets[i].name, name))
            plan->sets[n++] = plan->sets[i];
        else
            set_plan_free(&plan->sets[i]);
    }
    plan->sets_n = n;
}

void plan_free(struct plan *plan)
{
    for (size_t i = 0; i < plan->sets_n; i++)
        set_plan_free(&plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n; i++)
        pool_plan_free(&plan->pools[i]);
    for (size_t i = 0; i < plan->backends_n; i++)
        backend_plan_free(&plan->backends[i]);
    os_free(plan->sets);
    os_free(plan->pools);
    os_free(plan->backends);
    os_free(plan->process_dir);
    *plan = (struct plan){0};
}

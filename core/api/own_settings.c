/* SPDX-License-Identifier: MIT */
/* Settings of a shared set that each process has for itself. */
#include "api/own_settings.h"
#include "base/invariant.h"
#include "os/os.h"
#include "set/set_ops.h"
#include <errno.h>
#include <string.h>

static bool own_settings_config_is(const weir_set *set, const struct set_plan *plan)
{
    if (set->config_n != plan->config_n)
        return false;
    for (uint32_t i = 0; i < plan->config_n; i++)
        if (strcmp(set->config[i].name, plan->config[i].name) != 0 ||
            strcmp(set->config[i].value, plan->config[i].value) != 0)
            return false;
    return true;
}

bool own_settings_are(const weir_set *set, const struct set_plan *plan)
{
    if (set->timeout_ns != plan->timeout_ns || set->max_wait_ns != plan->max_wait_ns)
        return false;
    return set->strict == plan->strict && set->limits.counts_holds == plan->counts_holds &&
           own_settings_config_is(set, plan);
}

void own_settings_take(weir_set *set, struct set_plan *plan)
{
    WEIR_INVARIANT(plan->config_n <= CONFIG_ENTRIES_MAX);
    set->timeout_ns = plan->timeout_ns;
    set->max_wait_ns = plan->max_wait_ns;
    set->strict = plan->strict;
    set->limits.counts_holds = plan->counts_holds;
    set->limits.heeds_releases =
        plan->counts_holds || set->limits.revokes || set->ops->wants_releases;
    set->config = plan->config;
    set->config_n = (uint16_t)plan->config_n;
    plan->config = NULL;
    plan->config_n = 0;
}

static int own_settings_copy_config(const weir_set *from, struct set_plan *to)
{
    to->config = from->config_n ? os_alloc(from->config_n, sizeof(*to->config)) : NULL;
    if (from->config_n && !to->config)
        return -ENOMEM;
    for (; to->config_n < from->config_n; to->config_n++) {
        struct name_value *item = &to->config[to->config_n];

        item->name = os_strdup(from->config[to->config_n].name);
        item->value = os_strdup(from->config[to->config_n].value);
        if (!item->name || !item->value) {
            os_free(item->name);
            os_free(item->value);
            return -ENOMEM;
        }
    }
    return 0;
}

int own_settings_copy(const weir_set *set, struct set_plan *plan)
{
    struct set_plan own = {0};

    if (own_settings_copy_config(set, &own) < 0) {
        set_plan_free(&own);
        return -ENOMEM;
    }
    set_plan_free(&(struct set_plan){.config = plan->config, .config_n = plan->config_n});
    plan->config = own.config;
    plan->config_n = own.config_n;
    plan->timeout_ns = set->timeout_ns;
    plan->max_wait_ns = set->max_wait_ns;
    plan->strict = set->strict;
    plan->counts_holds = set->limits.counts_holds;
    return 0;
}

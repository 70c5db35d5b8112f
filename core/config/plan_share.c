/* SPDX-License-Identifier: MIT */
/* Divides the plan of a set that an engine keeps among the processes that use it. */
#include "config/plan.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

bool limit_is_divisible(const struct limit *limit)
{
    const struct plugin *plugin;
    if (!limit->algorithm)
        return true;
    plugin = plugin_of_algorithm(limit->algorithm);
    bool is_divisible = false;
    for (uint32_t i = 0; i < plugin->info.parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];
        if (parameter->type == WEIR_PARAMETER_TEXT || parameter->flags & WEIR_PARAMETER_LIST)
            return false; /* a share is made of numbers alone */
        is_divisible |= (parameter->flags & WEIR_PARAMETER_DIVISIBLE) != 0;
    }
    return is_divisible;
}

/* Returns a part of a number of units: at least what an algorithm takes. */
static uint64_t share_divide(uint64_t units, uint64_t least, uint32_t nodes, bool *ret_is_empty)
{
    uint64_t part = units / nodes;
    if (units < least || part >= least)
        return part;
    *ret_is_empty = true;
    return least;
}

/* Reads the parameters of the limit as they were given, and divides those that are units. Writes
 * what was given to `settings` in the same order. */
static void share_values(const struct plugin *plugin, const struct limit_settings *given,
                         uint32_t nodes, struct weir_value *values, struct limit_settings *ret,
                         bool *ret_is_empty)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plugin->info.parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];
        bool is_given = n < given->n && strcmp(given->items[n].name, parameter->name) == 0;
        uint64_t value = is_given ? given->items[n].value : parameter->default_value;
        if (parameter->flags & WEIR_PARAMETER_DIVISIBLE)
            value = share_divide(value, parameter->min, nodes, ret_is_empty);
        values[i] = (struct weir_value){.size = sizeof(*values), .value = value, .given = is_given};
        if (is_given)
            ret->items[n++] = (struct weir_backend_setting){parameter->name, value};
    }
    ret->n = n;
}

static int share_configure(const struct limit *limit, const struct limit_settings *given,
                           uint32_t nodes, struct limit *ret, struct limit_settings *settings,
                           bool *ret_is_empty)
{
    const struct plugin *plugin = plugin_of_algorithm(limit->algorithm);
    struct weir_value values[PLUGIN_PARAMETERS_MAX];
    const struct weir_value *addresses[PLUGIN_PARAMETERS_MAX];
    struct weir_setup setup = {.limit_type = limit->type};
    struct weir_footprint footprint;
    struct weir_reason reason;
    int r;
    settings->items = os_alloc(given->n + 1, sizeof(*settings->items));
    if (!settings->items)
        return -ENOMEM;
    share_values(plugin, given, nodes, values, settings, ret_is_empty);
    for (uint32_t i = 0; i < plugin->info.parameters_n; i++)
        addresses[i] = &values[i];
    plugin_set_up(&setup, plugin, addresses);
    r = plugin_configure(plugin, &setup, &ret->config, &footprint, &reason);
    if (r < 0)
        return r;
    ret->config_size = (size_t)footprint.config;
    ret->capacity = footprint.amount_max;
    ret->state_words = (uint32_t)(footprint.state / 8);
    ret->ignores_wall = (footprint.flags & WEIR_FOOTPRINT_NO_WALL) != 0;
    return 0;
}

static int share_limit(const struct set_plan *plan, uint32_t i, uint32_t nodes,
                       struct set_plan *ret, uint64_t *ret_empty)
{
    const struct limit *limit = &plan->limits[i];
    struct limit *share = &ret->limits[i];
    bool is_empty = false;
    int r = 0;
    *share = *limit;
    share->settings_text = NULL;
    share->settings_n = 0;
    share->config = NULL;
    share->lease = 0;
    share->key = os_strdup(limit->key);
    if (!share->key)
        return -ENOMEM;
    if (limit->algorithm)
        r = share_configure(limit, &plan->settings[i], nodes, share, &ret->settings[i], &is_empty);
    else
        share->capacity = share_divide(limit->capacity, 1, nodes, &is_empty);
    share->state_offset = ret->state_words;
    if (r == 0 && share->state_words > SET_STATE_WORDS_MAX - ret->state_words)
        return -ENOMEM;
    ret->state_words += share->state_words;
    *ret_empty |= (uint64_t)is_empty << i;
    return r;
}

/* Copies what does not depend on the number of processes. */
static int share_copy(const struct set_plan *plan, struct set_plan *ret)
{
    *ret = (struct set_plan){.timeout_ns = plan->timeout_ns,
                             .max_wait_ns = plan->max_wait_ns,
                             .max_waiters = plan->max_waiters,
                             .strict = plan->strict,
                             .counts_holds = plan->counts_holds,
                             .fair = plan->fair,
                             .backend = BACKEND_THREAD};
    ret->name = os_strdup(plan->name);
    ret->limits = os_alloc(plan->limits_n + 1, sizeof(*ret->limits));
    ret->settings = os_alloc(plan->limits_n + 1, sizeof(*ret->settings));
    ret->config = os_alloc(plan->config_n + 1, sizeof(*ret->config));
    if (!ret->name || !ret->limits || !ret->settings || !ret->config)
        return -ENOMEM;
    for (; ret->config_n < plan->config_n; ret->config_n++) {
        const struct name_value *from = &plan->config[ret->config_n];
        struct name_value *to = &ret->config[ret->config_n];
        *to = (struct name_value){os_strdup(from->name), os_strdup(from->value)};
        if (!to->name || !to->value) {
            ret->config_n++;
            return -ENOMEM;
        }
    }
    return 0;
}

int set_plan_share(const struct set_plan *plan, uint32_t nodes, struct set_plan *ret,
                   uint64_t *ret_empty)
{
    int r = share_copy(plan, ret);
    *ret_empty = 0;
    for (uint32_t i = 0; i < plan->limits_n && r == 0; i++) {
        ret->limits_n = i + 1;
        r = share_limit(plan, i, nodes, ret, ret_empty);
    }
    if (r < 0)
        set_plan_free(ret);
    return r;
}

/* SPDX-License-Identifier: MIT */
/* Settings of a shared set that each process has for itself. */
#include "api/own_settings.h"
#include "api/set_object.h"
#include "base/invariant.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "state/wait_class.h"
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
    return set->timeout_ns == plan->timeout_ns && set->max_wait_ns == plan->max_wait_ns &&
           set->strict == plan->strict && set->limits.counts_holds == plan->counts_holds &&
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

static void *own_settings_dup(const void *data, size_t size)
{
    void *copy = os_alloc(1, size);

    return copy ? memcpy(copy, data, size) : NULL;
}

/* Copies what a variant owns. Returns 0 or -ENOMEM. */
static int own_settings_copy_parts(weir_set *variant, const weir_set *set)
{
    if (set->origin) {
        size_t size = sizeof(*set->origin) + set->limits.n * sizeof(struct origin_limit);

        variant->origin = os_alloc(1, size);
        if (!variant->origin)
            return -ENOMEM;
        variant->origin->predecessor = set->origin->predecessor;
        variant->origin->unopened_word = set->origin->unopened_word;
        memcpy(variant->origin->limits, set->origin->limits,
               set->limits.n * sizeof(struct origin_limit));
    }
    if (set->classes) {
        size_t size = sizeof(*set->classes) + WEIR_LIMITS_MAX * sizeof(*set->classes->unit_costs);

        variant->classes = own_settings_dup(set->classes, size);
        if (!variant->classes)
            return -ENOMEM;
    }
    return set->is_keyed ? keyed_new_variant(variant, keyed_of(set)) : 0;
}

/* Copies what the definition says, and where the state is. */
static void own_settings_copy_definition(weir_set *variant, const weir_set *set)
{
    variant->w = set->w;
    variant->ops = set->ops;
    variant->region = set->region;
    variant->participant = set->participant;
    variant->limits = set->limits;
    variant->head_unit = set->head_unit;
    variant->number = set->number;
    variant->id = set->id;
    variant->inline_format = set->inline_format;
    variant->record_units = set->record_units;
    variant->block_class = set->block_class;
    variant->spare_prepared = atomic_load_explicit(&set->spare_prepared, memory_order_seq_cst);
    variant->fair = set->fair;
    variant->per_limit = set->per_limit;
    variant->reorders = set->reorders;
    variant->hands_over = set->hands_over;
    variant->boottime = set->boottime;
    variant->while_used = set->while_used;
    variant->is_configured = set->is_configured;
    variant->is_later = set->is_later;
    variant->is_robust = set->is_robust;
    variant->backend = set->backend;
    variant->deflated_ns = set->deflated_ns;
    variant->announce_slots = set->announce_slots;
    variant->max_waiters = set->max_waiters;
}

int own_settings_new_variant(const weir_set *set, struct set_plan *plan, weir_set **ret)
{
    size_t name_size = strlen(set_own_name(set)) + 1;
    weir_set *variant = os_alloc(1, set->ops->size + name_size);

    WEIR_INVARIANT(set_is_shared(set) && !set_is_key_set(set));
    WEIR_INVARIANT(instance_lock_is_held(set->w));
    if (!variant)
        return -ENOMEM;
    memcpy((char *)variant + set->ops->size, set_own_name(set), name_size);
    own_settings_copy_definition(variant, set);
    if (set->limits.n) {
        variant->limits.items = limit_intern(&set->w->limits, set->limits.items, set->limits.n);
        if (!variant->limits.items) {
            os_free(variant);
            return -ENOMEM;
        }
        WEIR_INVARIANT(variant->limits.items == set->limits.items);
    }
    if (own_settings_copy_parts(variant, set) < 0) {
        set_free(variant);
        return -ENOMEM;
    }
    own_settings_take(variant, plan);
    variant->fast = fast_path_for(variant);
    *ret = variant;
    return 0;
}

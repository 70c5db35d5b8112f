/* SPDX-License-Identifier: MIT */
/* Makes a set from its plan, of any kind, and frees it. */
#include "api/set_object.h"
#include "api/own_settings.h"
#include "config/plan.h"
#include "limit/limit.h"

#include "api/instance.h"
#include "base/invariant.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "remote/remote.h"
#include "set/places.h"
#include "set/set_ops.h"
#include "state/wait_class.h"
#include <errno.h>
#include <string.h>

const struct set_ops *set_ops_for(const struct set_plan *plan)
{
    if (plan->backend == BACKEND_REMOTE)
        return &remote_set_ops;
    if (plan->classes)
        return &classed_set_ops;
    return plan->keyed.max_keys ? &keyed_set_ops : &plain_set_ops;
}

/* Gives the set its limits. */
static int set_take_limits(weir_set *set, const struct set_plan *plan)
{
    set->limits.n = (uint8_t)plan->limits_n;
    if (!plan->limits_n)
        return 0;
    set->limits.items = limit_intern(&set->w->limits, plan->limits, plan->limits_n);
    if (!set->limits.items)
        return -ENOMEM;
    return plan->places ? places_apply(set, plan->places) : 0;
}

/* Sizes the records of the set. Those of a shared set are as large by every definition. */
static void set_size_records(weir_set *set, const struct set_plan *plan)
{
    uint32_t n = set->limits.n, words = set->ops->record_words + set->limits.has_shadow;

    if (plan->backend == BACKEND_PROCESS && !set->w->private_only) {
        words = set->ops->record_words + 1u;
        n = places_room(n, words);
    }
    set->record_units = (uint8_t)record_units(n + words);
    WEIR_INVARIANT(set->record_units <= RECORD_UNITS_MAX);
}

/* Allocates a set, with its name behind it and its limits interned. */
static weir_set *set_alloc(weir *w, const struct set_plan *plan, const struct set_ops *ops)
{
    size_t name_size = strlen(plan->name) + 1;
    weir_set *set = os_alloc(1, ops->size + name_size);

    WEIR_INVARIANT(plan->limits_n <= WEIR_LIMITS_MAX);
    if (!set)
        return NULL;
    memcpy((char *)set + ops->size, plan->name, name_size);
    set->w = w;
    set->ops = ops;
    set->limits.state_words = plan->state_words + ops->state_words;
    if (set_take_limits(set, plan) < 0) {
        if (set->limits.items)
            limit_intern_release(&w->limits, set->limits.items);
        os_free(set);
        return NULL;
    }
    return set;
}

int set_new(weir *w, uint32_t number, struct set_plan *plan, const struct set_ops *ops,
            weir_set *predecessor, weir_set **ret, struct weir_error *reterr)
{
    weir_set *set = set_alloc(w, plan, ops);
    int r;

    WEIR_INVARIANT(instance_lock_is_held(w));
    WEIR_INVARIANT(number < KEY_SET_ID_BIT);
    if (!set)
        return -ENOMEM;
    set->region = &w->region;
    set->number = set->id = number;
    places_describe(set);
    set_size_records(set, plan);
    set->boottime = plan->boottime;
    /* For resources that are only counted, no time passes. */
    if (plan->boottime && (set->limits.has_waits || set->limits.has_opaque_resources))
        set->limits.clock_needs |= CLOCK_NEEDS_BOOTTIME;
    set->backend = plan->backend;
    set->while_used = plan->while_used;
    set->limits.counts_holds = plan->counts_holds; /* contexts are prepared as it is opened */
    if (predecessor && !(set->origin = set_origin_new(predecessor, &set->limits))) {
        set_free(set);
        return -ENOMEM;
    }
    r = ops->open(set, plan, reterr);
    if (r < 0) {
        set_free(set);
        return r;
    }
    own_settings_take(set, plan);
    set->max_waiters = plan->max_waiters;
    set->fair = plan->fair != FAIR_NO;
    set->per_limit = plan->fair == FAIR_PER_LIMIT && plan->limits_n;
    set->classes = plan->classes;
    plan->classes = NULL;
    if (set->classes && set->limits.is_arranged)
        places_apply_costs(set);
    set->limits.has_classes = set->classes != NULL;
    set->reorders = set->per_limit || set->classes;
    set->hands_over = set_may_hand_over(set);
    set->fast = fast_path_for(set);
    set_plan_free(plan);
    *ret = set;
    return 0;
}

void set_free(weir_set *set)
{
    weir_set *next = set_successor(set);

    /* Those of a shared set are in no registry, and use its participant. */
    while (next && set_is_shared(set)) {
        weir_set *after = set_successor(next);

        atomic_store_explicit(&next->successor, NULL, memory_order_relaxed);
        set_free(next);
        next = after;
    }
    set->ops->close(set);
    set_plan_free(&(struct set_plan){.config = set->config, .config_n = set->config_n});
    os_free(atomic_load_explicit(&set->warnings, memory_order_seq_cst));
    os_free(set->origin);
    os_free(set->classes);
    if (set->limits.n)
        limit_intern_release(&set->w->limits, set->limits.items);
    os_free(set);
}

/* ---- variants ---- */

static void *variant_dup(const void *data, size_t size)
{
    void *copy = os_alloc(1, size);

    return copy ? memcpy(copy, data, size) : NULL;
}

/* Copies what a variant owns. Returns 0 or -ENOMEM. */
static int variant_copy_parts(weir_set *variant, const weir_set *set)
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

        variant->classes = variant_dup(set->classes, size);
        if (!variant->classes)
            return -ENOMEM;
    }
    return set->is_keyed ? keyed_new_variant(variant, keyed_of(set)) : 0;
}

/* Copies what the definition says, and where the state is. */
static void variant_copy_definition(weir_set *variant, const weir_set *set)
{
    variant->w = set->w;
    variant->ops = set->ops;
    variant->region = set->region;
    variant->participant = set->participant;
    variant->limits = set->limits;
    variant->head_unit = set->head_unit;
    variant->head = set->head;
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

int set_new_variant(const weir_set *set, struct set_plan *plan, weir_set **ret)
{
    size_t name_size = strlen(set_own_name(set)) + 1;
    weir_set *variant = os_alloc(1, set->ops->size + name_size);

    WEIR_INVARIANT(set_is_shared(set) && !set_is_key_set(set));
    WEIR_INVARIANT(instance_lock_is_held(set->w));
    if (!variant)
        return -ENOMEM;
    memcpy((char *)variant + set->ops->size, set_own_name(set), name_size);
    variant_copy_definition(variant, set);
    if (set->limits.n) {
        variant->limits.items = limit_intern(&set->w->limits, set->limits.items, set->limits.n);
        if (!variant->limits.items) {
            os_free(variant);
            return -ENOMEM;
        }
        WEIR_INVARIANT(variant->limits.items == set->limits.items);
    }
    if (variant_copy_parts(variant, set) < 0) {
        set_free(variant);
        return -ENOMEM;
    }
    own_settings_take(variant, plan);
    variant->fast = fast_path_for(variant);
    *ret = variant;
    return 0;
}

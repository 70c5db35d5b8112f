/* SPDX-License-Identifier: MIT */
/* Makes a set from its plan, of any kind, and frees it. */
#include "api/set_object.h"
#include "limit/limit_intern.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "set/set_storage.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

const char *set_name(const weir_set *set)
{
    if (set_is_key_set(set))
        return set_name(key_set_of(instance_set(set->w, set->id))->keyed->set);
    return set_own_name(set);
}

/* Allocates a set, with its name behind it and its limits interned. */
static weir_set *set_alloc(weir *w, const struct set_plan *plan)
{
    size_t name_size = strlen(plan->name) + 1;
    weir_set *set = os_alloc(1, sizeof(*set) + name_size);
    struct limit *limits = NULL;

    if (set && plan->limits_n)
        limits = limit_intern(&w->limits, plan->limits, plan->limits_n);
    if (set && plan->limits_n && !limits) {
        os_free(set);
        return NULL;
    }
    if (set) {
        set->limits = (struct limits){.items = limits,
                                      .n = (uint16_t)plan->limits_n,
                                      .state_words = plan->state_words +
                                                     (plan->keyed.max_keys ? KEY_SET_WORDS : 0)};
        memcpy(set + 1, plan->name, name_size);
    }
    return set;
}

static void set_dealloc(weir_set *set)
{
    if (set->limits.n)
        limit_intern_release(&set->w->limits, set->limits.items);
    os_free(set);
}

/* Makes the storage. Its size depends on the number of keys, which keyed_open() finds in it. */
static int set_make_storage(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    struct set_storage_plan storage = {.plan = plan};
    int r = plan->keyed.max_keys ? keyed_new(set, plan, reterr) : 0;

    if (r == 0 && set->keyed) {
        storage.keys_max = set->keyed->capacity;
        storage.key_sets_max = set->keyed->key_sets_max;
    }
    if (r == 0)
        r = set_storage_make(set, &storage, reterr);
    return r == 0 && set->keyed ? keyed_open(set, reterr) : r;
}

int set_new(weir *w, uint32_t number, struct set_plan *plan, weir_set **ret,
            struct weir_error *reterr)
{
    weir_set *set = set_alloc(w, plan);
    int r;

    if (!set)
        return -ENOMEM;
    set->w = w;
    set->region = &w->region;
    set->number = set->id = number;
    set->record_units =
        (uint8_t)record_units(set->limits.n + (plan->keyed.max_keys ? KEYED_RECORD_WORDS : 0));
    limits_describe(&set->limits);
    set->backend = plan->backend;
    set->while_used = plan->while_used;
    r = set_make_storage(set, plan, reterr);
    if (r < 0) {
        keyed_free(set->keyed);
        participant_close(set->participant);
        set_dealloc(set);
        return r;
    }
    set->config = plan->config;
    set->config_n = (uint16_t)plan->config_n;
    plan->config = NULL;
    plan->config_n = 0;
    set->timeout_ns = plan->timeout_ns;
    set->max_wait_ns = plan->max_wait_ns;
    set->max_waiters = plan->max_waiters;
    set->strict = plan->strict;
    set->fair = plan->fair;
    set_plan_free(plan);
    *ret = set;
    return 0;
}

void set_free(weir_set *set)
{
    keyed_free(set->keyed);
    participant_close(set->participant);
    for (uint32_t i = 0; i < set->config_n; i++) {
        os_free(set->config[i].name);
        os_free(set->config[i].value);
    }
    os_free(set->config);
    os_free(atomic_load(&set->warnings));
    set_dealloc(set);
}

/* SPDX-License-Identifier: MIT */
/* Makes and frees sets, and reads them for observers. */
#include "set/set.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "peer/participant.h"
#include "set/set_storage.h"
#include "set/txn.h"
#include <errno.h>
#include <string.h>

uint64_t set_record_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    if (set->participant &&
        (participant_is_broken(set->participant) || (word & 0xff) >= RECORD_BROKEN))
        return record_next_word(word, RECORD_BROKEN);
    return word;
}

void set_forecast(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                  enum forecast_walk forecast_walk, struct decision *ret)
{
    struct txn txn;

    txn.forecast_walks = 0;
    do {
        ret->limiting = NULL;
        txn_begin(&txn, ctx, set);
        if (set_is_broken(set)) {
            *ret = (struct decision){.now_ns = txn.now_ns, .forecast_ns = WEIR_NEVER};
            return;
        }
        if (forecast_walk == FORECAST_SHORT_QUEUE &&
            waitq_length(&txn.version) > FORECAST_QUEUE_MAX)
            txn.forecast_walks = FORECAST_WALKS_MAX;
        /* If only a resource is short, it is the limiting one, though nothing can be forecast. */
        limits_ready_at(&set->limits, txn_states(&txn), &txn.at, amounts, true, &ret->limiting);
    } while (!forecast_compute(&txn, amounts, ret));
}

uint32_t set_snapshot(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;

    txn_begin(&txn, ctx, set);
    return waitq_length(&txn.version);
}

const char *set_name(const weir_set *set)
{
    if (set_is_key_set(set))
        return set_name(key_set_of(instance_set(set->w, set->id))->keyed->set);
    return (const char *)(set + 1);
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
    int r = plan->keyed.max_keys ? keyed_new(set, plan, reterr) : 0;

    if (r == 0)
        r = set_storage_make(set, plan, reterr);
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

/* SPDX-License-Identifier: MIT */
/* Sets: made and freed, and as those see them who change nothing. */
#include "set/set.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "keyed/key_set.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "peer/participant.h"
#include "set/set_storage.h"
#include "set/txn.h"
#include <errno.h>
#include <string.h>

uint64_t set_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    if (set->member && (member_is_broken(set->member) || (word & 0xff) >= RECORD_BROKEN))
        return record_next_word(word, RECORD_BROKEN);
    return word;
}

void set_estimate(struct actor *actor, weir_set *set, const uint64_t *amounts, enum walk walk,
                  struct verdict *ret)
{
    struct operation op;

    op.walks = 0;
    do {
        ret->blame = NULL;
        operation_read(&op, actor, set);
        if (set_is_broken(set)) {
            *ret = (struct verdict){.now_ns = op.now_ns, .estimate_ns = WEIR_NEVER};
            return;
        }
        if (walk == SHORT_LINE && line_length(&op.version) > SHORT_LINE_MAX)
            op.walks = WALKS_MAX;
        /* If only a resource is short, that is what is to blame, though nothing can be foreseen. */
        limits_ready_at(&set->limits, operation_states(&op), &op.at, amounts, true, &ret->blame);
    } while (!projection_estimate(&op, amounts, ret));
}

uint32_t set_snapshot(struct actor *actor, weir_set *set)
{
    struct operation op;

    operation_read(&op, actor, set);
    return line_length(&op.version);
}

const char *set_name(const weir_set *set)
{
    if (set_is_hidden(set))
        return set_name(live_of(instance_set(set->w, set->id))->keyed->set);
    return (const char *)(set + 1);
}

/* With its name behind it, and its limits. */
static weir_set *begin(weir *w, const struct set_plan *plan)
{
    size_t name_size = strlen(plan->name) + 1;
    weir_set *set = sys_alloc(1, sizeof(*set) + name_size);
    struct limit *limits = NULL;

    if (set && plan->limits_n)
        limits = limits_share(&w->limits, plan->limits, plan->limits_n);
    if (set && plan->limits_n && !limits) {
        sys_free(set);
        return NULL;
    }
    if (set) {
        set->limits = (struct limits){.items = limits,
                                      .n = (uint16_t)plan->limits_n,
                                      .state_words = plan->state_words +
                                                     (plan->keyed.max_keys ? LIVE_WORDS : 0)};
        memcpy(set + 1, plan->name, name_size);
    }
    return set;
}

static void end(weir_set *set)
{
    if (set->limits.n)
        limits_give_back(&set->w->limits, set->limits.items);
    sys_free(set);
}

/* How large its place is depends on how many keys there are to be; what they have is there. */
static int place(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    int r = plan->keyed.max_keys ? keyed_new(set, plan, reterr) : 0;

    if (r == 0)
        r = placement_make(set, plan, reterr);
    return r == 0 && set->keyed ? keyed_open(set, reterr) : r;
}

int set_new(weir *w, uint32_t number, struct set_plan *plan, weir_set **ret,
            struct weir_error *reterr)
{
    weir_set *set = begin(w, plan);
    int r;

    if (!set)
        return -ENOMEM;
    set->w = w;
    set->region = &w->region;
    set->number = set->id = number;
    set->record_units =
        (uint8_t)record_units(set->limits.n + (plan->keyed.max_keys ? KEYED_RECORD_WORDS : 0));
    if (MUTANT(162) && !set->limits.n)
        set->record_units = 1;
    limits_describe(&set->limits);
    set->backend = plan->backend;
    set->while_used = plan->while_used;
    r = place(set, plan, reterr);
    if (r < 0) {
        keyed_free(set->keyed);
        member_close(set->member);
        end(set);
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
    member_close(set->member);
    for (uint32_t i = 0; i < set->config_n; i++) {
        sys_free(set->config[i].name);
        sys_free(set->config[i].value);
    }
    sys_free(set->config);
    sys_free(atomic_load(&set->warnings));
    end(set);
}

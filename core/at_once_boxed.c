/* SPDX-License-Identifier: MIT */
/* What most calls come to, of sets whose state is in a box: see at_once_boxed.h. */
#include "at_once_boxed.h"

#include "at_once_inside.h"
#include "mutant.h"
#include "plain.h"
#include "request.h"
#include "step.h"
#include <errno.h>

int boxed_take(weir_set *set, const struct weir_request *request)
{
    struct actor *actor = actor_mine;
    uint64_t amounts[ACQUISITION_LIMITS], now_ns;

    if (!actor || actor->w != set->w || !actor_is_prepared(actor, set->number) ||
        set->limits.has_lease || !is_open(set->w) || !(request = request_read(request)) ||
        !request_resolve_simple(set, request, PURPOSE_TAKE, amounts) ||
        request_is_empty(set, amounts) || plain_take(actor, set, amounts, &now_ns) < 0)
        return -EINPROGRESS;
    set_count_entry(actor, set, amounts, 0);
    return 0;
}

/* What a box grants is said in the record and in the acquisition. */
static void hold_boxed(const struct actor *actor, weir_acquisition *acquisition, uint64_t now_ns)
{
    weir_set *set = acquisition->set;
    struct record *r = record_at(set->region, acquisition->record);
    uint32_t n = set->limits.n;

    for (uint32_t i = 0; i < n; i++) {
        acquisition->values[n + i] = acquisition->values[i];
        record_store(&r->amounts[i], acquisition->values[i]);
    }
    hold(actor, set, acquisition->record, acquisition->values[0], now_ns);
}

int boxed_acquire(weir_set *set, const struct weir_request *request, enum entry entry,
                  weir_acquisition **ret)
{
    struct actor *actor = actor_mine;
    weir_acquisition *acquisition = actor ? actor->cache : NULL;
    uint64_t now_ns;

    if (!acquisition || acquisition->set != set || !ret || !is_open(set->w) ||
        !(request = request_read(request)) ||
        !request_resolve_simple(set, request, PURPOSE_ACQUIRE, acquisition->values) ||
        request_is_empty(set, acquisition->values) || plain_has_line(set, entry) ||
        plain_take(actor, set, acquisition->values, &now_ns) < 0)
        return -EINPROGRESS;
    STEP();
    hold_boxed(actor, acquisition, now_ns);
    hand_out(actor, acquisition, request->flags & WEIR_STRICT);
    set_count_entry(actor, set, acquisition->values, acquisition->record);
    *ret = acquisition;
    return 0;
}

/* Whether of a set whose state is in a box nothing comes back but resources, which nobody asks for. */
static bool all_was_used(const weir_acquisition *acquisition)
{
    uint32_t n = acquisition->set->limits.n;
    uint64_t different = 0;

    for (uint32_t i = 0; i < n; i++)
        different |= acquisition->values[i] ^ acquisition->values[n + i];
    return !different && !acquisition->set->limits.has_unforeseen;
}

static void give_back_boxed(struct actor *actor, weir_set *set, const uint64_t *amounts)
{
    const struct settlement settlement = {.amounts = amounts, .used = amounts};

    if (!plain_give_back(actor, set, amounts) && !MUTANT(568))
        set_give_back(actor, set, &settlement);
}

int boxed_release(weir_acquisition *acquisition)
{
    struct actor *actor = actor_mine;
    weir_set *set = acquisition->set;
    struct counters *counters;
    bool missing = false;

    if (acquisition->actor != actor || actor->cache_n >= CACHE_MAX || !is_open(set->w) ||
        (!all_was_used(acquisition) && !MUTANT(567)))
        return -EINPROGRESS;
    for (uint32_t i = 0; i < set->limits.n; i++)
        missing |= acquisition_lacks_update(acquisition, i);
    acquisition_free_word(set, acquisition->record);
    if (set->limits.has_resources)
        give_back_boxed(actor, set, acquisition->values);
    counters = actor_counters(actor, set->number);
    count(&counters->released, 1);
    if (missing)
        count(&counters->missing_update, 1);
    take_in(actor, acquisition);
    return missing ? -EPROTO : 0;
}

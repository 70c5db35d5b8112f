/* SPDX-License-Identifier: MIT */
/* What most calls come to, of sets whose state is in a box: see at_once_boxed.h. */
#include "api/fast_path_block.h"

#include "api/fast_path_internal.h"
#include "api/pool.h"
#include "api/request.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "set/try_now.h"
#include "set/try_now_internal.h"
#include <errno.h>

/* Here, for a call of another function takes longer than this. */
ALWAYS void count_entry(const struct actor *actor, const weir_set *set, const uint64_t *amounts,
                        bool taken)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->granted, 1);
    if (taken)
        count(&counters->taken, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        count(&counters->limits[i].granted, amounts[i]);
}

/* ---- to take ---- */

ALWAYS int take_at_once(bool mortal, weir_set *set, const struct weir_request *request)
{
    struct actor *actor = actor_mine;
    uint64_t amounts[ACQUISITION_LIMITS], now_ns;

    if (!actor || actor->w != set->w || !actor_is_prepared(actor, set->number) ||
        set->limits.has_lease || !is_open(set->w) || !(request = request_read(request)) ||
        !request_resolve_simple(set, request, PURPOSE_TAKE, amounts) ||
        request_is_empty(set, amounts) || take(mortal, actor, set, amounts, 0, false, &now_ns) < 0)
        return -EINPROGRESS;
    count_entry(actor, set, amounts, true);
    return 0;
}

APART int take_mortal(weir_pool *pool, const struct weir_request *request,
                      struct weir_refusal *retref)
{
    int r = take_at_once(true, pool->plain, request);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

APART int take_private(weir_pool *pool, const struct weir_request *request,
                       struct weir_refusal *retref)
{
    int r = take_at_once(false, pool->plain, request);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int boxed_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    return pool->plain->mortal ? take_mortal(pool, request, retref)
                               : take_private(pool, request, retref);
}

/* ---- to acquire ---- */

/* All limits with the key that the request names, if it names one; otherwise none. */
static uint8_t named_by(const weir_set *set, const struct weir_request *request)
{
    uint8_t named = 0;

    for (uint32_t i = 0; i < set->limits.n && request->amounts_n == 1; i++)
        if (key_equal(set->limits.items[i].key, request->amounts->key))
            named |= (uint8_t)(1u << i);
    if (MUTANT(646))
        return named & (uint8_t)-named;
    return named;
}

/* What is asked for, into a ready acquisition. */
static __attribute__((noinline)) bool resolve(weir_acquisition *acquisition,
                                              const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    struct record *r = record_at(set->region, acquisition->record);
    uint64_t *values = acquisition->values;

    acquisition->named &= MUTANT(647) ? UINT8_MAX : 0;
    if (!request_resolve_simple(set, request, PURPOSE_ACQUIRE, values) ||
        request_is_empty(set, values))
        return false;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        values[set->limits.n + i] = values[i];
        record_store(&r->amounts[i], values[i]);
    }
    acquisition->named = named_by(set, request);
    return true;
}

/* The same if what is named is what was named the last time: the rest is as it was. */
ALWAYS bool resolve_again(weir_acquisition *acquisition, const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    struct record *r = record_at(set->region, acquisition->record);
    uint64_t amount;

    if (request->amounts_n != 1 || !acquisition_names(acquisition, request->amounts->key))
        return false;
    amount = request->amounts->amount;
    for (uint32_t named = acquisition->named; named; named &= named - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(named);

        if (!amount || amount > set->limits.items[i].capacity || amount == REQUEST_NOT_ASKED)
            return false;
        acquisition->values[i] = acquisition->values[set->limits.n + i] = amount;
        record_store(&r->amounts[i], amount);
    }
    return true;
}

/* Where others may die, the record becomes HELD with the version. */
ALWAYS int take_for(bool mortal, struct actor *actor, weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    uint64_t now_ns;
    int r;

    if (mortal) {
        name_holder(actor, set, set_record(set, acquisition->record));
        return take(true, actor, set, acquisition->values, MUTANT(637) ? 0 : acquisition->record,
                    true, &now_ns);
    }
    r = take(false, actor, set, acquisition->values, 0, false, &now_ns);
    STEP();
    if (r == 0)
        hold(actor, set, acquisition->record, acquisition->values[0], now_ns);
    return r;
}

ALWAYS int acquire_at_once(bool mortal, weir_set *set, const struct weir_request *request,
                           enum entry entry, weir_acquisition **ret)
{
    struct actor *actor = actor_mine;
    weir_acquisition *acquisition = actor ? actor->cache : NULL;

    if (!acquisition || acquisition->set != set || !ret || !is_open(set->w) ||
        !(request = request_read(request)) ||
        (!resolve_again(acquisition, request) && !resolve(acquisition, request)) ||
        plain_has_line(set, entry) || take_for(mortal, actor, acquisition) < 0)
        return -EINPROGRESS;
    hand_out(actor, acquisition, request->flags & WEIR_STRICT);
    count_entry(actor, set, acquisition->values, false);
    *ret = acquisition;
    return 0;
}

APART int ask_mortal(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref, long_way *otherwise)
{
    enum entry entry = otherwise == acquire_try ? ENTRY_TRY : ENTRY_PROBE;
    int r = acquire_at_once(true, pool->plain, request, entry, ret);

    return r != -EINPROGRESS ? r : otherwise(pool, request, ret, retref);
}

APART int ask_private(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                      struct weir_refusal *retref, long_way *otherwise)
{
    enum entry entry = otherwise == acquire_try ? ENTRY_TRY : ENTRY_PROBE;
    int r = acquire_at_once(false, pool->plain, request, entry, ret);

    return r != -EINPROGRESS ? r : otherwise(pool, request, ret, retref);
}

int boxed_ask(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
              struct weir_refusal *retref, long_way *otherwise)
{
    return pool->plain->mortal ? ask_mortal(pool, request, ret, retref, otherwise)
                               : ask_private(pool, request, ret, retref, otherwise);
}

/* ---- to release ---- */

/*
 * Resources, which ask nobody. Where others may die, the record, whose word is `held`, becomes FREE with
 * the version. False: somebody is in line, or there is something else to think of.
 */
ALWAYS bool give_back_at_once(bool mortal, struct actor *actor, const weir_acquisition *acquisition,
                              uint64_t held)
{
    weir_set *set = acquisition->set;
    const struct record *r = mortal ? set_record(set, acquisition->record) : NULL;
    struct short_version version;

    for (unsigned turn = 0;; short_lost(mortal, version.head, &turn)) {
        if (!read_plain(mortal, actor, set, &turn, &version) ||
            (r && record_load(&r->word) != held))
            return false;
        release_all(&set->limits, states_of(&version), acquisition->values);
        set_effect(mortal, &version, acquisition->record, true, held, RECORD_FREE);
        if (commit_plain(mortal, actor, set, turn, &version))
            return true;
    }
}

static void give_back(struct actor *actor, weir_set *set, const uint64_t *amounts)
{
    const struct settlement settlement = {.amounts = amounts, .used = amounts};

    if (!MUTANT(568))
        set_give_back(actor, set, &settlement);
}

/* False: nothing has happened. */
ALWAYS bool end(bool mortal, struct actor *actor, weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    uint64_t held = mortal ? record_load(&set_record(set, acquisition->record)->word) : 0;

    if (mortal && !is_held(set, held))
        return false;
    if (mortal && set->limits.has_resources)
        return give_back_at_once(true, actor, acquisition, held);
    acquisition_free_word(set, acquisition->record);
    if (set->limits.has_resources && !give_back_at_once(false, actor, acquisition, 0))
        give_back(actor, set, acquisition->values);
    return true;
}

/* Only of what is named can the amount be another than the default, which need not be told of. */
ALWAYS bool lacks_update(weir_acquisition *acquisition)
{
    bool lacks = false;

    if (acquisition->named && !(acquisition->named & ~acquisition->updated))
        return false;
    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        lacks |= acquisition_lacks_update(acquisition, i);
    return lacks;
}

ALWAYS int release_at_once(bool mortal, weir_acquisition *acquisition)
{
    struct actor *actor = actor_mine;
    weir_set *set = acquisition->set;
    bool missing;

    if (acquisition->actor != actor || actor->cache_n >= CACHE_MAX || !is_open(set->w) ||
        ((acquisition->differs || set->limits.has_unforeseen) && !MUTANT(567)))
        return -EINPROGRESS;
    missing = lacks_update(acquisition);
    if (!end(mortal, actor, acquisition))
        return -EINPROGRESS;
    return released(actor, set, acquisition, missing);
}

APART int release_mortal(weir_acquisition *acquisition)
{
    int r = release_at_once(true, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

APART int release_private(weir_acquisition *acquisition)
{
    int r = release_at_once(false, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

int boxed_release(weir_acquisition *acquisition)
{
    return acquisition->set->mortal ? release_mortal(acquisition) : release_private(acquisition);
}

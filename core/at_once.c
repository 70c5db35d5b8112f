/* SPDX-License-Identifier: MIT */
/* What most calls come to: see at_once.h. */
#include "at_once.h"

#include "acquire.h"
#include "asking.h"
#include "at_once_boxed.h"
#include "at_once_inside.h"
#include "lease.h"
#include "mutant.h"
#include "plain.h"
#include "pool.h"
#include "step.h"
#include <errno.h>

bool at_once_knows(const weir_set *set)
{
    return ((set->form == WORD_STATE && !set->member && !set->keyed) || plain_knows(set)) &&
           !set_is_hidden(set) && set->limits.n <= ACQUISITION_LIMITS;
}

/* Whether its state is in a box: that of several limits, or of one which does not fit its word. */
ALWAYS bool is_boxed(const weir_set *set)
{
    return set->form == WORD_NONE;
}

/* What is asked of the set's only limit. False: nothing, or who knows. */
ALWAYS bool resolve(const weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *ret)
{
    request = request_read(request);
    return request && request_resolve_one(set, request, purpose, ret) && *ret;
}

ALWAYS struct weir_instant read_clock(const weir_set *set)
{
    if (set->limits.items->algorithm)
        return instance_instant(set->w, set->limits.reads_wall);
    return (struct weir_instant){.now_ns = instance_tick(set->w)};
}

/* Takes it from the state, if it can be had: `at->now_ns`. Otherwise the instant to come back. */
ALWAYS uint64_t try_take(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                         uint64_t amount)
{
    if (limit->algorithm)
        return limit_try_take(limit, state, at, amount);
    if (*state > limit->capacity - amount)
        return WEIR_BLOCKED;
    *state += amount;
    return at->now_ns;
}

/* 0 granted; -EAGAIN: `*ret_ready`, later than the clock; -EINPROGRESS. */
ALWAYS int decide(const weir_set *set, const struct weir_instant *at, uint64_t amount,
                  uint64_t *ret_ready)
{
    const struct limit *limit = set->limits.items;
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        uint64_t word = publication_peek(set->region, set->head), state = word;

        STEP();
        if (word & WORD_BOXED ||
            (at->now_ns < atomic_load_explicit(set->unboxed_ns, memory_order_acquire) &&
             !MUTANT(555)))
            return -EINPROGRESS;
        *ret_ready = try_take(limit, &state, at, amount);
        if (*ret_ready > at->now_ns)
            return *ret_ready == WEIR_NEVER ? -EINPROGRESS : -EAGAIN;
        if (state & WORD_BOXED)
            return -EINPROGRESS;
        if (publication_swap(set->region, set->head, word, state))
            return 0;
    }
}

APART int refuse(struct counters *counters, const weir_set *set, uint64_t now_ns, uint64_t ready,
                 struct weir_refusal *retref)
{
    const struct limit *limit = set->limits.items;
    const struct verdict verdict = {
        .now_ns = now_ns,
        .estimate_ns = limit->type == WEIR_LIMIT_RESOURCE ? now_ns : ready, /* not foreseen */
        .blame = limit};

    count(&counters->refused_busy, 1);
    count(&counters->limits[0].refused, 1);
    if (retref)
        asking_say(retref, set, &verdict);
    return -EAGAIN;
}

ALWAYS void count_grant(struct counters *counters, uint64_t amount)
{
    count(&counters->granted, 1);
    count(&counters->limits[0].granted, amount);
}

APART int take_leased(struct actor *actor, weir_set *set, uint64_t amount,
                      struct weir_refusal *retref)
{
    struct verdict verdict = {0};
    int r = lease_take(actor, set, amount, &verdict);

    if (r < 0)
        asking_say(retref, set, &verdict);
    return r;
}

ALWAYS int take(weir_set *set, const struct weir_request *request, struct weir_refusal *retref)
{
    struct actor *actor = actor_mine;
    struct counters *counters;
    struct weir_instant at;
    uint64_t amount, ready;
    int r;

    if (!actor || actor->w != set->w || !actor_is_prepared(actor, set->number) ||
        !is_open(set->w) || !resolve(set, request, PURPOSE_TAKE, &amount))
        return -EINPROGRESS;
    if (set->limits.has_lease)
        return take_leased(actor, set, amount, retref);
    counters = actor_counters(actor, set->number);
    at = read_clock(set);
    r = decide(set, &at, amount, &ready);
    if (r == -EAGAIN)
        return refuse(counters, set, at.now_ns, ready, retref);
    if (r == 0) {
        count_grant(counters, amount);
        count(&counters->taken, 1);
    }
    return r;
}

APART int take_plain(weir_pool *pool, const struct weir_request *request,
                     struct weir_refusal *retref)
{
    int r = take(pool->plain, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    if (!pool || !pool->plain)
        return acquire_take(pool, request, retref);
    return is_boxed(pool->plain) ? boxed_take(pool, request, retref)
                                 : take_plain(pool, request, retref);
}

void at_once_begin(struct actor *actor, weir_acquisition *acquisition)
{
    acquisition_see(acquisition);
    if (acquisition->record && at_once_knows(acquisition->set))
        acquisition->actor = actor;
}

/* After a probe whoever is refused waits, the long way. */
ALWAYS int acquire(weir_set *set, const struct weir_request *request, enum entry entry,
                   weir_acquisition **ret, struct weir_refusal *retref)
{
    struct actor *actor = actor_mine;
    weir_acquisition *acquisition = actor ? actor->cache : NULL;
    struct counters *counters;
    struct weir_instant at;
    uint64_t amount, ready;
    int r;

    if (!acquisition || (acquisition->set != set && (!acquisition->set || !MUTANT(557))) || !ret ||
        !is_open(set->w) || !resolve(set, request, PURPOSE_ACQUIRE, &amount))
        return -EINPROGRESS;
    counters = actor_counters(actor, set->number);
    at = read_clock(set);
    r = decide(set, &at, amount, &ready);
    if (r == -EAGAIN && entry == ENTRY_TRY)
        return refuse(counters, set, at.now_ns, ready, retref);
    if (r < 0)
        return -EINPROGRESS;
    STEP();
    hold(actor, set, acquisition->record, amount, at.now_ns);
    acquisition->values[0] = acquisition->values[1] = amount;
    hand_out(actor, acquisition, request && request->flags & WEIR_STRICT);
    count_grant(counters, amount);
    *ret = acquisition;
    return 0;
}

APART int try_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                    struct weir_refusal *retref)
{
    int r = acquire(pool->plain, request, ENTRY_TRY, ret, retref);

    return r != -EINPROGRESS ? r : acquire_try(pool, request, ret, retref);
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    if (!pool || !pool->plain)
        return acquire_try(pool, request, ret, retref);
    return is_boxed(pool->plain) ? boxed_try(pool, request, ret, retref)
                                 : try_plain(pool, request, ret, retref);
}

APART int submit_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                       struct weir_refusal *retref)
{
    int r = acquire(pool->plain, request, ENTRY_PROBE, ret, retref);

    return r != -EINPROGRESS ? r : acquire_pending(pool, request, ret, retref);
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    if (!pool || !pool->plain)
        return acquire_pending(pool, request, ret, retref);
    return is_boxed(pool->plain) ? boxed_submit(pool, request, ret, retref)
                                 : submit_plain(pool, request, ret, retref);
}

APART int acquire_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                        struct weir_refusal *retref)
{
    int r = acquire(pool->plain, request, ENTRY_PROBE, ret, retref);

    return r != -EINPROGRESS ? r : acquire_blocking(pool, request, ret, retref);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    if (!pool || !pool->plain)
        return acquire_blocking(pool, request, ret, retref);
    return is_boxed(pool->plain) ? boxed_acquire(pool, request, ret, retref)
                                 : acquire_plain(pool, request, ret, retref);
}

/* What the record had goes back to the state, which was its word a moment ago. */
ALWAYS void give_back(struct actor *actor, weir_set *set, const uint64_t *amount)
{
    const struct settlement settlement = {.amounts = amount, .used = amount};
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        uint64_t word = publication_peek(set->region, set->head);

        STEP();
        if (word & WORD_BOXED) {
            if (!MUTANT(556))
                set_give_back(actor, set, &settlement);
            return;
        }
        if (publication_swap(set->region, set->head, word, word - *amount))
            return;
    }
}

bool at_once_keep(struct actor *actor, weir_acquisition *acquisition)
{
    if (!acquisition->record || !at_once_knows(acquisition->set) || actor->cache_n >= CACHE_MAX)
        return false;
    acquisition_see(acquisition); /* as it will be once it is granted */
    take_in(actor, acquisition);
    return true;
}

/* Whether it goes back by a step of the set's word, or by none. Otherwise it is the algorithm's. */
ALWAYS bool is_simple(const weir_acquisition *acquisition, const struct limit *limit)
{
    return !limit->algorithm ||
           (limit->type != WEIR_LIMIT_RESOURCE && acquisition->values[1] == acquisition->values[0]);
}

ALWAYS int release(weir_acquisition *acquisition)
{
    struct actor *actor = actor_mine;
    weir_set *set = acquisition->set;
    const struct limit *limit = set->limits.items;
    struct counters *counters;
    bool missing;

    if (acquisition->actor != actor || actor->cache_n >= CACHE_MAX || !is_open(set->w) ||
        !is_simple(acquisition, limit))
        return -EINPROGRESS;
    counters = actor_counters(actor, set->number);
    missing = acquisition_lacks_update(acquisition, 0);
    acquisition_free_word(set, acquisition->record);
    if (!limit->algorithm)
        give_back(actor, set, acquisition->values);
    count(&counters->released, 1);
    if (missing)
        count(&counters->missing_update, 1);
    take_in(actor, acquisition);
    return missing ? -EPROTO : 0;
}

APART int release_plain(weir_acquisition *acquisition)
{
    int r = release(acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

int weir_release(weir_acquisition **at)
{
    weir_acquisition *acquisition = at ? *at : NULL;

    if (!acquisition)
        return 0;
    *at = NULL;
    if (!acquisition->actor)
        return acquisition_release(acquisition);
    return is_boxed(acquisition->set) ? boxed_release(acquisition) : release_plain(acquisition);
}

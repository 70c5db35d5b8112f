/* SPDX-License-Identifier: MIT */
/* What most calls come to: see at_once.h. */
#include "at_once.h"

#include "acquire.h"
#include "asking.h"
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

/* What a call would rather not repeat to get out of its way. */
#define ALWAYS static inline __attribute__((always_inline))
/* What other sets shall not save registers for. */
#define APART static __attribute__((noinline))

/* Whether its state is in a box: that of several limits, or of one which does not fit its word. */
ALWAYS bool is_boxed(const weir_set *set)
{
    return set->form == WORD_NONE;
}

/* And nobody is to be told first that it goes by another clock. */
ALWAYS bool is_open(weir *w)
{
    return !instance_forked(w) && !instance_closed(w) && !instance_has_news(w);
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

/* The same of a set whose state is in a box. Who is refused is told the long way. */
APART int take_boxed(weir_set *set, const struct weir_request *request)
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

APART int take_plain(weir_pool *pool, const struct weir_request *request,
                     struct weir_refusal *retref)
{
    int r = is_boxed(pool->plain) ? take_boxed(pool->plain, request)
                                  : take(pool->plain, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    return pool && pool->plain ? take_plain(pool, request, retref)
                               : acquire_take(pool, request, retref);
}

void at_once_begin(struct actor *actor, weir_acquisition *acquisition)
{
    acquisition_see(acquisition);
    if (acquisition->record && at_once_knows(acquisition->set))
        acquisition->actor = actor;
}

/* The record of a ready acquisition becomes HELD. */
ALWAYS void hold(const struct actor *actor, const weir_set *set, uint32_t record, uint64_t amount,
                 uint64_t now_ns)
{
    struct record *r = record_at(set->region, record);

    record_store(&r->amounts[0], amount);
    record_store(&r->granted, now_ns);
    record_store(&r->since, now_ns);
    if (!MUTANT(554))
        record_store(&r->set, (uint64_t)set->id << 32 | actor->thread);
    STEP();
    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_HELD),
                          memory_order_release);
    STEP();
}

ALWAYS void hand_out(struct actor *actor, weir_acquisition *acquisition, bool strict)
{
    actor->cache = acquisition->next;
    actor->cache_n--;
    actor_hold(actor);
    acquisition->actor = actor;
    acquisition->queue = NULL;
    acquisition->strict = strict;
    acquisition->updated &= MUTANT(552);
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

/* The same of a set whose state is in a box. Who is refused is told the long way, or waits. */
APART int acquire_boxed(weir_set *set, const struct weir_request *request, enum entry entry,
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

APART int try_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                    struct weir_refusal *retref)
{
    int r = is_boxed(pool->plain) ? acquire_boxed(pool->plain, request, ENTRY_TRY, ret)
                                  : acquire(pool->plain, request, ENTRY_TRY, ret, retref);

    return r != -EINPROGRESS ? r : acquire_try(pool, request, ret, retref);
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    return pool && pool->plain ? try_plain(pool, request, ret, retref)
                               : acquire_try(pool, request, ret, retref);
}

APART int submit_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                       struct weir_refusal *retref)
{
    int r = is_boxed(pool->plain) ? acquire_boxed(pool->plain, request, ENTRY_PROBE, ret)
                                  : acquire(pool->plain, request, ENTRY_PROBE, ret, retref);

    return r != -EINPROGRESS ? r : acquire_pending(pool, request, ret, retref);
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    return pool && pool->plain ? submit_plain(pool, request, ret, retref)
                               : acquire_pending(pool, request, ret, retref);
}

APART int acquire_plain(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                        struct weir_refusal *retref)
{
    int r = is_boxed(pool->plain) ? acquire_boxed(pool->plain, request, ENTRY_PROBE, ret)
                                  : acquire(pool->plain, request, ENTRY_PROBE, ret, retref);

    return r != -EINPROGRESS ? r : acquire_blocking(pool, request, ret, retref);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    return pool && pool->plain ? acquire_plain(pool, request, ret, retref)
                               : acquire_blocking(pool, request, ret, retref);
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

ALWAYS void take_in(struct actor *actor, weir_acquisition *acquisition)
{
    acquisition->next = actor->cache;
    actor->cache = acquisition;
    actor->cache_n++;
    actor_drop(actor);
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

APART int release_boxed(weir_acquisition *acquisition)
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

APART int release_plain(weir_acquisition *acquisition)
{
    int r = is_boxed(acquisition->set) ? release_boxed(acquisition) : release(acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

int weir_release(weir_acquisition **at)
{
    weir_acquisition *acquisition = at ? *at : NULL;

    if (!acquisition)
        return 0;
    *at = NULL;
    return acquisition->actor ? release_plain(acquisition) : acquisition_release(acquisition);
}

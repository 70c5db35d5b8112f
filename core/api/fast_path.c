/* SPDX-License-Identifier: MIT */
/* What most calls come to: see at_once.h. */
#include "api/fast_path.h"

#include "api/acquire.h"
#include "api/acquire_op.h"
#include "api/fast_path_block.h"
#include "api/fast_path_internal.h"
#include "api/pool.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "peer/peer_cleanup.h"
#include "set/lease.h"
#include "set/try_now.h"
#include "state/inline_state_step.h"
#include <errno.h>

bool at_once_knows(const weir_set *set)
{
    return ((set->form != WORD_NONE && !set->keyed) || plain_knows(set)) && !set_is_hidden(set) &&
           set->limits.n <= ACQUISITION_LIMITS;
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

/* Nobody is in line, so what the state says is all that there is to say. */
APART int refuse(const struct actor *actor, const weir_set *set, uint64_t now_ns, uint64_t ready,
                 struct weir_refusal *retref)
{
    const struct limit *limit = set->limits.items;
    struct counters *counters = actor_counters(actor, set->number);
    const struct verdict verdict = {
        .now_ns = now_ns,
        .estimate_ns = limit->type == WEIR_LIMIT_RESOURCE ? now_ns : ready, /* not foreseen */
        .blame = limit};

    /* What is short may be held by the dead. */
    if (ready == WEIR_NEVER || (set->member && burial_is_due(set, now_ns) && !MUTANT(635)))
        return -EINPROGRESS;
    count(&counters->refused_busy, 1);
    count(&counters->limits[0].refused, 1);
    if (retref)
        asking_say(retref, set, &verdict);
    return -EAGAIN;
}

ALWAYS struct counters *count_grant(const struct actor *actor, const weir_set *set, uint64_t amount)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->granted, 1);
    count(&counters->limits[0].granted, amount);
    return counters;
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

ALWAYS int take(bool shared, weir_set *set, const struct weir_request *request,
                struct weir_refusal *retref)
{
    struct actor *actor = actor_mine;
    struct word_grant grant = {0};
    struct weir_instant at;
    uint64_t word, ready;
    int r;

    if (!actor || actor->w != set->w || !actor_is_prepared(actor, set->number) ||
        !is_open(set->w) || !resolve(set, request, PURPOSE_TAKE, &grant.amount))
        return -EINPROGRESS;
    if (set->limits.has_lease)
        return take_leased(actor, set, grant.amount, retref);
    at = word_instant(set);
    r = word_take(shared, set, &at, &grant, &word, &ready);
    if (r == -EAGAIN)
        return refuse(actor, set, at.now_ns, ready, retref);
    if (r == 0)
        count(&count_grant(actor, set, grant.amount)->taken, 1);
    return r;
}

APART int take_private(weir_pool *pool, const struct weir_request *request,
                       struct weir_refusal *retref)
{
    int r = take(false, pool->plain, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

APART int take_shared(weir_pool *pool, const struct weir_request *request,
                      struct weir_refusal *retref)
{
    int r = take(true, pool->plain, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    if (!pool || !pool->plain)
        return acquire_take(pool, request, retref);
    if (is_boxed(pool->plain))
        return boxed_take(pool, request, retref);
    return pool->plain->member ? take_shared(pool, request, retref)
                               : take_private(pool, request, retref);
}

void at_once_begin(struct actor *actor, weir_acquisition *acquisition)
{
    acquisition_see(acquisition);
    if (acquisition->record && at_once_knows(acquisition->set))
        acquisition->actor = actor;
}

/* `waits`: who is refused, the long way. */
ALWAYS int acquire(bool shared, weir_set *set, const struct weir_request *request, bool waits,
                   weir_acquisition **ret, struct weir_refusal *retref)
{
    struct actor *actor = actor_mine;
    weir_acquisition *acquisition = actor ? actor->cache : NULL;
    struct word_grant grant = {0};
    struct weir_instant at;
    uint64_t word, ready = 0;
    struct record *record = NULL;
    int r;

    if (!acquisition || (acquisition->set != set && (!acquisition->set || !MUTANT(557))) || !ret ||
        !is_open(set->w) || !resolve(set, request, PURPOSE_ACQUIRE, &grant.amount))
        return -EINPROGRESS;
    at = word_instant(set);
    if (shared) { /* whoever completes the ledger knows nothing of it */
        record = set_record(set, acquisition->record);
        grant.record = acquisition->record;
        grant.seat = actor_part(actor, set->number)->seat;
        grant.held = prepare(actor, set, record, grant.amount, at.now_ns);
    }
    r = word_take(shared, set, &at, &grant, &word, &ready);
    if (r == -EAGAIN && !waits)
        return refuse(actor, set, at.now_ns, ready, retref);
    if (r < 0)
        return -EINPROGRESS;
    STEP();
    if (!shared) {
        record = set_record(set, acquisition->record);
        grant.held = prepare(actor, set, record, grant.amount, at.now_ns);
    }
    become(record, grant.held);
    acquisition->values[0] = acquisition->values[1] = grant.amount;
    hand_out(actor, acquisition, request && request->flags & WEIR_STRICT);
    count_grant(actor, set, grant.amount);
    *ret = acquisition;
    return 0;
}

APART int ask_private(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                      struct weir_refusal *retref, long_way *otherwise)
{
    int r = acquire(false, pool->plain, request, otherwise != acquire_try, ret, retref);

    return r != -EINPROGRESS ? r : otherwise(pool, request, ret, retref);
}

APART int ask_shared(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref, long_way *otherwise)
{
    int r = acquire(true, pool->plain, request, otherwise != acquire_try, ret, retref);

    return r != -EINPROGRESS ? r : otherwise(pool, request, ret, retref);
}

ALWAYS int ask(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
               struct weir_refusal *retref, long_way *otherwise)
{
    if (!pool || !pool->plain)
        return otherwise(pool, request, ret, retref);
    if (is_boxed(pool->plain))
        return boxed_ask(pool, request, ret, retref, otherwise);
    return pool->plain->member ? ask_shared(pool, request, ret, retref, otherwise)
                               : ask_private(pool, request, ret, retref, otherwise);
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    return ask(pool, request, ret, retref, acquire_try);
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    return ask(pool, request, ret, retref, acquire_pending);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    return ask(pool, request, ret, retref, acquire_blocking);
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

/* What others may die with goes back to the word, and then from the record; otherwise the other way
 * round. False: nothing has happened. */
ALWAYS bool end(bool shared, struct actor *actor, const weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    struct record *record = set_record(set, acquisition->record);
    uint64_t held = record_load(&record->word), before;
    bool gives_back = !set->limits.items->algorithm;

    if (shared && !is_held(set, held))
        return false;
    if (shared && gives_back &&
        word_return(set, actor_part(actor, set->number)->seat, acquisition->record, record, held,
                    acquisition->values[0], &before) != 1)
        return false;
    STEP();
    become(record, record_next_word(held, RECORD_FREE));
    if (!shared && gives_back)
        give_back(actor, set, acquisition->values);
    return true;
}

ALWAYS int release(bool shared, weir_acquisition *acquisition)
{
    struct actor *actor = actor_mine;
    weir_set *set = acquisition->set;
    bool missing;

    if (acquisition->actor != actor || actor->cache_n >= CACHE_MAX || !is_open(set->w) ||
        !is_simple(acquisition, set->limits.items))
        return -EINPROGRESS;
    missing = acquisition_lacks_update(acquisition, 0);
    if (!end(shared, actor, acquisition))
        return -EINPROGRESS;
    return released(actor, set, acquisition, missing);
}

APART int release_private(weir_acquisition *acquisition)
{
    int r = release(false, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

APART int release_shared(weir_acquisition *acquisition)
{
    int r = release(true, acquisition);

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
    if (is_boxed(acquisition->set))
        return boxed_release(acquisition);
    return acquisition->set->member ? release_shared(acquisition) : release_private(acquisition);
}

/* SPDX-License-Identifier: MIT */
/* The fast path of sets with inline state, and the public calls that begin with it. */
#include "api/fast_path.h"
#include "api/acquisition_cache.h"
#include "base/backoff.h"
#include "limit/counters.h"

#include "api/acquire.h"
#include "api/acquire_op.h"
#include "api/fast_path_block.h"
#include "api/fast_path_common.h"
#include "api/pool.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "peer/peer_cleanup.h"
#include "set/inline_state_step.h"
#include "set/lease.h"
#include "set/set_ops.h"
#include "set/try_now.h"
#include <errno.h>

bool fast_path_supports(const weir_set *set)
{
    if (!set->ops->has_fast_path || set->limits.n > ACQUISITION_LIMITS)
        return false;
    return set->inline_format != INLINE_NONE || try_now_supports(set);
}

/* Returns whether the state is in a version block: several limits, or one that does not fit. */
WEIR_ALWAYS_INLINE bool fast_path_needs_block(const weir_set *set)
{
    return set->inline_format == INLINE_NONE;
}

/* Resolves the amount of the only limit. False: it is 0, or the slow path has to look at it. */
WEIR_ALWAYS_INLINE bool fast_inline_resolve(const weir_set *set, const struct weir_request *request,
                                            enum purpose purpose, uint64_t *ret)
{
    request = request_validate(request);
    return request && request_resolve_one(set, request, purpose, ret) && *ret;
}

/* Refuses a request. The wait queue is empty, so the state alone decides. */
WEIR_NOINLINE int fast_inline_refuse(const struct thread_ctx *ctx, const weir_set *set,
                                     uint64_t now_ns, uint64_t ready, struct weir_refusal *retref)
{
    const struct limit *limit = set->limits.items;
    struct counters *counters = thread_ctx_counters(ctx, set->number);
    const struct decision decision = {.now_ns = now_ns,
                                      .forecast_ns = limit->type == WEIR_LIMIT_RESOURCE
                                                         ? now_ns
                                                         : ready, /* resources have no forecast */
                                      .limiting = limit};

    WEIR_INVARIANT(set->limits.n == 1);
    /* A dead peer may hold what is missing. */
    if (ready == WEIR_NEVER || (set_is_shared(set) && peer_reap_is_due(set, now_ns)))
        return -EINPROGRESS;
    counter_add(&counters->refused_busy, 1);
    counter_add(&counters->limits[0].refused, 1);
    if (retref)
        acquire_op_fill_refusal(retref, set, &decision);
    return -EAGAIN;
}

WEIR_ALWAYS_INLINE struct counters *fast_inline_count_grant(const struct thread_ctx *ctx,
                                                            const weir_set *set, uint64_t amount)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    counter_add(&counters->granted, 1);
    counter_add(&counters->limits[0].granted, amount);
    return counters;
}

WEIR_NOINLINE int fast_inline_take_leased(struct thread_ctx *ctx, weir_set *set, uint64_t amount,
                                          struct weir_refusal *retref)
{
    struct decision decision = {0};
    int r = lease_take(ctx, set, amount, &decision);

    if (r < 0)
        acquire_op_fill_refusal(retref, set, &decision);
    return r;
}

WEIR_ALWAYS_INLINE int fast_inline_try_take(bool shared, weir_set *set,
                                            const struct weir_request *request,
                                            struct weir_refusal *retref)
{
    struct thread_ctx *ctx = thread_ctx_self;
    struct inline_grant grant = {0};
    struct weir_instant at;
    uint64_t word, ready;
    int r;

    if (!ctx || ctx->w != set->w || !thread_ctx_is_prepared(ctx, set->number))
        return -EINPROGRESS;
    if (!fast_path_is_open(set->w) ||
        !fast_inline_resolve(set, request, PURPOSE_TAKE, &grant.amount))
        return -EINPROGRESS;
    if (set->limits.has_lease)
        return fast_inline_take_leased(ctx, set, grant.amount, retref);
    at = inline_clock(set);
    r = inline_try_take(shared, set, &at, &grant, &word, &ready);
    if (r == -EAGAIN)
        return fast_inline_refuse(ctx, set, at.now_ns, ready, retref);
    if (r == 0)
        counter_add(&fast_inline_count_grant(ctx, set, grant.amount)->taken, 1);
    return r;
}

WEIR_NOINLINE int fast_inline_take_private(weir_pool *pool, const struct weir_request *request,
                                           struct weir_refusal *retref)
{
    int r = fast_inline_try_take(false, pool->fast_set, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

WEIR_NOINLINE int fast_inline_take_shared(weir_pool *pool, const struct weir_request *request,
                                          struct weir_refusal *retref)
{
    int r = fast_inline_try_take(true, pool->fast_set, request, retref);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    if (!pool || !pool->fast_set)
        return acquire_take(pool, request, retref);
    if (fast_path_needs_block(pool->fast_set))
        return fast_block_take(pool, request, retref);
    return pool->fast_set->participant ? fast_inline_take_shared(pool, request, retref)
                                       : fast_inline_take_private(pool, request, retref);
}

void fast_path_enable(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(acquisition->set->w == ctx->w && acquisition->fd < 0);
    acquisition_mark_observed(acquisition);
    if (acquisition->record && fast_path_supports(acquisition->set))
        acquisition->fast_ctx = ctx;
}

/* Tries to acquire now. Refuses only with MODE_TRY: otherwise the slow path has to wait. */
WEIR_ALWAYS_INLINE int fast_inline_try_acquire(bool shared, weir_set *set,
                                               const struct weir_request *request,
                                               enum wait_mode mode, weir_acquisition **ret,
                                               struct weir_refusal *retref)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_acquisition *acquisition = fast_path_cached(ctx, set);
    struct inline_grant grant = {0};
    struct weir_instant at;
    uint64_t word, ready = 0;
    struct acq_record *record = NULL;
    int r;

    if (!acquisition || !ret || !fast_inline_resolve(set, request, PURPOSE_ACQUIRE, &grant.amount))
        return -EINPROGRESS;
    WEIR_INVARIANT(grant.amount <= set->limits.items->capacity);
    at = inline_clock(set);
    if (shared) { /* before the commit: peers complete only the word */
        record = set_record(set, acquisition->record);
        grant.record = acquisition->record;
        grant.dcas_slot = thread_ctx_for_set(ctx, set->number)->dcas_slot;
        grant.held_word = fast_path_prepare_record(ctx, set, record, grant.amount, at.now_ns);
    }
    r = inline_try_take(shared, set, &at, &grant, &word, &ready);
    if (r == -EAGAIN && mode == MODE_TRY)
        return fast_inline_refuse(ctx, set, at.now_ns, ready, retref);
    if (r < 0)
        return -EINPROGRESS;
    SCHED_POINT();
    if (!shared) {
        record = set_record(set, acquisition->record);
        grant.held_word = fast_path_prepare_record(ctx, set, record, grant.amount, at.now_ns);
    }
    fast_path_publish_word(record, grant.held_word);
    acquisition->values[0] = acquisition->values[1] = grant.amount;
    fast_path_cache_pop(ctx, acquisition, request && request->flags & WEIR_STRICT);
    fast_inline_count_grant(ctx, set, grant.amount);
    *ret = acquisition;
    return 0;
}

WEIR_NOINLINE int fast_inline_acquire_private(weir_pool *pool, const struct weir_request *request,
                                              weir_acquisition **ret, struct weir_refusal *retref,
                                              slow_path_fn *slow_path, enum wait_mode mode)
{
    int r = fast_inline_try_acquire(false, pool->fast_set, request, mode, ret, retref);

    return r != -EINPROGRESS ? r : slow_path(pool, request, ret, retref);
}

WEIR_NOINLINE int fast_inline_acquire_shared(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, struct weir_refusal *retref,
                                             slow_path_fn *slow_path, enum wait_mode mode)
{
    int r = fast_inline_try_acquire(true, pool->fast_set, request, mode, ret, retref);

    return r != -EINPROGRESS ? r : slow_path(pool, request, ret, retref);
}

WEIR_ALWAYS_INLINE int fast_path_acquire(weir_pool *pool, const struct weir_request *request,
                                         weir_acquisition **ret, struct weir_refusal *retref,
                                         slow_path_fn *slow_path, enum wait_mode mode)
{
    if (!pool || !pool->fast_set)
        return slow_path(pool, request, ret, retref);
    WEIR_INVARIANT(pool->fast_set == pool->only_set);
    if (fast_path_needs_block(pool->fast_set))
        return fast_block_acquire(pool, request, ret, retref, slow_path, mode);
    return pool->fast_set->participant
               ? fast_inline_acquire_shared(pool, request, ret, retref, slow_path, mode)
               : fast_inline_acquire_private(pool, request, ret, retref, slow_path, mode);
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    return fast_path_acquire(pool, request, ret, retref, acquire_try, MODE_TRY);
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    return fast_path_acquire(pool, request, ret, retref, acquire_submit, MODE_PROBE);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    return fast_path_acquire(pool, request, ret, retref, acquire_and_wait, MODE_PROBE);
}

/* Returns the units of a freed record to the state, which was inline a moment ago. */
WEIR_ALWAYS_INLINE void fast_inline_return_units(struct thread_ctx *ctx, weir_set *set,
                                                 const uint64_t *amount)
{
    const struct release_args args = {.amounts = amount, .used = amount};
    unsigned turn = 0;

    for (;; spin_backoff(&turn)) {
        uint64_t word = version_peek_word(set->region, set->head_unit);

        SCHED_POINT();
        if (word & INFLATED_BIT) {
            set_return_units(ctx, set, &args);
            return;
        }
        WEIR_INVARIANT(*amount <= word);
        if (version_cas_word(set->region, set->head_unit, word, word - *amount))
            return;
    }
}

bool fast_path_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    if (!acquisition->record || !fast_path_supports(acquisition->set) ||
        ctx->cache_n >= ACQUISITION_CACHE_MAX)
        return false;
    WEIR_INVARIANT(set_is_shared(acquisition->set) ||
                   acquisition_record_is(acquisition, RECORD_FREE));
    acquisition_mark_observed(acquisition); /* as a later grant leaves it */
    fast_path_cache_push(ctx, acquisition);
    return true;
}

/* Returns whether a release takes one CAS of the state word, or none. Otherwise the algorithm has
 * to be called. */
WEIR_ALWAYS_INLINE bool fast_inline_can_release(const weir_acquisition *acquisition,
                                                const struct limit *limit)
{
    return !limit->algorithm ||
           (limit->type != WEIR_LIMIT_RESOURCE && acquisition->values[1] == acquisition->values[0]);
}

/* Frees the record and returns its units. In a shared set the state word changes first, so that a
 * death in between is detected; in a private set the record does. False: nothing has changed. */
WEIR_ALWAYS_INLINE bool fast_inline_free_record(bool shared, struct thread_ctx *ctx,
                                                const weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    struct acq_record *record = set_record(set, acquisition->record);
    uint64_t held = record_load(&record->word), before;
    bool gives_back = !set->limits.items->algorithm;

    WEIR_INVARIANT(acquisition->record);
    WEIR_INVARIANT(shared || record_state(held) == RECORD_HELD);
    if (shared && !fast_path_is_held(set, held))
        return false;
    if (shared && gives_back) {
        int r = inline_try_give_back(set, thread_ctx_for_set(ctx, set->number)->dcas_slot,
                                     acquisition->record, record, held, acquisition->values[0],
                                     &before);

        if (r != 1)
            return false;
    }
    SCHED_POINT();
    fast_path_publish_word(record, record_next_word(held, RECORD_FREE));
    if (!shared && gives_back)
        fast_inline_return_units(ctx, set, acquisition->values);
    return true;
}

WEIR_ALWAYS_INLINE int fast_inline_try_release(bool shared, weir_acquisition *acquisition)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_set *set = acquisition->set;
    bool missing;

    if (acquisition->fast_ctx != ctx || ctx->cache_n >= ACQUISITION_CACHE_MAX ||
        !fast_path_is_open(set->w) || !fast_inline_can_release(acquisition, set->limits.items))
        return -EINPROGRESS;
    WEIR_INVARIANT(ctx->w == set->w && acquisition->fd < 0);
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    missing = acquisition_lacks_update(acquisition, 0);
    if (!fast_inline_free_record(shared, ctx, acquisition))
        return -EINPROGRESS;
    return fast_path_finish_release(ctx, set, acquisition, missing);
}

WEIR_NOINLINE int fast_inline_release_private(weir_acquisition *acquisition)
{
    int r = fast_inline_try_release(false, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

WEIR_NOINLINE int fast_inline_release_shared(weir_acquisition *acquisition)
{
    int r = fast_inline_try_release(true, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

int weir_release(weir_acquisition **at)
{
    weir_acquisition *acquisition = at ? *at : NULL;

    if (!acquisition)
        return 0;
    *at = NULL;
    if (!acquisition->fast_ctx)
        return acquisition_release(acquisition);
    if (fast_path_needs_block(acquisition->set))
        return fast_block_release(acquisition);
    return set_is_shared(acquisition->set) ? fast_inline_release_shared(acquisition)
                                           : fast_inline_release_private(acquisition);
}

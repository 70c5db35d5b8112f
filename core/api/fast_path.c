/* SPDX-License-Identifier: MIT */
/*
 * Fast path: take, acquire and release by one compare-and-swap while the wait queue is empty.
 *
 * It serves sets with inline state or a small version block, requests with at most one key, and
 * threads that have used the set before. All preconditions are checked before anything changes. If
 * one fails, a step returns false: nothing has happened, and the slow path (acquire.h) decides or
 * reports the error. After true the call is complete, and `*ret` is its result.
 *
 * In a shared set the record lies in the segment, and the recovery of a dead thread relies on it.
 * Owner and active set are still valid, because this thread context filled them in its current
 * generation. Other processes may overwrite all of it at any time, so values are checked where a
 * decision depends on them.
 */
#include "api/acquire.h"
#include "api/pool.h"
#include "api/set_object.h"
#include "limit/counters.h"
#include "set/lease.h"
#include "set/probes.h"
#include "set/set_ops.h"
#include "set/try_now.h"

/* Returns whether the instance is usable and tells no events: the slow path does. */
WEIR_ALWAYS_INLINE bool fast_path_is_quiet(weir *w)
{
    return !instance_is_forked(w) && instance_is_plain(w) && !probes_are_on();
}

/* Returns besides whether there is no loss of the TSC to report first. */
WEIR_ALWAYS_INLINE bool fast_path_is_open(weir *w)
{
    return fast_path_is_quiet(w) && !clock_must_report_tsc(&w->clock);
}

/* ---- the cache ---- */

void acquisition_cache_enable(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(acquisition->set->w == ctx->w && acquisition->fd < 0);
    acquisition_mark_observed(acquisition);
    if (acquisition->record && !acquisition->within && !acquisition->tag && acquisition->set->fast)
        acquisition->fast_ctx = ctx;
}

WEIR_ALWAYS_INLINE void acquisition_cache_push(struct thread_ctx *ctx,
                                               weir_acquisition *acquisition)
{
    WEIR_INVARIANT(ctx->cache_n < ACQUISITION_CACHE_MAX);
    WEIR_INVARIANT(acquisition->record && acquisition->set->w == ctx->w);
    acquisition->next = ctx->cache;
    ctx->cache = acquisition;
    ctx->cache_n++;
}

bool acquisition_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    if (!acquisition->record || !acquisition->set->fast || ctx->cache_n >= ACQUISITION_CACHE_MAX)
        return false;
    WEIR_INVARIANT(set_is_shared(acquisition->set) ||
                   acquisition_record_is(acquisition, RECORD_FREE));
    acquisition_mark_observed(acquisition); /* as a later grant leaves it */
    acquisition_drop_tag(acquisition);
    acquisition->within = 0;
    acquisition_cache_push(ctx, acquisition);
    return true;
}

/* Takes the first acquisition, which is granted now, out of the cache. */
WEIR_ALWAYS_INLINE void acquisition_cache_pop(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(acquisition == ctx->cache && ctx->cache_n > 0);
    WEIR_INVARIANT(acquisition->record && acquisition->fd < 0);
    ctx->cache = acquisition->next;
    ctx->cache_n--;
    acquisition->fast_ctx = ctx;
    /* Relaxed: no other thread knows of the acquisition yet. */
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_relaxed);
    acquisition->updated_limits = 0;
}

/* ---- steps ---- */

/* Returns the counters of the thread in the set, or NULL if it has not used the set before. */
WEIR_ALWAYS_INLINE struct counters *fast_path_counters(const struct thread_ctx *ctx,
                                                       const weir_set *set)
{
    if (!ctx || ctx->w != set->w || set->number >= ctx->set_ctxs_n)
        return NULL;
    return ctx->set_ctxs[set->number].counters;
}

/* Refuses a request that an inline state does not admit. */
WEIR_ALWAYS_INLINE bool fast_path_refuse(bool shared, struct thread_ctx *ctx, weir_set *set,
                                         struct try_grant *grant, struct counters *counters,
                                         struct weir_refusal *retref, int *ret)
{
    struct decision decision;

    if (grant->ready == WEIR_NEVER)
        return false;
    *ret = try_now_refuse(shared, ctx, set, grant, MODE_TRY, counters, retref ? &decision : NULL);
    if (retref && *ret != ACQUIRE_RETRY)
        acquire_op_fill_refusal(retref, set, *ret, &decision);
    return *ret != ACQUIRE_RETRY;
}

/* Resolves a valid request to amounts, not all 0. False: the slow path has to look at it. */
WEIR_ALWAYS_INLINE bool fast_path_resolve(enum state_repr repr, const weir_set *set,
                                          const struct weir_request *request, enum purpose purpose,
                                          uint64_t *amounts)
{
    if (repr_is_inline(repr))
        return request_resolve_one(set, request, purpose, amounts);
    return request_resolve_simple(set, request, purpose, amounts) &&
           !request_is_empty(set, amounts);
}

/* ---- take ---- */

WEIR_ALWAYS_INLINE bool fast_path_take(enum state_repr repr, bool shared, weir_set *set,
                                       const struct weir_request *request,
                                       struct weir_refusal *retref, int *ret)
{
    struct thread_ctx *ctx = thread_ctx_self;
    struct counters *counters = fast_path_counters(ctx, set);
    uint64_t amounts[ACQUISITION_LIMITS];
    struct try_grant grant = {.amounts = amounts};
    enum try_result r;

    if (!counters)
        return false;
    request = request_validate_plain(request);
    if (!request || !fast_path_is_open(set->w) ||
        !fast_path_resolve(repr, set, request, PURPOSE_TAKE, amounts))
        return false;
    r = try_now(repr, shared, !shared || repr_is_inline(repr), ctx, set, &grant); /* commits here */
    if (repr_is_inline(repr) && r == TRY_REFUSED)
        return fast_path_refuse(shared, ctx, set, &grant, counters, retref, ret);
    if (r != TRY_DONE)
        return false;
    counters_add_grant(counters, amounts, repr_is_inline(repr) ? 1 : set->limits.n, true);
    *ret = 0;
    return true;
}

/* Takes from what the thread has leased. No clock is read, so no loss of the TSC is reported. */
static int fast_path_take_lease(weir_pool *pool, const struct weir_request *request,
                                struct weir_refusal *retref, weir_set *set)
{
    const bool is_quiet = fast_path_is_quiet(set->w);
    struct counters *counters = is_quiet ? fast_path_counters(thread_ctx_self, set) : NULL;
    const struct weir_request *valid = request_validate_plain(request);
    uint64_t amount = 0; /* for gcc, which does not see that it is stored */

    if (counters && valid && fast_path_resolve(REPR_WORD, set, valid, PURPOSE_TAKE, &amount) &&
        lease_take_rest(counters, set, amount))
        return 0;
    return acquire_take(pool, request, retref);
}

/* ---- acquire ---- */

/* Returns the cached acquisition that may be granted next, or NULL. */
WEIR_ALWAYS_INLINE weir_acquisition *fast_path_cached(const struct thread_ctx *ctx,
                                                      const weir_set *set)
{
    weir_acquisition *acquisition = ctx ? ctx->cache : NULL;

    if (!acquisition || acquisition->set != set || !fast_path_is_open(set->w))
        return NULL;
    return acquisition;
}

/* Resolves the request to several limits into a cached acquisition and its record. */
WEIR_NOINLINE bool fast_path_resolve_anew(weir_acquisition *acquisition,
                                          const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    struct acq_record *r = set_record(set, acquisition->record);
    uint64_t *values = acquisition->values;

    WEIR_INVARIANT(acquisition->record);
    acquisition->named_limits = 0;
    if (!fast_path_resolve(REPR_BLOCK, set, request, PURPOSE_ACQUIRE, values))
        return false;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        values[set->limits.n + i] = values[i];
        record_store(&r->amounts[i], values[i]);
    }
    WEIR_INVARIANT(set->limits.n <= ACQUISITION_LIMITS); /* bits of named_limits */
    if (request->amounts_n == 1)
        acquisition->named_limits =
            (uint8_t)request_limits_named(&set->limits, request->amounts->key);
    return true;
}

/* Resolves a request that names the key of the previous use. The other amounts are still valid. */
WEIR_ALWAYS_INLINE bool fast_path_resolve_again(weir_acquisition *acquisition,
                                                const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    const struct weir_amount *asked = request->amounts;
    struct acq_record *r = set_record(set, acquisition->record);
    uint64_t amount;

    if (request->amounts_n != 1 || !acquisition->named_limits || !asked || !asked->key)
        return false;
    if (!request_key_equal(set->limits.items[__builtin_ctz(acquisition->named_limits)].key,
                           asked->key))
        return false;
    amount = asked->amount;
    for (uint32_t named_limits = acquisition->named_limits; named_limits;
         named_limits &= named_limits - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(named_limits);

        WEIR_INVARIANT(i < set->limits.n);
        if (!amount || amount > set->limits.items[i].capacity || amount == REQUEST_AMOUNT_NONE)
            return false;
        acquisition->values[i] = acquisition->values[set->limits.n + i] = amount;
        record_store(&r->amounts[i], amount);
    }
    return true;
}

/* Resolves a valid request into a cached acquisition. */
WEIR_ALWAYS_INLINE bool fast_path_resolve_acquire(enum state_repr repr, const weir_set *set,
                                                  weir_acquisition *acquisition,
                                                  const struct weir_request *request)
{
    uint64_t *values = acquisition->values;

    if (!repr_is_inline(repr))
        return fast_path_resolve_again(acquisition, request) ||
               fast_path_resolve_anew(acquisition, request);
    if (!fast_path_resolve(repr, set, request, PURPOSE_ACQUIRE, values))
        return false;
    values[1] = values[0];
    return true;
}

/* Acquires. Refuses with MODE_TRY only: otherwise the slow path has to wait. `mode` is looked at
 * where it decides. */
WEIR_ALWAYS_INLINE bool fast_path_acquire(enum state_repr repr, bool shared, weir_set *set,
                                          const struct weir_request *request,
                                          const enum wait_mode *mode, weir_acquisition **retacq,
                                          struct weir_refusal *retref, int *ret)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_acquisition *acquisition = fast_path_cached(ctx, set);
    struct try_grant grant = {.is_owner = true, .is_cached = true};
    enum try_result r;

    if (!acquisition || !retacq)
        return false;
    request = request_validate_plain(request);
    if (!request || !fast_path_resolve_acquire(repr, set, acquisition, request))
        return false;
    if (!repr_is_inline(repr) && *mode != MODE_TRY && try_now_has_queue(set))
        return false;
    acquisition->strict = request->flags & WEIR_STRICT;
    grant.amounts = acquisition->values;
    grant.record = acquisition->record;
    r = try_now(repr, shared, !shared || repr_is_inline(repr), ctx, set, &grant); /* commits here */
    if (repr_is_inline(repr) && r == TRY_REFUSED && *mode == MODE_TRY)
        return fast_path_refuse(shared, ctx, set, &grant, thread_ctx_counters(ctx, set->number),
                                retref, ret);
    if (r != TRY_DONE)
        return false;
    acquisition_cache_pop(ctx, acquisition);
    counters_add_grant(thread_ctx_counters(ctx, set->number), acquisition->values,
                       repr_is_inline(repr) ? 1 : set->limits.n, false);
    *retacq = acquisition;
    *ret = 0;
    return true;
}

/* ---- release ---- */

/* Returns whether an update is missing. Limits that the request did not name have the default
 * amount, which needs no update. */
WEIR_ALWAYS_INLINE bool fast_path_lacks_update(enum state_repr repr, weir_acquisition *acquisition)
{
    bool is_missing = false;

    if (repr == REPR_COUNT)
        return false;
    if (repr == REPR_WORD)
        return acquisition_lacks_update(acquisition, 0);
    if (acquisition->named_limits && !(acquisition->named_limits & ~acquisition->updated_limits))
        return false;
    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        is_missing |= acquisition_lacks_update(acquisition, i);
    return is_missing;
}

/* Frees the record and returns its units, without an algorithm. False: nothing has changed. */
WEIR_ALWAYS_INLINE bool fast_path_give_back(enum state_repr repr, bool shared,
                                            struct thread_ctx *ctx,
                                            const weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    const struct release_args args = {.amounts = acquisition->values, .used = acquisition->values};
    struct release_op rel = {.args = &args, .record = acquisition->record, .is_owner = true};
    struct acq_record *r = try_now_record(shared, set, acquisition->record);
    enum try_result result;

    rel.record_word = record_load(&r->word);
    WEIR_INVARIANT(shared || record_state(rel.record_word) == RECORD_HELD);
    /* A shared record is HELD as far as the segment can be trusted. */
    if (shared && (record_state(rel.record_word) != RECORD_HELD || set_is_broken(set)))
        return false;
    result = give_back_now(repr, shared, !shared || repr_is_inline(repr), ctx, set, r, &rel);
    if (!shared && result == TRY_SLOW) {
        /* Apart, and not a copy, so that `args` need not be in memory. */
        const struct release_args rest = {.amounts = acquisition->values,
                                          .used = acquisition->values};

        set_return_units(ctx, set, &rest);
    }
    return !shared || result == TRY_DONE;
}

WEIR_ALWAYS_INLINE bool fast_path_release(enum state_repr repr, bool shared,
                                          weir_acquisition *acquisition)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_set *set = acquisition->set;

    if (acquisition->fast_ctx != ctx || ctx->cache_n >= ACQUISITION_CACHE_MAX ||
        !fast_path_is_quiet(set->w)) /* no clock is read, so no loss of the TSC is reported */
        return false;
    if (acquisition->amounts_differ || (repr != REPR_COUNT && set->limits.has_opaque_resources))
        return false;
    WEIR_INVARIANT(ctx->w == set->w && acquisition->fd < 0);
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    if (fast_path_lacks_update(repr, acquisition)) /* the slow path warns of it */
        return false;
    if (!fast_path_give_back(repr, shared, ctx, acquisition))
        return false;
    counter_add(&thread_ctx_counters(ctx, set->number)->released, 1);
    acquisition_cache_push(ctx, acquisition);
    return true;
}

/* ---- instances ---- */

/* The slow path of a call, and what becomes of its request on the fast one. */
struct slow_path {
    slow_path_fn *call;
    enum wait_mode mode;
};

/* The operations of a set, by the representation of its state and whether there are leases. */
struct fast_path {
    int (*take)(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref,
                weir_set *set);
    int (*acquire)(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref, weir_set *set, const struct slow_path *slow);
    int (*release)(weir_acquisition *acquisition);
};

/* Defines the operations for one representation of the state. */
#define FAST_PATH_INSTANCE(name, repr, shared)                                                     \
    WEIR_NOINLINE int fast_path_take_##name(weir_pool *pool, const struct weir_request *request,   \
                                            struct weir_refusal *retref, weir_set *set)            \
    {                                                                                              \
        int r;                                                                                     \
                                                                                                   \
        return fast_path_take(repr, shared, set, request, retref, &r)                              \
                   ? r                                                                             \
                   : acquire_take(pool, request, retref);                                          \
    }                                                                                              \
    WEIR_NOINLINE int fast_path_acquire_##name(                                                    \
        weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,               \
        struct weir_refusal *retref, weir_set *set, const struct slow_path *slow)                  \
    {                                                                                              \
        int r;                                                                                     \
                                                                                                   \
        return fast_path_acquire(repr, shared, set, request, &slow->mode, ret, retref, &r)         \
                   ? r                                                                             \
                   : slow->call(pool, request, ret, retref);                                       \
    }                                                                                              \
    WEIR_NOINLINE int fast_path_release_##name(weir_acquisition *acquisition)                      \
    {                                                                                              \
        return fast_path_release(repr, shared, acquisition) ? 0                                    \
                                                            : acquisition_release(acquisition);    \
    }                                                                                              \
    static const struct fast_path fast_path_##name[] = {                                           \
        {fast_path_take_##name, fast_path_acquire_##name, fast_path_release_##name},               \
        {fast_path_take_lease, fast_path_acquire_##name, fast_path_release_##name}};

FAST_PATH_INSTANCE(word_private, REPR_WORD, false)
FAST_PATH_INSTANCE(word_shared, REPR_WORD, true)
FAST_PATH_INSTANCE(count_private, REPR_COUNT, false)
FAST_PATH_INSTANCE(count_shared, REPR_COUNT, true)
FAST_PATH_INSTANCE(block_private, REPR_BLOCK, false)
FAST_PATH_INSTANCE(block_shared, REPR_BLOCK, true)

const struct fast_path *fast_path_for(const weir_set *set)
{
    static const struct fast_path *const paths[][2] = {
        [INLINE_NONE] = {fast_path_block_private, fast_path_block_shared},
        [INLINE_STATE] = {fast_path_word_private, fast_path_word_shared},
        [INLINE_COUNT] = {fast_path_count_private, fast_path_count_private},
        [INLINE_DCAS] = {fast_path_count_shared, fast_path_count_shared}};

    if (!set->ops->has_fast_path || set->limits.counts_holds || set->limits.has_max_hold ||
        set->limits.n > ACQUISITION_LIMITS)
        return NULL;
    if (set->limits.n == 1 && set->limits.items->capacity == REQUEST_AMOUNT_NONE)
        return NULL;
    if (set->inline_format == INLINE_NONE && !(set->head_unit && try_now_fits_stack(set)))
        return NULL;
    return &paths[set->inline_format][set->is_robust][set->limits.has_lease];
}

/* Finds the set that the fast path may serve. Acquire: a reload exchanges it. */
WEIR_ALWAYS_INLINE bool fast_path_find_set(weir_pool *pool, weir_set **ret)
{
    uintptr_t word = pool ? atomic_load_explicit(&pool->only_set, memory_order_acquire) : POOL_BITS;

    *ret = (weir_set *)word; /* without bits it is one */
    return !(word & POOL_BITS);
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    weir_set *set;

    if (!fast_path_find_set(pool, &set))
        return acquire_take(pool, request, retref);
    return set->fast->take(pool, request, retref, set);
}

WEIR_ALWAYS_INLINE int fast_path_acquire_any(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, struct weir_refusal *retref,
                                             const struct slow_path *slow)
{
    weir_set *set;

    if (!fast_path_find_set(pool, &set))
        return slow->call(pool, request, ret, retref);
    return set->fast->acquire(pool, request, ret, retref, set, slow);
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    static const struct slow_path slow = {acquire_try, MODE_TRY};

    return fast_path_acquire_any(pool, request, ret, retref, &slow);
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    static const struct slow_path slow = {acquire_submit, MODE_PROBE};

    return fast_path_acquire_any(pool, request, ret, retref, &slow);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    static const struct slow_path slow = {acquire_and_wait, MODE_PROBE};

    if (request && request_token(request))
        return acquire_and_wait(pool, request, ret, retref);
    return fast_path_acquire_any(pool, request, ret, retref, &slow);
}

int weir_release(weir_acquisition **at)
{
    weir_acquisition *acquisition = at ? *at : NULL;

    if (!acquisition)
        return 0;
    *at = NULL;
    return acquisition->fast_ctx ? acquisition->set->fast->release(acquisition)
                                 : acquisition_release(acquisition);
}

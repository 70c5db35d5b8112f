/* SPDX-License-Identifier: MIT */
/*
 * Fast path: take, acquire and release by one compare-and-swap while the wait queue is empty.
 *
 * It serves sets with inline state or a small version block, requests with at most one key, and
 * threads that have used the set before. All preconditions are checked before anything changes. If
 * one fails, nothing has happened, and the slow path (acquire.h) decides or reports the error.
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

/* Returns whether the instance is usable and tells no events: the slow path does. Relaxed: a late
 * reading only makes the call one that came before weir_close, or before a listener was known. */
WEIR_ALWAYS_INLINE bool fast_path_is_quiet(weir *w)
{
    return atomic_load_explicit(w->state, memory_order_relaxed) == INSTANCE_HERE &&
           !probes_are_on();
}

/* What an instance of the fast path is compiled for: a representation of the state, shared or not,
 * and whether the set goes by the system's clock, which then needs no look at the instance's. */
struct fast_kind {
    enum state_repr repr;
    bool shared, by_system;
};

/* Of a shared block another thread's commit is no reason for the slow path, which takes longer. */
WEIR_ALWAYS_INLINE bool fast_path_tries_once(struct fast_kind kind)
{
    return !kind.shared || repr_is_inline(kind.repr);
}

/* Returns besides whether there is no loss of the TSC to report first. */
WEIR_ALWAYS_INLINE bool fast_path_is_open(struct fast_kind kind, weir *w)
{
    return fast_path_is_quiet(w) && (kind.by_system || !clock_must_report_tsc(&w->clock));
}

/* ---- the cache ---- */

/* Notes what the fast path finds by an acquisition with a record filled by `ctx`. */
static void acquisition_cache_bind(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    const weir_set *set = acquisition->set;

    acquisition->fast_ctx = ctx;
    acquisition->counters = thread_ctx_counters(ctx, set->number);
    acquisition->known = set->is_robust ? NULL : set_record(set, acquisition->record);
}

void acquisition_cache_enable(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(acquisition->set->w == ctx->w && acquisition->fd < 0);
    acquisition_mark_observed(acquisition);
    if (acquisition->record && !acquisition->within && !acquisition->tag && acquisition->set->fast)
        acquisition_cache_bind(ctx, acquisition);
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
    acquisition_cache_bind(ctx, acquisition);
    acquisition_cache_push(ctx, acquisition);
    return true;
}

/* Takes the first acquisition, which is granted now, out of the cache. */
WEIR_ALWAYS_INLINE void acquisition_cache_pop(enum state_repr repr, struct thread_ctx *ctx,
                                              weir_acquisition *acquisition)
{
    WEIR_INVARIANT(acquisition == ctx->cache && ctx->cache_n > 0);
    WEIR_INVARIANT(acquisition->record && acquisition->fd < 0 && acquisition->fast_ctx == ctx);
    ctx->cache = acquisition->next;
    ctx->cache_n--;
    /* Relaxed: no other thread knows of the acquisition yet. */
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_relaxed);
    if (repr != REPR_COUNT) /* a resource is not updated */
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
WEIR_ALWAYS_INLINE int fast_path_refuse(bool shared, struct thread_ctx *ctx, weir_set *set,
                                        struct try_grant *grant, struct counters *counters,
                                        struct weir_refusal *retref)
{
    struct decision decision;
    int r;

    if (grant->ready == WEIR_NEVER)
        return ACQUIRE_RETRY;
    r = try_now_refuse(shared, ctx, set, grant, MODE_TRY, counters, retref ? &decision : NULL);
    if (retref && r != ACQUIRE_RETRY)
        acquire_op_fill_refusal(retref, set, r, &decision);
    return r;
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

/* Reads the clock of a set that goes by the system's: while the processor waits for that, it makes
 * the checks that follow, and those before while it waits for the previous commit. */
WEIR_ALWAYS_INLINE void fast_path_read_clock(struct fast_kind kind, struct try_grant *grant)
{
    grant->is_timed = kind.by_system && repr_is_inline(kind.repr);
    if (grant->is_timed)
        grant->now_ns = kind.repr == REPR_COUNT ? os_now_coarse_ns() : os_now_ns();
}

/* ---- take ---- */

/* Returns ACQUIRE_RETRY if the slow path is needed, as fast_path_acquire() does. */
WEIR_ALWAYS_INLINE int fast_path_take(struct fast_kind kind, weir_set *set,
                                      const struct weir_request *request,
                                      struct weir_refusal *retref)
{
    const bool is_inline = repr_is_inline(kind.repr);
    struct thread_ctx *ctx = thread_ctx_self;
    struct counters *counters = fast_path_counters(ctx, set);
    uint64_t amounts[ACQUISITION_LIMITS];
    struct try_grant grant = {.amounts = amounts};
    enum try_result r;

    if (!counters)
        return ACQUIRE_RETRY;
    request = request_validate_plain(request);
    if (!request || !fast_path_is_open(kind, set->w) ||
        !fast_path_resolve(kind.repr, set, request, PURPOSE_TAKE, amounts))
        return ACQUIRE_RETRY;
    fast_path_read_clock(kind, &grant);
    r = try_now(kind.repr, kind.shared, fast_path_tries_once(kind), ctx, set,
                &grant); /* commits here */
    if (is_inline && r == TRY_REFUSED)
        return fast_path_refuse(kind.shared, ctx, set, &grant, counters, retref);
    if (r != TRY_DONE)
        return ACQUIRE_RETRY;
    counters_add_grant(counters, amounts, is_inline ? 1 : set->limits.n, true);
    return 0;
}

/* Takes from what the thread has leased. No clock is read, so no loss of the TSC is reported. */
WEIR_ALWAYS_INLINE bool fast_path_take_rest(const weir_set *set, const struct weir_request *request)
{
    struct counters *counters = fast_path_counters(thread_ctx_self, set);
    uint64_t amount;

    if (!counters || !fast_path_is_quiet(set->w))
        return false;
    request = request_validate_plain(request);
    return request && fast_path_resolve(REPR_WORD, set, request, PURPOSE_TAKE, &amount) &&
           lease_take_rest(counters, set, amount);
}

static int fast_path_take_lease(weir_pool *pool, const struct weir_request *request,
                                struct weir_refusal *retref, weir_set *set)
{
    return fast_path_take_rest(set, request) ? 0 : acquire_take(pool, request, retref);
}

/* ---- acquire ---- */

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

/* The slow path of a call, and what becomes of its request on the fast one. */
struct slow_path {
    slow_path_fn *call;
    enum wait_mode mode;
};

/* A call as its slow path needs it. It lies in memory, so that the fast one keeps no registers. */
struct fast_call {
    weir_pool *pool;
    const struct weir_request *request;
    weir_acquisition **ret;
    struct weir_refusal *retref;
    const struct slow_path *slow;
};

/* Acquires. Refuses with MODE_TRY only: otherwise the slow path has to wait. */
WEIR_ALWAYS_INLINE int fast_path_acquire(struct fast_kind kind, weir_set *set,
                                         const struct fast_call *call)
{
    const bool is_inline = repr_is_inline(kind.repr);
    struct thread_ctx *ctx = thread_ctx_self;
    weir_acquisition *acquisition = ctx ? ctx->cache : NULL; /* the one to be granted next */
    struct try_grant grant = {.is_owner = true, .is_cached = true};
    const struct weir_request *request;
    uint64_t amount = 0; /* for gcc, which does not see that it is stored */
    enum try_result r;

    if (!acquisition || acquisition->set != set || !fast_path_is_open(kind, set->w) || !call->ret)
        return ACQUIRE_RETRY;
    fast_path_read_clock(kind, &grant);
    request = request_validate_plain(call->request);
    if (!request ||
        !(is_inline ? fast_path_resolve(kind.repr, set, request, PURPOSE_ACQUIRE, &amount)
                    : fast_path_resolve_again(acquisition, request) ||
                          fast_path_resolve_anew(acquisition, request)))
        return ACQUIRE_RETRY;
    if (!is_inline && call->slow->mode != MODE_TRY && try_now_has_queue(set))
        return ACQUIRE_RETRY;
    acquisition->strict = request->flags; /* which can be WEIR_STRICT only */
    grant.amounts = is_inline ? &amount : acquisition->values;
    if (is_inline)
        acquisition->values[0] = acquisition->values[1] = amount;
    grant.record = acquisition->record;
    grant.known = acquisition->known;
    r = try_now(kind.repr, kind.shared, fast_path_tries_once(kind), ctx, set,
                &grant); /* commits here */
    if (is_inline && r == TRY_REFUSED && call->slow->mode == MODE_TRY)
        return fast_path_refuse(kind.shared, ctx, set, &grant, acquisition->counters, call->retref);
    if (r != TRY_DONE)
        return ACQUIRE_RETRY;
    acquisition_cache_pop(kind.repr, ctx, acquisition);
    counters_add_grant(acquisition->counters, grant.amounts, is_inline ? 1 : set->limits.n, false);
    *call->ret = acquisition;
    return 0;
}

/* ---- release ---- */

/* Returns whether an update is missing. Limits that the request did not name have the default
 * amount, which needs no update. */
WEIR_ALWAYS_INLINE bool fast_path_lacks_update(enum state_repr repr, weir_acquisition *acquisition)
{
    bool is_missing = false;

    if (repr == REPR_WORD)
        return acquisition_lacks_update(acquisition, 0);
    if (acquisition->named_limits && !(acquisition->named_limits & ~acquisition->updated_limits))
        return false;
    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        is_missing |= acquisition_lacks_update(acquisition, i);
    return is_missing;
}

/* Counts a release, and keeps the acquisition for the next grant. */
WEIR_ALWAYS_INLINE int fast_path_end_release(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    counter_add(&acquisition->counters->released, 1);
    acquisition_cache_push(ctx, acquisition);
    return 0;
}

/* Ends a release that the slow path has to complete; of a private set its record is FREE. */
WEIR_NOINLINE int fast_path_release_slowly(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                           enum try_result r)
{
    const struct release_args args = {.amounts = acquisition->values, .used = acquisition->values};

    if (r == TRY_LOST)
        contention_lost_word(0);
    if (acquisition->set->is_robust)
        return acquisition_release(acquisition);
    set_return_units(ctx, acquisition->set, &args);
    return fast_path_end_release(ctx, acquisition);
}

/* Frees the record and returns its units, without an algorithm. */
WEIR_ALWAYS_INLINE int fast_path_release(struct fast_kind kind, weir_acquisition *acquisition)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_set *set = acquisition->set;
    const struct release_args args = {.amounts = acquisition->values, .used = acquisition->values};
    struct release_op rel = {.args = &args, .record = acquisition->record, .is_owner = true};
    struct acq_record *r;
    enum try_result result;

    if (acquisition->fast_ctx != ctx || ctx->cache_n >= ACQUISITION_CACHE_MAX ||
        !fast_path_is_quiet(set->w)) /* no clock is read, so no loss of the TSC is reported */
        return acquisition_release(acquisition);
    /* A counted resource is not updated. Of a missing update the slow path warns. */
    if (kind.repr != REPR_COUNT &&
        (acquisition->amounts_differ || set->limits.has_opaque_resources ||
         fast_path_lacks_update(kind.repr, acquisition)))
        return acquisition_release(acquisition);
    WEIR_INVARIANT(ctx->w == set->w && acquisition->fd < 0);
    WEIR_INVARIANT(kind.shared || acquisition->known == set_record(set, acquisition->record));
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    r = kind.shared ? set_record(set, acquisition->record) : acquisition->known;
    rel.record_word = record_load(&r->word);
    WEIR_INVARIANT(kind.shared || record_state(rel.record_word) == RECORD_HELD);
    /* A shared record is HELD as far as the segment can be trusted. */
    if (kind.shared && (record_state(rel.record_word) != RECORD_HELD || set_is_broken(set)))
        return acquisition_release(acquisition);
    result = give_back_now(kind.repr, kind.shared, fast_path_tries_once(kind), ctx, set, r, &rel);
    return result == TRY_DONE ? fast_path_end_release(ctx, acquisition)
                              : fast_path_release_slowly(ctx, acquisition, result);
}

/* ---- instances ---- */

/* The operations of a set, by its kind and whether there are leases. */
struct fast_path {
    int (*take)(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref,
                weir_set *set);
    int (*acquire)(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref, weir_set *set, const struct slow_path *slow);
    int (*release)(weir_acquisition *acquisition);
};

WEIR_NOINLINE int fast_path_acquire_slowly(const struct fast_call *call)
{
    return call->slow->call(call->pool, call->request, call->ret, call->retref);
}

/* Defines the operations of one kind. */
#define FAST_PATH_INSTANCE(name, ...)                                                              \
    WEIR_NOINLINE int fast_path_take_##name(weir_pool *pool, const struct weir_request *request,   \
                                            struct weir_refusal *retref, weir_set *set)            \
    {                                                                                              \
        int r = fast_path_take((struct fast_kind){__VA_ARGS__}, set, request, retref);             \
                                                                                                   \
        return r == ACQUIRE_RETRY ? acquire_take(pool, request, retref) : r;                       \
    }                                                                                              \
    WEIR_NOINLINE int fast_path_acquire_##name(                                                    \
        weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,               \
        struct weir_refusal *retref, weir_set *set, const struct slow_path *slow)                  \
    {                                                                                              \
        const struct fast_call call = {pool, request, ret, retref, slow};                          \
        int r = fast_path_acquire((struct fast_kind){__VA_ARGS__}, set, &call);                    \
                                                                                                   \
        return r == ACQUIRE_RETRY ? fast_path_acquire_slowly(&call) : r;                           \
    }                                                                                              \
    WEIR_NOINLINE int fast_path_release_##name(weir_acquisition *acquisition)                      \
    {                                                                                              \
        return fast_path_release((struct fast_kind){__VA_ARGS__}, acquisition);                    \
    }                                                                                              \
    static const struct fast_path fast_path_##name[] = {                                           \
        {fast_path_take_##name, fast_path_acquire_##name, fast_path_release_##name},               \
        {fast_path_take_lease, fast_path_acquire_##name, fast_path_release_##name}};

FAST_PATH_INSTANCE(word_private, REPR_WORD, false, true)
FAST_PATH_INSTANCE(word_other_clock, REPR_WORD, false, false)
FAST_PATH_INSTANCE(word_shared, REPR_WORD, true, false)
FAST_PATH_INSTANCE(count_private, REPR_COUNT, false, true)
FAST_PATH_INSTANCE(count_other_clock, REPR_COUNT, false, false)
FAST_PATH_INSTANCE(count_shared, REPR_COUNT, true, false)
FAST_PATH_INSTANCE(block_private, REPR_BLOCK, false, false)
FAST_PATH_INSTANCE(block_shared, REPR_BLOCK, true, false)

const struct fast_path *fast_path_for(const weir_set *set)
{
    static const struct fast_path *const paths[][3] = {
        [INLINE_NONE] = {fast_path_block_private, fast_path_block_private, fast_path_block_shared},
        [INLINE_STATE] = {fast_path_word_private, fast_path_word_other_clock,
                          fast_path_word_shared},
        [INLINE_COUNT] = {fast_path_count_private, fast_path_count_other_clock},
        [INLINE_DCAS] = {[2] = fast_path_count_shared}};
    const bool by_system = set->w->clock.reads_system && !set->limits.clock_needs;
    const struct fast_path *path;

    if (!set->ops->has_fast_path || set->limits.counts_holds || set->limits.has_max_hold ||
        set->limits.n > ACQUISITION_LIMITS)
        return NULL;
    if (set->limits.n == 1 && set->limits.items->capacity == REQUEST_AMOUNT_NONE)
        return NULL;
    if (set->inline_format == INLINE_NONE && !(set->head_unit && try_now_fits_stack(set)))
        return NULL;
    path = paths[set->inline_format][set->is_robust ? 2 : !by_system];
    WEIR_INVARIANT(path);
    return &path[set->limits.has_lease];
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

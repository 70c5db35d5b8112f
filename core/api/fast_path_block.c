/* SPDX-License-Identifier: MIT */
/* The fast path of sets with their state in a version block. */
#include "api/fast_path_block.h"
#include "base/compiler.h"
#include "limit/counters.h"

#include "api/fast_path_common.h"
#include "api/pool.h"
#include "api/request.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/try_now.h"
#include "set/try_now_inline.h"
#include <errno.h>

/* Counts a grant. Written out here: a call takes longer than the additions. */
WEIR_ALWAYS_INLINE void fast_block_count_grant(const struct thread_ctx *ctx, const weir_set *set,
                                               const uint64_t *amounts, bool taken)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    counter_add(&counters->granted, 1);
    if (taken)
        counter_add(&counters->taken, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        counter_add(&counters->limits[i].granted, amounts[i]);
}

/* ---- take ---- */

WEIR_ALWAYS_INLINE int fast_block_try_take(bool shared, weir_set *set,
                                           const struct weir_request *request)
{
    struct thread_ctx *ctx = thread_ctx_self;
    uint64_t amounts[ACQUISITION_LIMITS], now_ns;

    if (!ctx || ctx->w != set->w || !thread_ctx_is_prepared(ctx, set->number))
        return -EINPROGRESS;
    if (set->limits.has_lease || !fast_path_is_open(set->w))
        return -EINPROGRESS;
    request = request_validate(request);
    if (!request || !request_resolve_simple(set, request, PURPOSE_TAKE, amounts) ||
        request_is_empty(set, amounts))
        return -EINPROGRESS;
    if (try_now_take(shared, ctx, set, amounts, 0, false, &now_ns) < 0) /* commits here */
        return -EINPROGRESS;
    fast_block_count_grant(ctx, set, amounts, true);
    return 0;
}

WEIR_NOINLINE int fast_block_take_shared(weir_pool *pool, const struct weir_request *request,
                                         struct weir_refusal *retref)
{
    int r = fast_block_try_take(true, pool->fast_set, request);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

WEIR_NOINLINE int fast_block_take_private(weir_pool *pool, const struct weir_request *request,
                                          struct weir_refusal *retref)
{
    int r = fast_block_try_take(false, pool->fast_set, request);

    return r != -EINPROGRESS ? r : acquire_take(pool, request, retref);
}

int fast_block_take(weir_pool *pool, const struct weir_request *request,
                    struct weir_refusal *retref)
{
    return pool->fast_set->is_robust ? fast_block_take_shared(pool, request, retref)
                                     : fast_block_take_private(pool, request, retref);
}

/* ---- acquire ---- */

/* Returns all limits with the only key of the request, or 0 if it names none or several. */
static uint8_t fast_block_named_limits(const weir_set *set, const struct weir_request *request)
{
    uint8_t named_limits = 0;

    WEIR_INVARIANT(set->limits.n <= ACQUISITION_LIMITS);
    for (uint32_t i = 0; i < set->limits.n && request->amounts_n == 1; i++)
        if (request_key_equal(set->limits.items[i].key, request->amounts->key))
            named_limits |= (uint8_t)(1u << i);
    return named_limits;
}

/* Resolves the request into a cached acquisition and its record. False: slow path. */
WEIR_NOINLINE bool fast_block_resolve(weir_acquisition *acquisition,
                                      const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    struct acq_record *r = record_at(set->region, acquisition->record);
    uint64_t *values = acquisition->values;

    WEIR_INVARIANT(acquisition->record);
    acquisition->named_limits = 0;
    if (!request_resolve_simple(set, request, PURPOSE_ACQUIRE, values) ||
        request_is_empty(set, values))
        return false;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        values[set->limits.n + i] = values[i];
        record_store(&r->amounts[i], values[i]);
    }
    acquisition->named_limits = fast_block_named_limits(set, request);
    return true;
}

/* Resolves a request that names the key of the previous use. The other amounts are still valid. */
WEIR_ALWAYS_INLINE bool fast_block_resolve_again(weir_acquisition *acquisition,
                                                 const struct weir_request *request)
{
    const weir_set *set = acquisition->set;
    struct acq_record *r = record_at(set->region, acquisition->record);
    uint64_t amount;

    if (request->amounts_n != 1 || !acquisition_names_key(acquisition, request->amounts->key))
        return false;
    amount = request->amounts->amount;
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

/* Grants. In a shared set the record becomes HELD with the version, otherwise after it. */
WEIR_ALWAYS_INLINE int fast_block_grant(bool shared, struct thread_ctx *ctx,
                                        weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    uint64_t now_ns;
    int r;

    if (shared) {
        fast_path_name_thread(ctx, set, set_record(set, acquisition->record));
        return try_now_take(true, ctx, set, acquisition->values, acquisition->record, true,
                            &now_ns);
    }
    r = try_now_take(false, ctx, set, acquisition->values, 0, false, &now_ns);
    SCHED_POINT();
    if (r == 0)
        fast_path_hold_record(ctx, set, acquisition->record, acquisition->values[0], now_ns);
    return r;
}

WEIR_ALWAYS_INLINE int fast_block_try_acquire(bool shared, weir_set *set,
                                              const struct weir_request *request,
                                              enum wait_mode mode, weir_acquisition **ret)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_acquisition *acquisition = fast_path_cached(ctx, set);

    if (!acquisition || !ret)
        return -EINPROGRESS;
    request = request_validate(request);
    if (!request)
        return -EINPROGRESS;
    if (!fast_block_resolve_again(acquisition, request) &&
        !fast_block_resolve(acquisition, request))
        return -EINPROGRESS;
    if (try_now_has_queue(set, mode))
        return -EINPROGRESS;
    if (fast_block_grant(shared, ctx, acquisition) < 0) /* commits here */
        return -EINPROGRESS;
    fast_path_cache_pop(ctx, acquisition, request->flags & WEIR_STRICT);
    fast_block_count_grant(ctx, set, acquisition->values, false);
    *ret = acquisition;
    return 0;
}

WEIR_NOINLINE int fast_block_acquire_shared(weir_pool *pool, const struct weir_request *request,
                                            weir_acquisition **ret, struct weir_refusal *retref,
                                            slow_path_fn *slow_path, enum wait_mode mode)
{
    int r = fast_block_try_acquire(true, pool->fast_set, request, mode, ret);

    return r != -EINPROGRESS ? r : slow_path(pool, request, ret, retref);
}

WEIR_NOINLINE int fast_block_acquire_private(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, struct weir_refusal *retref,
                                             slow_path_fn *slow_path, enum wait_mode mode)
{
    int r = fast_block_try_acquire(false, pool->fast_set, request, mode, ret);

    return r != -EINPROGRESS ? r : slow_path(pool, request, ret, retref);
}

int fast_block_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                       struct weir_refusal *retref, slow_path_fn *slow_path, enum wait_mode mode)
{
    return pool->fast_set->is_robust
               ? fast_block_acquire_shared(pool, request, ret, retref, slow_path, mode)
               : fast_block_acquire_private(pool, request, ret, retref, slow_path, mode);
}

/* ---- release ---- */

/* Returns whether each resource holds at least its amount. */
static inline bool fast_block_holds(const struct limits *limits, const uint64_t *states,
                                    const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limits->items[i].type == WEIR_LIMIT_RESOURCE &&
            states[limits->items[i].state_offset] < amounts[i])
            return false;
    return true;
}

/* Returns resources by subtraction, without an algorithm. In a shared set the record with word
 * `held` becomes FREE with the version. False: a waiter or another reason for the slow path. */
WEIR_ALWAYS_INLINE bool fast_block_try_return(bool shared, struct thread_ctx *ctx,
                                              const weir_acquisition *acquisition, uint64_t held)
{
    weir_set *set = acquisition->set;
    const struct acq_record *r = shared ? set_record(set, acquisition->record) : NULL;
    struct stack_version version;

    for (unsigned turn = 0;; stack_version_backoff(shared, version.head, &turn)) {
        if (!try_now_read(shared, ctx, set, &turn, &version) ||
            (r && record_load(&r->word) != held))
            return false;
        WEIR_INVARIANT(shared || fast_block_holds(&set->limits, try_now_states(&version),
                                                  acquisition->values));
        try_now_release_all(&set->limits, try_now_states(&version), acquisition->values);
        try_now_set_write(shared, &version, acquisition->record, true, held, RECORD_FREE);
        if (try_now_commit(shared, ctx, set, turn, &version))
            return true;
    }
}

static void fast_block_return_units(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts)
{
    const struct release_args args = {.amounts = amounts, .used = amounts};

    set_return_units(ctx, set, &args);
}

/* Frees the record and returns its units. False: nothing has changed. */
WEIR_ALWAYS_INLINE bool fast_block_free_record(bool shared, struct thread_ctx *ctx,
                                               weir_acquisition *acquisition)
{
    weir_set *set = acquisition->set;
    uint64_t held = shared ? record_load(&set_record(set, acquisition->record)->word) : 0;

    WEIR_INVARIANT(shared || acquisition_record_is(acquisition, RECORD_HELD));
    if (shared && !fast_path_is_held(set, held))
        return false;
    if (shared && set->limits.has_resources)
        return fast_block_try_return(true, ctx, acquisition, held);
    set_free_record(set, acquisition->record);
    if (set->limits.has_resources && !fast_block_try_return(false, ctx, acquisition, 0))
        fast_block_return_units(ctx, set, acquisition->values);
    return true;
}

/* Returns whether an update is missing. Limits that the request did not name have the default
 * amount, which needs no update. */
WEIR_ALWAYS_INLINE bool fast_block_lacks_update(weir_acquisition *acquisition)
{
    bool is_missing = false;

    if (acquisition->named_limits && !(acquisition->named_limits & ~acquisition->updated_limits))
        return false;
    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        is_missing |= acquisition_lacks_update(acquisition, i);
    return is_missing;
}

WEIR_ALWAYS_INLINE int fast_block_try_release(bool shared, weir_acquisition *acquisition)
{
    struct thread_ctx *ctx = thread_ctx_self;
    weir_set *set = acquisition->set;
    bool missing;

    if (acquisition->fast_ctx != ctx || ctx->cache_n >= ACQUISITION_CACHE_MAX ||
        !fast_path_is_open(set->w))
        return -EINPROGRESS;
    if (acquisition->amounts_differ || set->limits.has_opaque_resources)
        return -EINPROGRESS;
    WEIR_INVARIANT(ctx->w == set->w && acquisition->fd < 0);
    WEIR_INVARIANT(!atomic_load_explicit(&acquisition->queue, memory_order_relaxed));
    missing = fast_block_lacks_update(acquisition);
    if (!fast_block_free_record(shared, ctx, acquisition))
        return -EINPROGRESS;
    return fast_path_finish_release(ctx, set, acquisition, missing);
}

WEIR_NOINLINE int fast_block_release_shared(weir_acquisition *acquisition)
{
    int r = fast_block_try_release(true, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

WEIR_NOINLINE int fast_block_release_private(weir_acquisition *acquisition)
{
    int r = fast_block_try_release(false, acquisition);

    return r != -EINPROGRESS ? r : acquisition_release(acquisition);
}

int fast_block_release(weir_acquisition *acquisition)
{
    return acquisition->set->is_robust ? fast_block_release_shared(acquisition)
                                       : fast_block_release_private(acquisition);
}

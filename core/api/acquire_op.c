/* SPDX-License-Identifier: MIT */
/* Acquire operations: from a request to the set's decision, for every call that acquires. */
#include "api/acquire.h"
#include "api/request_events.h"
#include "api/set_object.h"
#include "base/compiler.h"
#include "limit/counters.h"

#include "api/pool.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "peer/peer.h"
#include "set/class_count.h"
#include "set/lease.h"
#include "set/shadow.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include "wait/hold_watch.h"
#include <errno.h>
#include <string.h>

static void acquire_op_store_refusal(struct weir_refusal *ret, const weir_set *set, const char *key,
                                     uint64_t retry_after_ns)
{
    if (!ret || ret->size < sizeof(*ret))
        return;
    ret->key = key ? key : "";
    ret->set = set_name(set);
    ret->retry_after_ns = retry_after_ns;
    ret->reason = NULL;
}

void acquire_op_fill_refusal(struct weir_refusal *ret, const weir_set *set, int result,
                             const struct decision *decision)
{
    uint64_t wait = WEIR_FOREVER;
    bool is_decision = result == -EAGAIN || result == -ENOBUFS || result == -ETIMEDOUT;

    if (!is_decision && result != -ERANGE && result != -EDEADLK)
        return; /* the set decided nothing */
    if (decision->forecast_ns < WEIR_BLOCKED)
        wait =
            decision->forecast_ns > decision->now_ns ? decision->forecast_ns - decision->now_ns : 0;
    acquire_op_store_refusal(ret, set, decision_key(decision), wait);
}

void acquire_op_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    const struct acq_record *r = record_at(op->set->region, record);

    WEIR_INVARIANT(record);
    for (uint32_t i = 0; i < op->set->limits.n; i++)
        op->amounts[i] = record_load(&r->amounts[i]);
    op->set->ops->forecast(op, record, walk);
}

int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret)
{
    weir_set *set = acquisition ? acquisition->set : NULL;
    int result = weir_acquisition_result(acquisition);
    struct acquire_op op = {.set = set,
                            .within = set ? acquisition->within : 0,
                            .wait_class = set ? acquisition->wait_class : 0};

    if (result == -ECHILD || !set)
        return result;
    if (result != -EAGAIN && result != -ETIMEDOUT && result != -ENOBUFS && result != -ERANGE)
        return -EINVAL;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    for (uint32_t i = 0; i < set->limits.n; i++)
        op.amounts[i] =
            acquisition_amounts(acquisition)[i]; /* not of the record: it may be shared */
    set->ops->forecast(&op, acquisition->record, FORECAST_ANY_QUEUE);
    if (set_is_broken(op.set) || set_is_faulty(op.set))
        return -EUCLEAN;
    acquire_op_fill_refusal(ret, op.set, result, &op.decision);
    return 0;
}

int request_find_class(struct acquire_op *op)
{
    const struct wait_classes *classes = op->set->classes;
    const char *name = request_wait_class(op->request);

    if (!name && op->pool)
        name = pool_class(op->pool, op->set);
    op->key = (struct key_digest){0}; /* events tell no subject */
    op->wait_class = classes->rule.n - 1;
    if (!name)
        return 0;
    for (op->wait_class = 0; op->wait_class < classes->rule.n; op->wait_class++)
        if (strcmp(classes->names[op->wait_class], name) == 0)
            return 0;
    op->ctx = thread_ctx_get(op->set);
    if (!op->ctx)
        return -ENOMEM;
    set_count_refusal(op->ctx, op->set, -ENOENT, NULL);
    acquire_op_store_refusal(op->retref, op->set, name, WEIR_FOREVER);
    return -ENOENT;
}

static int acquire_op_identify(struct acquire_op *op)
{
    return op->set->ops->identify ? op->set->ops->identify(op) : 0;
}

/* Resolves a request with at most one key. False: request_resolve() has to look at it. */
static bool acquire_op_resolve_simple(struct acquire_op *op, enum purpose purpose)
{
    if (op->set->limits.n == 1 && request_resolve_one(op->set, op->request, purpose, op->amounts) &&
        op->amounts[0] != REQUEST_AMOUNT_NONE)
        return true;
    return request_resolve_simple(op->set, op->request, purpose, op->amounts);
}

/* Returns why amounts would not be resolved by the last definition: -ESTALE, or an error of
 * set_catch_up(); 0: they are. */
static int acquire_op_follow(const struct acquire_op *op)
{
    int r = set_is_shared(op->set) ? set_catch_up(op->set, false) : 0;

    if (r == 0 && set_newest(op->set) != op->set)
        r = -ESTALE;
    return r;
}

/* Prepares an operation on any pool and request. A function of its own, so that the common case
 * needs few registers. */
WEIR_NOINLINE int acquire_op_prepare_slow(struct acquire_op *op, weir_pool *pool,
                                          enum purpose purpose)
{
    const char *key = NULL;
    int r, outdated;

    acquire_within_pick(op, pool);
    if (set_is_removed(op->set))
        return -ESTALE;
    r = acquire_op_identify(op);
    if (r == 0)
        r = acquire_within_find(op);
    if (r < 0)
        return r;
    /* What is unknown, or too much, may not be so any more. */
    outdated = acquire_op_follow(op);
    if (outdated == -ESTALE)
        return outdated;
    if (pool->w->clock.tsc)
        clock_report_tsc_loss(&pool->w->clock, &pool->w->log);
    r = request_resolve(op->set, op->request, purpose, op->amounts, &key);
    if (outdated < 0 && r != -EINVAL && (r < 0 || request_is_empty(op->set, op->amounts)))
        return outdated;
    /* After the warnings: the log callback may call weir and so return this thread's context. */
    op->ctx = thread_ctx_get(op->set);
    if (!op->ctx)
        return -ENOMEM;
    WEIR_INVARIANT(thread_ctx_is_prepared(op->ctx, op->set->number));
    if (r < 0) {
        set_count_refusal(op->ctx, op->set, r, key);
        if (op->set->classes)
            class_count(op->ctx, op->set, op->wait_class, r);
        acquire_op_store_refusal(op->retref, op->set, key, WEIR_FOREVER);
        if (r == -EINVAL && op->retref && op->retref->size >= sizeof(*op->retref))
            op->retref->reason = request_explain(op->request, key);
    } else if (instance_is_closed(op->set->w)) {
        return -ESHUTDOWN; /* the log callback may have closed it */
    }
    if (events_are_on(pool->w))
        acquire_op_tell_request(op, r, key);
    return r;
}

/* Refuses a request to a set that was removed. What the thread has leased of a shared one goes
 * back: it comes upon no successor. */
static int acquire_op_refuse_removed(weir_set *set)
{
    struct thread_ctx *ctx =
        set_is_shared(set) && set->limits.has_lease ? thread_ctx_get(set) : NULL;

    if (ctx)
        lease_return_rest(ctx, set);
    return -ESTALE;
}

int acquire_op_prepare(struct acquire_op *op, weir_pool *pool, const struct weir_request *request,
                       enum purpose purpose, struct weir_refusal *retref)
{
    bool is_nested;
    uint32_t state;
    int r;

    if (!pool)
        return -EINVAL;
    state = atomic_load_explicit(pool->w->state, memory_order_relaxed); /* once for both */
    if (state & INSTANCE_CLOSED || !(state & INSTANCE_HERE))
        return state & INSTANCE_HERE ? -ESHUTDOWN : -ECHILD;
    op->retref = retref;
    op->acquisition_set = NULL;
    op->pool = pool;
    op->within = op->wait_class = 0;
    op->is_observed = false;
    op->request = request_validate(request);
    if (!op->request)
        return request_refuse_malformed(pool->w, request, retref);
    op->set = pool_only_set(pool);
    if (set_is_removed(op->set) && !request_within(op->request))
        return acquire_op_refuse_removed(op->set);
    /* First, as the memory of a subject is fetched while the request is resolved. */
    is_nested = request_is_nested(op->request);
    r = is_nested ? 0 : acquire_op_identify(op);
    if (r < 0)
        return r;
    if (is_nested || clock_must_report_tsc(&pool->w->clock) ||
        !acquire_op_resolve_simple(op, purpose))
        return acquire_op_prepare_slow(op, pool, purpose);
    op->ctx = thread_ctx_get(op->set);
    if (!op->ctx)
        return -ENOMEM;
    if (events_are_on(pool->w))
        acquire_op_tell_request(op, 0, NULL);
    return 0;
}

/* Limits that come later may have the places behind those of the set (set/places.h). */
static void acquire_op_clear_rest(const weir_set *set, struct acq_record *r)
{
    uint32_t n = set_amounts_n(set);

    for (uint32_t i = set->limits.n; i < n; i++)
        record_store(&r->amounts[i], 0);
}

void acquire_op_fill_record(const struct acquire_op *op, uint32_t record)
{
    const struct thread_ctx *ctx = op->ctx;
    const struct region *region = op->set->region;
    struct acq_record *r = record_at(region, record);
    uint32_t unit = thread_ctx_for_set(ctx, op->set->number)->unit;
    struct thread_head *head = region_block(region, unit);

    WEIR_INVARIANT(op->set->number < ctx->set_ctxs_n);
    WEIR_INVARIANT(record && ctx->w == op->set->w);
    WEIR_INVARIANT(set_is_shared(op->set) || record_state(record_load(&r->word)) == RECORD_FREE);
    for (uint32_t i = 0; i < op->set->limits.n; i++)
        record_store(&r->amounts[i], op->amounts[i]);
    if (set_is_shared(op->set))
        acquire_op_clear_rest(op->set, r);
    SCHED_POINT();
    /* Relaxed: the generation never changes while this thread lives and has the context. */
    if (set_is_shared(op->set))
        record_store(&r->owner,
                     (uint64_t)unit << 32 |
                         (uint32_t)atomic_load_explicit(&head->generation, memory_order_relaxed));
    else
        record_store(&r->owner, op->set->id);
    shm_store_release(&r->set, (uint64_t)op->set->id << 32 |
                                   (uint64_t)(op->set->classes ? op->wait_class : 0)
                                       << RECORD_CLASS_SHIFT |
                                   ctx->thread);
    if (op->set->ops->fill_record)
        op->set->ops->fill_record(op, r);
    if (op->set->limits.has_shadow)
        shadow_fill_record(op, r);
    SCHED_POINT();
    record_set_wait_target(r, WAIT_TARGET_FUTEX, 0, 0);
    SCHED_POINT();
    record_set_prev_flags(r, 0);
    if (record_held_within(r, record))
        record_set_within(r, record, 0); /* as it was when it was held last */
    r->bucket_next = r->heap_index = 0;
    record_store(&r->deadline_ns, WEIR_FOREVER);
}

void acquire_op_count_empty(const struct acquire_op *op, bool is_taken)
{
    struct counters *counters = thread_ctx_counters(op->ctx, op->set->number);

    counter_add(is_taken ? &counters->taken : &counters->acquired, 1);
    if (op->set->classes)
        class_count(op->ctx, op->set, op->wait_class, 0);
}

int acquire_op_ask_watched(struct acquire_op *op, uint32_t record, enum wait_mode mode)
{
    int r = hold_watch_begin(op->set);

    if (r < 0)
        return r;
    r = op->set->ops->acquire(op, record, mode, request_max_wait(op->set, op->request));
    if (r >= 0 || r == -EAGAIN || r == -ENOBUFS) /* others hold what it lacks */
        hold_watch_note(op->set);
    return r;
}

int acquire_op_execute(struct acquire_op *op, uint32_t record, enum wait_mode mode)
{
    int r = acquire_op_ask(op, record, mode);

    if (r >= 0 && mode != MODE_PROBE)
        acquire_op_use_instance_time(op);
    WEIR_INVARIANT(r <= 1 && r != -EINPROGRESS);
    WEIR_INVARIANT(r != 1 || (mode == MODE_WAIT && record));
    /* After -EAGAIN the caller of a probe comes back to wait. */
    if (r < 0 && (mode != MODE_PROBE || r != -EAGAIN))
        acquire_op_fill_refusal(op->retref, op->set, r, &op->decision);
    return r;
}

uint64_t acquire_op_deadline(const struct acquire_op *op, uint64_t now,
                             enum record_state *ret_state)
{
    uint64_t timeout = request_timeout(op->set, op->request);
    uint64_t max_wait = request_max_wait(op->set, op->request);
    uint64_t wait = timeout <= max_wait ? timeout : max_wait;

    WEIR_INVARIANT(now <= CLOCK_MAX_NS);
    *ret_state = (timeout <= max_wait) ? RECORD_TIMED_OUT : RECORD_REFUSED;
    return wait > WEIR_INSTANT_MAX - now ? WEIR_FOREVER : now + wait;
}

void acquire_op_publish_deadline(const struct acquire_op *op, uint32_t record, uint32_t timer)
{
    struct acq_record *r = record_at(op->set->region, record);
    enum record_state state;
    uint64_t now_ns = clock_now_ns(&op->set->w->clock);
    uint64_t deadline_ns = acquire_op_deadline(op, now_ns, &state);

    WEIR_INVARIANT(op->set->participant);
    record_set_prev_flags(r, state == RECORD_REFUSED ? RECORD_REFUSE_AT_DEADLINE : 0);
    atomic_store_explicit(&r->deadline_ns, deadline_ns, memory_order_release);
    participant_beat(op->set->participant, timer, now_ns);
}

void acquire_op_schedule(struct acquire_op *op, uint32_t waiter, uint64_t word)
{
    weir_set *set = op->set;
    uint32_t record = waiter_record(set->w, waiter);

    WEIR_INVARIANT(set_is_shared(set) && record);
    WEIR_INVARIANT(record_state(word) == RECORD_WAITING);
    record_store(&waiter_at(set->w, waiter)->granted_ns, op->decision.ticket);
    stall_check_arm(op->ctx, set, waiter, word);
    peer_reap(op->ctx, set); /* from here on every peer that existed before is watched */
    /* weir_close and weir_reload cancel the waiters that are queued. A later one sees that here. */
    if ((instance_is_closed(set->w) || set_is_removed(set)) &&
        set->ops->cancel_wait(op->ctx, set, record, word, RECORD_SHUT_DOWN))
        notify_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
}

void acquire_op_describe(struct acquire_op *op, weir_acquisition *acquisition)
{
    acquisition->strict = (op->request->flags & WEIR_STRICT) != 0;
    if (acquisition->record == op->within)
        op->within = 0; /* that was released */
    acquisition->within = op->within;
    acquisition->wait_class = (uint8_t)op->wait_class;
    if (op->is_observed)
        acquisition_keep_tag(op, acquisition);
}

int acquire_op_try(struct acquire_op *op, enum wait_mode mode, weir_acquisition **ret)
{
    weir_acquisition *acquisition = acquisition_new(op->ctx, op->set, op->amounts);
    int r = 0;

    WEIR_INVARIANT(mode != MODE_WAIT);
    WEIR_INVARIANT(op->ctx->w == op->set->w);
    if (!acquisition)
        return acquire_op_tell_failure(op, -ENOMEM);
    acquire_op_describe(op, acquisition);
    op->acquisition_set = &acquisition->set;
    if (acquisition->record) {
        acquire_op_fill_record(op, acquisition->record);
        r = acquire_op_execute(op, acquisition->record, mode);
    } else {
        acquisition->empty_granted_ns = clock_now_coarse(&op->set->w->clock);
        acquire_op_count_empty(op, false);
    }
    WEIR_INVARIANT(acquisition->set == op->set || !acquisition->record);
    if (r == 0 && mode != MODE_RESERVE)
        acquisition_cache_enable(op->ctx, acquisition);
    if (r == 0)
        acquisition_publish_within(acquisition);
    if (op->is_observed && (r != -EAGAIN || mode != MODE_PROBE))
        acquire_op_tell_result(op, acquisition, r);
    if (r == 0 || (r == -EAGAIN && mode == MODE_PROBE)) {
        *ret = acquisition;
        return r;
    }
    if (r != -EAGAIN || !acquisition_cache_put(op->ctx, acquisition))
        acquisition_free(op->ctx, acquisition);
    return r;
}

bool acquire_set_has_changed(weir_pool *pool)
{
    return !set_is_removed(pool_only_set(pool));
}

/* A set is removed after its pools have changed. So one that was removed, and is that of the handle
 * still, is what the handle goes by. Each further round takes another reload. */
bool acquire_pool_has_changed(weir_pool *pool, const struct pool_choice *choice)
{
    const weir_set *set;

    if (!pool)
        return false;
    do {
        if (pool_choice(pool) != choice)
            return true;
        if (choice)
            return false;
        set = pool_only_set(pool);
        if (!set_is_removed(set))
            return true;
    } while (pool_only_set(pool) != set || pool_choice(pool) != choice);
    return false;
}

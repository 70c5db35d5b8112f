/* SPDX-License-Identifier: MIT */
/*
 * `on_failure: local_share`: while its engine is away, a remote set is decided by private sets of
 * the process. Each has the limits divided by a number of nodes. Which one serves an outage is
 * decided by the number that the engine said last.
 */
#include "base/invariant.h"
#include "os/os.h"
#include "remote/remote.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <errno.h>

struct remote_share {
    struct remote_share *next; /* with an earlier number of nodes */
    weir_set *set;
    uint32_t nodes;
    _Atomic bool is_ready; /* the engine's context is prepared for the set */
    uint64_t empty;        /* bits of limits: a part of nothing */
};

/* Numbers up to this are taken as they are. Larger ones are rounded up, by less than one in eight,
 * so that the sets have a bound: sets of an instance are never removed. */
#define NODES_EXACT 16u

static uint32_t share_round(uint32_t nodes)
{
    uint32_t step = 1;

    while (nodes / step > NODES_EXACT)
        step *= 2;
    return nodes > UINT32_MAX - step ? UINT32_MAX : (nodes + step - 1) / step * step;
}

static struct remote_share *share_of_nodes(const struct remote_set *remote, uint32_t nodes)
{
    struct remote_share *share = atomic_load_explicit(&remote->shares, memory_order_acquire);

    while (share && share->nodes != nodes)
        share = share->next;
    return share;
}

/* Makes the set. Records are the remote set's, so of one size. The instance's lock is held. */
static int share_make_set(struct remote_set *remote, struct remote_share *share)
{
    struct set_plan plan;
    int r = set_plan_share(&remote->plan, share->nodes, &plan, &share->empty);

    if (r < 0)
        return r;
    r = registry_add_stand_in(remote->set.w, &plan, &share->set);
    set_plan_free(&plan);
    if (r < 0)
        return r;
    WEIR_INVARIANT(share->set->record_units <= remote->set.record_units);
    share->set->record_units = remote->set.record_units;
    return 0;
}

/* The context of the engine serves to end waits. The instance's lock is held. */
static int share_prepare(const struct remote_set *remote, struct remote_share *share)
{
    struct remote_engine *engine = remote->engine;
    int r;

    if (atomic_load_explicit(&share->is_ready, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&engine->lock);
    r = thread_ctx_prepare(engine->ctx, share->set);
    pthread_mutex_unlock(&engine->lock);
    if (r == 0)
        atomic_store_explicit(&share->is_ready, true, memory_order_release);
    return r;
}

/* A share with its set is kept, whatever fails next: sets are never removed. */
static int share_make(struct remote_set *remote, uint32_t nodes, struct remote_share **ret)
{
    struct remote_share *share = share_of_nodes(remote, nodes);
    int r;

    if (share) {
        *ret = share;
        return share_prepare(remote, share);
    }
    share = os_alloc(1, sizeof(*share));
    if (!share)
        return -ENOMEM;
    share->nodes = nodes;
    share->next = atomic_load_explicit(&remote->shares, memory_order_relaxed);
    r = share_make_set(remote, share);
    if (r < 0) {
        os_free(share);
        return r;
    }
    atomic_store_explicit(&remote->shares, share, memory_order_release);
    *ret = share;
    return share_prepare(remote, share);
}

/* Returns the share of the number of nodes that was heard last. Returns 0; -EHOSTUNREACH (none was
 * heard, or an algorithm cannot do with so few units); -ENOMEM, -ESHUTDOWN. */
static int share_find(struct remote_set *remote, struct remote_share **ret)
{
    weir *w = remote->set.w;
    uint32_t nodes = atomic_load_explicit(&remote->nodes, memory_order_seq_cst);
    int r;

    if (!nodes)
        return -EHOSTUNREACH;
    nodes = share_round(nodes);
    *ret = share_of_nodes(remote, nodes);
    if (*ret && atomic_load_explicit(&(*ret)->is_ready, memory_order_acquire))
        return 0;
    pthread_mutex_lock(&w->lock);
    r = share_make(remote, nodes, ret);
    pthread_mutex_unlock(&w->lock);
    return r == 0 || r == -ENOMEM || r == -ESHUTDOWN ? r : -EHOSTUNREACH;
}

/* Reports it once in an outage. */
static void share_note(struct remote_set *remote, const struct remote_share *share)
{
    if (atomic_exchange_explicit(&remote->failure_reported, true, memory_order_seq_cst))
        return;
    log_write(&remote->set.w->log, WEIR_LOG_WARNING,
              "set `%s`: backend `%s` cannot be asked: requests are decided by this process, with "
              "a part in %u of the limits",
              set_own_name(&remote->set), remote->engine->plan.name, share->nodes);
}

/* Returns whether the share can ever grant so much. */
static bool share_is_enough(const struct remote_share *share, const uint64_t *amounts)
{
    const struct limits *limits = &share->set->limits;

    for (uint32_t i = 0; i < limits->n; i++)
        if (amounts[i] && (share->empty >> i & 1 || amounts[i] > limits->items[i].capacity))
            return false;
    return true;
}

/* Has the request, with its record and its acquisition, be of another set. */
static void share_move_to(struct acquire_op *op, uint32_t record, weir_set *set)
{
    op->set = set;
    if (op->acquisition_set)
        *op->acquisition_set = set;
    if (record)
        shm_store_release(&set_record(set, record)->set, (uint64_t)set->id << 32 | op->ctx->thread);
}

/* Ends a wait that has begun as the engine came back, or the set was removed: nothing else would.
 */
static void share_end_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                           enum record_state state)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    if (record_state(word) == RECORD_WAITING &&
        set->ops->cancel_wait(ctx, set, record, word, state))
        notify_waiter(set, record, record_next_word(word, state));
}

int remote_share_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                         uint64_t max_wait_ns)
{
    weir_set *set = op->set;
    struct remote_set *remote = remote_of(set);
    struct remote_share *share;
    int r = share_find(remote, &share);

    if (r < 0)
        return r;
    share_note(remote, share);
    if (!share_is_enough(share, op->amounts))
        return -EHOSTUNREACH;
    if (!thread_ctx_get(share->set))
        return -ENOMEM;
    WEIR_INVARIANT(thread_ctx_is_ready(op->ctx, share->set));
    share_move_to(op, record, share->set);
    r = share->set->ops->acquire(op, record, mode, max_wait_ns);
    if (r < 0 || !record)
        share_move_to(op, record, set);
    else if (r == 1 && set_is_removed(set_newest(set)))
        share_end_wait(op->ctx, share->set, record, RECORD_SHUT_DOWN);
    else if (r == 1 && !atomic_load_explicit(&remote->is_away, memory_order_seq_cst))
        share_end_wait(op->ctx, share->set, record, RECORD_UNREACHABLE);
    return r;
}

/* ---- the engine is there again, or the set is removed ---- */

static void share_end_waits(const struct remote_set *remote, weir_set *set, enum record_state state)
{
    struct remote_engine *engine = remote->engine;
    uint32_t record = 0;

    while ((record = region_next_record(set->region, record)) != 0) {
        const struct acq_record *r = set_record(set, record);
        uint64_t word = record_load(&r->word);
        bool has_ended;

        if (record_state(word) != RECORD_WAITING || record_set_number(r) != set->id)
            continue;
        if (state == RECORD_SHUT_DOWN && !set_is_removed(set_newest(&remote->set)))
            return; /* it is back */
        pthread_mutex_lock(&engine->lock);
        has_ended = set->ops->cancel_wait(engine->ctx, set, record, word, state);
        pthread_mutex_unlock(&engine->lock);
        if (has_ended)
            notify_waiter(set, record, record_next_word(word, state));
    }
}

void remote_share_end(struct remote_set *remote, enum record_state state)
{
    const struct remote_share *share = atomic_load_explicit(&remote->shares, memory_order_acquire);

    for (; share; share = share->next)
        share_end_waits(remote, share->set, state);
}

/* ---- for observers, and the end ---- */

weir_set *remote_share_at(const weir_set *set, uint32_t i)
{
    const struct remote_set *remote = (const struct remote_set *)set;

    for (; remote; remote = remote->before) {
        const struct remote_share *share =
            atomic_load_explicit(&remote->shares, memory_order_acquire);

        for (; share && i > 0; i--)
            share = share->next;
        if (share)
            return share->set;
    }
    return NULL;
}

int remote_share_snapshot(struct remote_set *remote, struct weir_set_stats *ret,
                          struct weir_limit_stats *limits, uint32_t n)
{
    struct remote_share *share;
    struct thread_ctx *ctx;
    int r = share_find(remote, &share);

    if (r < 0)
        return r;
    ctx = thread_ctx_get(share->set);
    return ctx ? share->set->ops->snapshot(ctx, share->set, ret, limits, n) : -ENOMEM;
}

int remote_share_remaining(struct remote_set *remote, struct weir_remaining *ret, uint32_t n)
{
    struct remote_share *share;
    struct thread_ctx *ctx;
    int r = share_find(remote, &share);

    if (r < 0)
        return r;
    ctx = thread_ctx_get(share->set);
    return ctx ? set_remaining(ctx, share->set, ret, n) : -ENOMEM;
}

uint64_t remote_share_waiting(const struct remote_set *remote)
{
    struct weir_set_stats stats = {0};
    uint64_t waiting = 0;
    weir_set *set;

    for (uint32_t i = 0; (set = remote_share_at(&remote->set, i)) != NULL; i++) {
        struct thread_ctx *ctx = thread_ctx_get(set);

        if (ctx && set->ops->snapshot(ctx, set, &stats, NULL, 0) == 0)
            waiting += stats.waiting;
    }
    return waiting;
}

void remote_share_free(struct remote_set *remote)
{
    struct remote_share *share = atomic_load_explicit(&remote->shares, memory_order_relaxed), *next;

    for (; share; share = next) {
        next = share->next;
        os_free(share);
    }
    set_plan_free(&remote->plan);
}

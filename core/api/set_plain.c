/* SPDX-License-Identifier: MIT */
/* Plain sets, private or shared: one state, which the functions of set/ operate on. */
#include "api/request.h"
#include "api/set_object.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "peer/peer.h"
#include "set/class_count.h"
#include "set/set_ops.h"
#include "set/shadow.h"
#include "set/txn.h"
#include "set/waiter.h"
#include "wait/hold_watch.h"
#include "wait/wait_timer.h"
#include <errno.h>

/* Of a shared set: the state of another algorithm fits, too. */
#define REDEFINED_BLOCK_CLASS 10u

static int set_plain_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    return set_storage_make(
        set, &(struct set_storage_plan){.plan = plan, .block_class_min = REDEFINED_BLOCK_CLASS},
        reterr);
}

static void set_plain_close(weir_set *set)
{
    if (set->has_joined) /* else it is that of another definition */
        participant_close(set->participant);
}

static void set_plain_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    if (op->set->limits.has_shadow && shadow_forecast(op, record))
        return;
    set_forecast(op->ctx, op->set, &(struct newcomer){op->amounts, op->within, op->wait_class},
                 walk, &op->decision);
}

/* Views the set, and reads its clock. Returns 0 or -EUCLEAN. */
static int set_plain_view(struct thread_ctx *ctx, weir_set *set, struct set_view *ret,
                          struct weir_instant *ret_at)
{
    set_snapshot(ctx, set, ret);
    if (set_is_broken(set))
        return -EUCLEAN;
    *ret_at = set_view_instant(set, ret);
    return 0;
}

int set_plain_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                       struct weir_limit_stats *limits, uint32_t n)
{
    struct set_view view;
    struct weir_instant at;
    int r = set_plain_view(ctx, set, &view, &at);

    if (r < 0)
        return r;
    ret->waiting = view.length;
    for (uint32_t i = 0; i < n; i++) {
        const struct limit *limit = &set->limits.items[i];
        const uint64_t *state = view.content + CONTENT_STATES + limit->state_offset;

        limits[i].available = limit_available(limit, state, &at);
        limits[i].held = limit_held(limit, state, &at);
    }
    return 0;
}

int set_plain_observe(struct thread_ctx *ctx, weir_set *set, uint32_t i, uint64_t *ret)
{
    const struct limit *limit = &set->limits.items[i];
    struct set_view view;
    struct weir_instant at;
    int r = set_plain_view(ctx, set, &view, &at);

    if (r < 0)
        return r;
    return (int)limit_observe(limit, view.content + CONTENT_STATES + limit->state_offset, &at, ret);
}

static int set_plain_remaining(struct acquire_op *op, struct weir_remaining *ret, uint32_t n)
{
    return set_remaining(op->ctx, op->set, ret, n);
}

bool set_plain_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret)
{
    if (i == 0)
        set_snapshot(ctx, set, ret);
    return i == 0;
}

/* ---- closing ---- */

static bool set_shutdown_head(struct thread_ctx *ctx, weir_set *set)
{
    struct txn txn;
    uint32_t head;
    uint64_t word, next;
    bool committed;

    txn_begin(&txn, ctx, set);
    if (!version_is_inflated(&txn.version))
        return true; /* no waiters; a later one checks INSTANCE_CLOSED itself */
    if (version_flags(&txn.version) & CONTENT_MOVED)
        return true; /* its waiters are those of another set */
    version_set_flags(&txn.version, version_flags(&txn.version) | CONTENT_SHUT_DOWN);
    forecast_invalidate(&txn);
    head = waitq_head(&txn.version);
    if (head) {
        word = record_load(&set_record(set, head)->word);
        next = record_next_word(word, RECORD_SHUT_DOWN);
        txn_remove_waiter(&txn, head);
        version_defer_write(&txn.version, head, RECORD_FIELD_WORD, word, next);
        WEIR_INVARIANT(txn.notifications_n <
                       sizeof(txn.notifications) / sizeof(*txn.notifications));
        txn.notifications[txn.notifications_n++] = (struct notification){head, next};
    }
    committed = txn_commit(&txn);
    return committed && !head;
}

struct shutdown_args {
    struct thread_ctx *ctx;
    weir_set *set;
};

/* Returns whether waits of this process end. A set that was removed may come back meanwhile: so
 * this is asked after a waiter was found. */
static bool set_shuts_down(const weir_set *set)
{
    return instance_is_closed(set->w) || set_is_removed(set);
}

/* Ends the wait of a waiter and notifies it. In a broken set no wait can be canceled; acquisitions
 * are notified even so, and a reap of a completion queue finds out by itself. */
static void set_shutdown_waiter(void *userdata, uint32_t record, uint32_t waiter)
{
    const struct shutdown_args *args = userdata;
    const weir *w = args->set->w;
    /* Word before set: the record may wait again, for another key, but then with another word. */
    uint64_t word = waiter_word(w, waiter);
    weir_set *set = waiter_set(w, waiter); /* or one of its key sets */

    SCHED_POINT();
    if (!set_shuts_down(args->set))
        return;
    if (record_state(word) == RECORD_WAITING &&
        set->ops->cancel_wait(args->ctx, set, record, word, RECORD_SHUT_DOWN))
        word = record_next_word(word, RECORD_SHUT_DOWN);
    else if (set_is_broken(set))
        word = waiter_word(set->w, waiter);
    if (wait_target_kind(record_wait_target(waiter_at(set->w, waiter))) == WAIT_TARGET_TIMER ||
        record_state(word) == RECORD_SHUT_DOWN)
        timer_notify(set->w, waiter, word);
}

/* Shuts a shared set down for this process only: other participants go on. */
static void set_shutdown_local(struct thread_ctx *ctx, weir_set *set)
{
    struct shutdown_args args = {ctx, set};
    uint32_t record = 0;

    WEIR_INVARIANT(set->participant);
    participant_each_waiter(set->participant, set_shutdown_waiter, &args);
    while ((record = region_next_record(set->region, record)) != 0) {
        uint64_t word = set_record_word(set, record);

        if (record_state(word) != RECORD_WAITING || !participant_owns(set->participant, record))
            continue;
        if (!set_shuts_down(set))
            return;
        if (set->ops->cancel_wait(ctx, set, record, word, RECORD_SHUT_DOWN))
            notify_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
    }
}

void set_shutdown(struct thread_ctx *ctx, weir_set *set)
{
    WEIR_INVARIANT(ctx->w == set->w);
    if (set_is_shared(set)) {
        set_shutdown_local(ctx, set);
        return;
    }
    atomic_thread_fence(memory_order_seq_cst);
    while (set->head_unit && !set_shutdown_head(ctx, set))
        ;
}

/* What both kinds of plain sets have. */
#define SET_PLAIN_OPS                                                                              \
    .size = sizeof(weir_set), .open = set_plain_open, .close = set_plain_close,                    \
    .lease = set_lease, .release = set_release, .return_units = set_return_units,                  \
    .return_part = set_return_part, .cancel_wait = set_cancel_wait,                                \
    .grant_waiters = set_grant_waiters, .poll_head = set_poll_head,                                \
    .check_stalls = stall_check_queue, .shut_down = set_shutdown, .forecast = set_plain_forecast,  \
    .look = set_look, .snapshot = set_plain_snapshot, .observe = set_plain_observe,                \
    .remaining = set_plain_remaining, .view_queue = set_plain_view_queue,                          \
    .watch_loss = hold_watch_loss

const struct set_ops plain_set_ops = {SET_PLAIN_OPS, .acquire = set_acquire, .has_fast_path = true};
const struct set_ops classed_set_ops = {SET_PLAIN_OPS, .acquire = set_acquire_classed,
                                        .identify = request_find_class};

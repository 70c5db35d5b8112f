/* SPDX-License-Identifier: MIT */
/* Plain sets, private or shared: one state, which the functions of set/ operate on. */
#include "api/set_object.h"

#include "set/instance_base.h"
#include "set/set_storage.h"
#include "set/txn.h"
#include "shm/participant.h"
#include <errno.h>

static int set_plain_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    return set_storage_make(set, &(struct set_storage_plan){.plan = plan}, reterr);
}

static void set_plain_close(weir_set *set)
{
    participant_close(set->participant);
}

static int set_plain_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                             uint64_t max_wait_ns)
{
    return set_acquire(op->ctx, op->set, op->amounts, record, mode, max_wait_ns, &op->decision);
}

static void set_plain_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    (void)record;
    set_forecast(op->ctx, op->set, op->amounts, walk, &op->decision);
}

int set_plain_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                       struct weir_limit_stats *limits, uint32_t n)
{
    struct set_view view;
    struct weir_instant at;

    set_snapshot(ctx, set, &view);
    if (set_is_broken(set))
        return -EUCLEAN;
    ret->waiting = view.length;
    at = clock_instant(&set->w->clock, set->limits.reads_wall);
    /* Ahead of the clock after a reservation: nothing is granted before that time. */
    if (at.now_ns < view.last_ns)
        at.now_ns = view.last_ns;
    for (uint32_t i = 0; i < n; i++) {
        const struct limit *limit = &set->limits.items[i];
        const uint64_t *state = view.content + CONTENT_STATES + limit->state_offset;

        limits[i].available = limit_available(limit, state, &at);
        limits[i].held = limit->algorithm ? 0 : state[0];
    }
    return 0;
}

bool set_plain_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret)
{
    if (i == 0)
        set_snapshot(ctx, set, ret);
    return i == 0;
}

const struct set_ops plain_set_ops = {
    .size = sizeof(weir_set),
    .has_fast_path = true,
    .open = set_plain_open,
    .close = set_plain_close,
    .acquire = set_plain_acquire,
    .lease = set_lease,
    .release = set_release,
    .return_units = set_return_units,
    .cancel_wait = set_cancel_wait,
    .grant_waiters = set_grant_waiters,
    .poll_head = set_poll_head,
    .shut_down = set_shutdown,
    .forecast = set_plain_forecast,
    .snapshot = set_plain_snapshot,
    .view_queue = set_plain_view_queue,
};

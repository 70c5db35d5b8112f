/* SPDX-License-Identifier: MIT */
/* Looks at a set: for a balancer, what a request that came now would find; and what remains. */
#include "base/clock.h"
#include "set/class_order.h"
#include "set/instance_base.h"
#include "set/txn.h"
#include <errno.h>

__extension__ typedef unsigned __int128 u128;

/* Finds the limit with the least part of its capacity available. */
static void look_find_scarcest(const struct txn *txn, const uint64_t *amounts, struct set_look *ret)
{
    for (uint32_t i = 0; i < txn->set->limits.n; i++) {
        const struct limit *limit = &txn->set->limits.items[i];
        const uint64_t *state = txn_states(txn) + limit->state_offset;
        uint64_t available;

        if (!amounts[i])
            continue;
        available = limit_available(limit, state, &txn->at);
        if (ret->limit &&
            (u128)available * ret->limit->capacity >= (u128)ret->available * limit->capacity)
            continue;
        ret->limit = limit;
        ret->available = available;
        ret->held = 0;
        if (limit->type == WEIR_LIMIT_RESOURCE && available < limit->capacity)
            ret->held = limit->capacity - available;
    }
}

/* Finds out when the request would be granted behind those that wait. Returns false if the set has
 * changed since it was read. */
static bool look_behind_waiters(struct txn *txn, const uint64_t *amounts, struct set_look *ret)
{
    struct decision decision = {0};

    if (waitq_length(&txn->version) > FORECAST_QUEUE_MAX)
        txn->forecast_walks = FORECAST_WALKS_MAX;
    if (!forecast_compute(txn, amounts, &decision))
        return false;
    ret->ready_ns = decision.forecast_ns > txn->now_ns ? decision.forecast_ns : WEIR_BLOCKED;
    return true;
}

void set_look(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, struct set_look *ret)
{
    const struct limit *limiting;
    struct txn txn;
    bool is_done;

    txn.forecast_walks = 0;
    txn.within = 0;
    txn.wait_class = set->classes ? set->classes->rule.n - 1 : 0; /* that of most requests */
    do {
        txn_begin(&txn, ctx, set);
        if (version_flags(&txn.version) & CONTENT_MOVED) {
            moved_look(ctx, set, amounts, ret);
            return;
        }
        *ret = (struct set_look){.now_ns = txn.now_ns, .waiting = waitq_length(&txn.version)};
        look_find_scarcest(&txn, amounts, ret);
        ret->ready_ns =
            limits_ready_at(&set->limits, txn_states(&txn), &txn.at, amounts, true, &limiting);
        is_done = set_is_broken(set) || set_is_faulty(set) || ret->ready_ns >= WEIR_BLOCKED ||
                  !ret->waiting;
        if (!is_done && !txn_first_ahead(&txn, amounts))
            is_done = txn_is_current(&txn);
        else if (!is_done)
            is_done = look_behind_waiters(&txn, amounts, ret);
    } while (!is_done);
}

int set_remaining(struct thread_ctx *ctx, weir_set *set, struct weir_remaining *ret, uint32_t n)
{
    struct set_view view;
    struct weir_instant at;
    uint64_t now_ns;

    set_snapshot(ctx, set, &view);
    if (set_is_broken(set))
        return -EUCLEAN;
    at = set_view_instant(set, &view);
    now_ns = at.now_ns == view.last_ns
                 ? clock_instant(&set->w->clock, set->limits.clock_needs).now_ns
                 : at.now_ns;
    if (now_ns > at.now_ns)
        now_ns = at.now_ns;
    for (uint32_t i = 0; i < n; i++) {
        const struct limit *limit = &set->limits.items[i];

        limit_remaining(limit, view.content + CONTENT_STATES + limit->state_offset, &at, now_ns,
                        &ret[i]);
    }
    return 0;
}

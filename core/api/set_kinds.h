/* SPDX-License-Identifier: MIT */
/* The kinds of sets, each with its table of operations (set/set_ops.h). */
#ifndef WEIR_CORE_API_SET_KINDS_H
#define WEIR_CORE_API_SET_KINDS_H

#include "config/plan.h"
#include "set/set_ops.h"

/* Sets with one state, private or shared, and per-subject sets. */
extern const struct set_ops plain_set_ops, keyed_set_ops;

/* Returns the kind of set that a plan asks for. */
static inline const struct set_ops *set_ops_for(const struct set_plan *plan)
{
    return plan->keyed.max_keys ? &keyed_set_ops : &plain_set_ops;
}

/* ---- operations of plain sets that per-subject sets share ---- */

int set_plain_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                       struct weir_limit_stats *limits, uint32_t n);
bool set_plain_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret);
void set_shutdown(struct thread_ctx *ctx, weir_set *set);

#endif

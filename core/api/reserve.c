/* SPDX-License-Identifier: MIT */
/* weir_reserve: a grant in advance. set_acquire.c decides it. */
#include "api/acquire_op.h"
#include "api/instance.h"
#include <errno.h>

int weir_reserve(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 uint64_t *ret_at_ns, struct weir_refusal *retref)
{
    struct acquire_op op;
    int r =
        ret && ret_at_ns ? acquire_op_prepare(&op, pool, request, PURPOSE_TAKE, retref) : -EINVAL;

    if (r < 0)
        return r;
    /* The time of a reservation of nothing, which the set does not decide. */
    op.decision.forecast_ns = clock_now_ns(&op.set->w->clock);
    r = acquire_op_try(&op, MODE_RESERVE, ret);
    if (r < 0)
        return r;
    (*ret)->reserved = true;
    *ret_at_ns = op.decision.forecast_ns;
    return 0;
}

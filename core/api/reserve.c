/* SPDX-License-Identifier: MIT */
/* Granting in advance. What a reservation does to its set is in set_enter.c. */
#include "api/acquire_op.h"
#include "api/instance.h"
#include <errno.h>

int weir_reserve(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 uint64_t *ret_at_ns, struct weir_refusal *retref)
{
    struct asking asking;
    int r = ret && ret_at_ns ? asking_begin(&asking, pool, request, PURPOSE_TAKE, retref) : -EINVAL;

    if (r < 0)
        return r;
    /* Unless the set says otherwise, which is not asked for nothing. */
    asking.verdict.estimate_ns = instance_now(asking.set->w);
    r = asking_start(&asking, ENTRY_RESERVE, ret);
    if (r < 0)
        return r;
    (*ret)->reserved = true;
    *ret_at_ns = asking.verdict.estimate_ns;
    return 0;
}

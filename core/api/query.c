/* SPDX-License-Identifier: MIT */
/* Queries: the refusal of an acquisition, and forecasts. Nothing changes. */
#include "api/acquire_op.h"
#include "api/instance.h"

#include <errno.h>

int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret)
{
    weir_set *set = acquisition->set;
    int result = weir_acquisition_result(acquisition);
    struct acquire_op op = {.set = set};

    if (result == -ECHILD)
        return result;
    if (result != -EAGAIN && result != -ETIMEDOUT && result != -ENOBUFS)
        return -EINVAL;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    for (uint32_t i = 0; i < set->limits.n; i++)
        op.amounts[i] = acquisition_amounts(acquisition)[i];
    set->ops->forecast(&op, acquisition->record, FORECAST_ANY_QUEUE);
    if (set_is_broken(set))
        return -EUCLEAN;
    acquire_op_fill_refusal(ret, set, &op.decision);
    return 0;
}

int weir_set_ready_at(weir_set *set, const struct weir_request *request, uint64_t *ret_ns)
{
    struct acquire_op op = {.set = set};
    const char *key;
    int r;

    if (instance_is_forked(set->w))
        return -ECHILD;
    op.request = request_validate(request);
    if (!op.request)
        return -EINVAL;
    r = set->ops->identify ? set->ops->identify(&op) : 0;
    if (r == 0)
        r = request_resolve(set, op.request, PURPOSE_FORECAST, op.amounts, &key);
    if (r < 0)
        return r;
    op.ctx = thread_ctx_get(set);
    if (!op.ctx)
        return -ENOMEM;
    if (set->limits.n)
        set->ops->forecast(&op, 0, FORECAST_ANY_QUEUE);
    if (set_is_broken(set))
        return -EUCLEAN;
    *ret_ns = set->limits.n ? op.decision.forecast_ns : clock_now_ns(&set->w->clock);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* Queries: the refusal of an acquisition, and forecasts. Nothing changes. */
#include "api/acquire_op.h"

#include "api/instance.h"
#include "base/invariant.h"
#include "keyed/key_set.h"
#include <errno.h>

int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret)
{
    weir_set *set = acquisition->set;
    int result = weir_acquisition_result(acquisition);
    struct decision decision;
    struct thread_ctx *ctx;

    if (result == -ECHILD)
        return result;
    if (result != -EAGAIN && result != -ETIMEDOUT && result != -ENOBUFS)
        return -EINVAL;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    if (key_set_template(set)->keyed)
        keyed_forecast_record(ctx, key_set_template(set), acquisition->record,
                              acquisition_amounts(acquisition), FORECAST_ANY_QUEUE, &decision);
    else
        set_forecast(ctx, set, acquisition_amounts(acquisition), FORECAST_ANY_QUEUE, &decision);
    if (set_is_broken(set))
        return -EUCLEAN;
    acquire_op_fill_refusal(ret, set, &decision);
    return 0;
}

int weir_set_ready_at(weir_set *set, const struct weir_request *request, uint64_t *ret_ns)
{
    struct thread_ctx *ctx;
    struct decision decision;
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct key_digest subject;
    const char *key;
    int r;

    if (instance_is_forked(set->w))
        return -ECHILD;
    request = request_validate(request);
    if (!request)
        return -EINVAL;
    r = set->keyed ? keyed_hash(set->keyed, request, &subject) : 0;
    if (r == 0)
        r = request_resolve(set, request, PURPOSE_FORECAST, amounts, &key);
    if (r < 0)
        return r;
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    WEIR_INVARIANT(ctx->w == set->w);
    if (set->keyed)
        keyed_forecast(ctx, set, &subject, amounts, FORECAST_ANY_QUEUE, &decision);
    else if (set->head_unit)
        set_forecast(ctx, set, amounts, FORECAST_ANY_QUEUE, &decision);
    if (set_is_broken(set))
        return -EUCLEAN;
    *ret_ns = set->head_unit ? decision.forecast_ns : clock_now_ns(&set->w->clock);
    return 0;
}

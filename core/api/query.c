/* SPDX-License-Identifier: MIT */
/* Questions about what would be: who refused, when would it be granted. Nothing changes. */
#include "api/acquire_op.h"

#include "api/instance.h"
#include "keyed/key_set.h"
#include <errno.h>

int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret)
{
    weir_set *set = acquisition->set;
    int result = weir_acquisition_result(acquisition);
    struct verdict verdict;
    struct actor *actor;

    if (result == -ECHILD)
        return result;
    if ((result != -EAGAIN && result != -ETIMEDOUT && result != -ENOBUFS) || !ret ||
        ret->size < sizeof(*ret))
        return -EINVAL;
    actor = actor_self(set);
    if (!actor)
        return -ENOMEM;
    if (set_template(set)->keyed)
        keyed_estimate_record(actor, set_template(set), acquisition->record,
                              acquisition_amounts(acquisition), ANY_LINE, &verdict);
    else
        set_estimate(actor, set, acquisition_amounts(acquisition), ANY_LINE, &verdict);
    if (set_is_broken(set))
        return -EUCLEAN;
    asking_say(ret, set, &verdict);
    return 0;
}

int weir_set_ready_at(weir_set *set, const struct weir_request *request, uint64_t *ret_ns)
{
    struct actor *actor;
    struct verdict verdict;
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct key subject;
    const char *key;
    int r;

    if (instance_forked(set->w))
        return -ECHILD;
    request = request_read(request);
    if (!request)
        return -EINVAL;
    r = set->keyed ? keyed_hash(set->keyed, request, &subject) : 0;
    if (r == 0)
        r = request_resolve(set, request, PURPOSE_FORESEE, amounts, &key);
    if (r < 0)
        return r;
    actor = actor_self(set);
    if (!actor)
        return -ENOMEM;
    if (set->keyed)
        keyed_estimate(actor, set, &subject, amounts, ANY_LINE, &verdict);
    else if (set->head)
        set_estimate(actor, set, amounts, ANY_LINE, &verdict);
    if (set_is_broken(set))
        return -EUCLEAN;
    *ret_ns = set->head ? verdict.estimate_ns : instance_now(set->w);
    return 0;
}

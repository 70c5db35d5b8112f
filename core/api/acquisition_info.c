/* SPDX-License-Identifier: MIT */
/* What an acquisition tells of itself: its set, what it holds, and which update it lacks. */
#include "api/acquisition.h"
#include "api/set_object.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include <errno.h>

const char *weir_acquisition_set(const weir_acquisition *acquisition)
{
    return acquisition ? set_name(acquisition_granted(acquisition)->set) : NULL;
}

const char *weir_acquisition_config(const weir_acquisition *acquisition, const char *name)
{
    return acquisition ? set_config_value(acquisition_granted(acquisition)->set, name) : NULL;
}

int weir_acquisition_config_settings(const weir_acquisition *acquisition, struct weir_setting *ret,
                                     size_t n)
{
    return weir_set_config_settings(acquisition ? acquisition_granted(acquisition)->set : NULL, ret,
                                    n);
}

int weir_acquisition_amount(const weir_acquisition *acquisition, const char *key, uint64_t *ret)
{
    uint64_t matching;

    if (!acquisition || !key || !ret)
        return -EINVAL;
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    acquisition = acquisition_granted(acquisition);
    matching = request_limits_named(&acquisition->set->limits, key);
    if (!matching)
        return -ENOENT;
    /* Limits with one key are of one type, so they have one amount. */
    *ret = acquisition->values[__builtin_ctzll(matching)];
    return 0;
}

/* Returns in `*ret_ns` when the record was granted, by the clock of its set. False: the record of a
 * shared set says what cannot be, and the set is marked broken. */
static bool acquisition_load_granted(const weir_acquisition *acquisition, uint64_t *ret_ns)
{
    const weir_set *set = acquisition->set;

    WEIR_INVARIANT(acquisition->record);
    *ret_ns = grant_time(record_load(&set_record(set, acquisition->record)->granted_ns));
    if (*ret_ns <= CLOCK_MAX_NS)
        return true;
    WEIR_INVARIANT(set_is_shared(set));
    participant_mark_broken(set->participant);
    return false;
}

int weir_acquisition_fence(const weir_acquisition *acquisition, uint64_t *ret)
{
    const weir_set *set;

    if (!acquisition || !ret)
        return -EINVAL;
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    acquisition = acquisition_granted(acquisition);
    set = acquisition->set;
    if (acquisition_state(acquisition) != RECORD_HELD)
        return acquisition_not_held(acquisition);
    if (!set->ops->fence || !acquisition->record)
        return -EOPNOTSUPP;
    return set->ops->fence(set, acquisition->record, ret);
}

int weir_acquisition_granted_ns(const weir_acquisition *acquisition, uint64_t *ret_ns)
{
    uint64_t granted_ns;

    if (!acquisition || !ret_ns)
        return -EINVAL;
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    acquisition = acquisition_granted(acquisition);
    if (acquisition_state(acquisition) != RECORD_HELD)
        return acquisition_not_held(acquisition);
    if (!acquisition->record) {
        *ret_ns = acquisition->empty_granted_ns;
        return 0;
    }
    if (!acquisition_load_granted(acquisition, &granted_ns))
        return -EUCLEAN;
    *ret_ns = set_to_instance_ns(acquisition->set, granted_ns);
    return 0;
}

const char *weir_acquisition_missing_update(const weir_acquisition *acquisition)
{
    if (!acquisition || instance_is_forked(acquisition->set->w))
        return NULL;
    acquisition = acquisition_granted(acquisition);
    if (acquisition_state(acquisition) != RECORD_HELD)
        return NULL;
    for (uint32_t i = 0; i < acquisition->set->limits.n; i++)
        if (acquisition_lacks_update(acquisition, i))
            return acquisition->set->limits.items[i].key;
    return NULL;
}

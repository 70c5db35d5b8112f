/* SPDX-License-Identifier: MIT */
/* What a request is nested in: an acquisition that it names, or what a process holds. */
#include "api/acquire.h"
#include "api/set_object.h"

#include "api/pool.h"
#include "os/os.h"
#include "set/fairness.h"
#include "shm/participant.h"
#include <errno.h>

/* Processes that are looked at, from the one that the request names to its oldest ancestor. */
enum { ANCESTRY_MAX = 128 };

/* Returns whether a set and that of an acquisition are one, of which a reload may have made another
 * definition meanwhile. */
static bool acquire_within_is_in(const weir_set *set, const weir_acquisition *within)
{
    const weir_set *newest = set_newest(set_definition(within->set));

    return set->number == newest->number || set_ancestor(newest, set->id) ||
           set_ancestor(set, newest->id);
}

/* Returns the set of a pool that an acquisition is of, or NULL. It may have been one of the pool
 * when that was granted. One that was removed since is none: it would be asked again and again. */
static weir_set *acquire_within_find_set(const weir_pool *pool, const weir_acquisition *within)
{
    for (const struct instance_pool *at = pool_definition(pool); at; at = at->before)
        for (uint32_t i = 0; i < at->sets_n; i++) {
            weir_set *set = pool_set(at, i);

            if (acquire_within_is_in(set, within) && !set_is_removed(set))
                return set;
        }
    return NULL;
}

void acquire_within_pick(struct acquire_op *op, weir_pool *pool)
{
    const weir_acquisition *within = request_within(op->request);
    weir_set *set = within ? acquire_within_find_set(pool, acquisition_granted(within)) : NULL;

    op->set = set ? set : pool_only_set(pool); /* that it is another set is seen later */
}

/* Finds the record that the request is nested in. An acquisition of nothing has none: then it is
 * what that one is nested in. Returns 0, -EINVAL or -EUCLEAN. */
static int acquire_within_acquisition(struct acquire_op *op)
{
    /* That it is nested in another one itself may have to be written into its record. */
    weir_acquisition *within = acquisition_granted(request_within(op->request));
    const struct set_ops *ops = op->set->ops;

    if (within->set->w != op->set->w || !acquire_within_is_in(op->set, within))
        return -EINVAL;
    if (acquisition_state(within) != RECORD_HELD)
        return set_is_broken(op->set) ? -EUCLEAN : -EINVAL;
    op->within = within->record ? within->record : within->within;
    if (op->within && ops->is_of_subject && !ops->is_of_subject(op, op->within))
        return -EINVAL;
    acquisition_publish_within(within);
    return 0;
}

/* ---- what a process holds ---- */

/* Fills `ret` with a process and its ancestors, as far as the kernel tells. Returns how many. */
static uint32_t acquire_within_ancestry(uint32_t process, uint32_t ret[ANCESTRY_MAX])
{
    uint32_t n = 0;

    while (process && n < ANCESTRY_MAX) {
        ret[n++] = process;
        if (os_process_parent(process, &process) < 0)
            break;
    }
    return n;
}

/* Returns whether an acquisition holds a resource: nothing waits for the release of one that does
 * not. */
static bool acquire_within_holds_resource(const weir_set *set, uint32_t record)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    fairness_amounts(set, record, amounts);
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (set->limits.items[i].type == WEIR_LIMIT_RESOURCE && amounts[i])
            return true;
    return false;
}

/* Returns how far the owner of a record is away in an ancestry; `n`: it is not part of it, or the
 * record cannot be what the request is nested in. */
static uint32_t acquire_within_distance(const struct acquire_op *op, uint32_t record,
                                        const uint32_t *ancestry, uint32_t n)
{
    const weir_set *set = op->set;
    uint32_t owner, i = 0;

    if (record_state(set_record_word(set, record)) != RECORD_HELD ||
        !acquire_within_holds_resource(set, record))
        return n;
    owner = participant_owner_pid(set->participant, record);
    while (i < n && ancestry[i] != owner)
        i++;
    if (i < n && set->ops->is_of_subject && !set->ops->is_of_subject(op, record))
        return n;
    return i;
}

/* Returns whether a held record is nested in another one, directly or not. */
static bool acquire_within_is_inside(const weir_set *set, uint32_t record, uint32_t outer)
{
    for (int level = 0; record && level < ANCESTRY_MAX; level++) {
        record = record_held_within(set_record(set, record), record);
        if (record == outer)
            return true;
    }
    return false;
}

/* Returns whether a held record was granted after another one of the same process. Instants may be
 * those of the last tick: what is nested in the other one is later, whatever they say. */
static bool acquire_within_is_later(const weir_set *set, uint32_t record, uint32_t other)
{
    if (acquire_within_is_inside(set, record, other))
        return true;
    return !acquire_within_is_inside(set, other, record) &&
           grant_time(record_load(&set_record(set, record)->granted_ns)) >=
               grant_time(record_load(&set_record(set, other)->granted_ns));
}

/* Finds the last grant of the nearest process that holds a resource of the set and subject. */
static void acquire_within_process(struct acquire_op *op)
{
    const weir_set *set = op->set;
    uint32_t ancestry[ANCESTRY_MAX], record = 0;
    uint32_t n = acquire_within_ancestry(op->request->within_process, ancestry), nearest = n;

    while ((record = region_next_record(set->region, record)) != 0) {
        uint32_t distance = acquire_within_distance(op, record, ancestry, n);

        if (distance > nearest || distance == n)
            continue;
        if (distance == nearest && !acquire_within_is_later(set, record, op->within))
            continue;
        op->within = record;
        nearest = distance;
    }
}

int acquire_within_find(struct acquire_op *op)
{
    if (request_within(op->request))
        return acquire_within_acquisition(op);
    if (op->request->within_process && set_is_shared(op->set))
        acquire_within_process(op);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Remote sets with another definition. The engine has one state, one wait queue and one session of
 * this process for all definitions of a set, so a successor goes on with its predecessor's handle:
 * what is held and waits stays where it is, with the record and the set by which it was asked for.
 */
#include "remote/remote_lease.h"

#include "set/instance_base.h"
#include <string.h>

const char *remote_obstacle(const weir_set *set, const struct set_plan *plan)
{
    if (strcmp(remote_engine_name(set), plan->engine) != 0)
        return "its `backend` would be another one: rename the set";
    if (!remote_subjects_max(set) != !plan->keyed.max_keys)
        return "it would have other states, by `subjects`: rename the set";
    return set->limits.n != plan->limits_n
               ? "there would be another number of limits: rename the set"
               : NULL;
}

void remote_take_over(weir_set *set)
{
    struct remote_set *remote = remote_of(set), *before = remote_of(set->origin->predecessor);
    void *next = remote->handle;

    if (!next) /* it has no limits */
        return;
    remote->before = before;
    remote->handle = before->handle;
    atomic_store_explicit(&remote->nodes,
                          atomic_load_explicit(&before->nodes, memory_order_seq_cst),
                          memory_order_seq_cst);
    remote->engine->backend->set_redefine(remote->handle, next);
    remote_leases_close(before);
}

struct remote_set *remote_asked(struct remote_set *remote, uint32_t record)
{
    uint32_t id;

    if (!region_has_record(remote->set.region, record))
        return remote;
    id = record_set_number(set_record(&remote->set, record));
    for (struct remote_set *asked = remote; asked; asked = asked->before)
        if (asked->set.id == id)
            return asked;
    return remote;
}

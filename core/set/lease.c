/* SPDX-License-Identifier: MIT */
/* Leases: see lease.h. */
#include "set/lease.h"

#include "api/instance.h"
#include "peer/participant.h"

static _Atomic uint64_t *leased(struct counters *counters)
{
    return &counters->limits[0].leased;
}

bool lease_is_sound(const weir_set *set, uint64_t left)
{
    if (MUTANT(531))
        return true;
    return !member_is_broken(set->member) && left < set->limits.items->lease;
}

/* The rest of what was taken at `at_ns`. */
static void keep(struct actor *actor, const weir_set *set, uint64_t amount, uint64_t at_ns)
{
    struct part *part = &actor->parts[set->number];

    atomic_store_explicit(leased(part->counters), amount, memory_order_relaxed);
    part->leases = true;
    part->leased_ns = at_ns;
}

int lease_fill(struct actor *actor, weir_set *set, uint64_t amount, struct verdict *ret)
{
    struct counters *counters = actor_counters(actor, set->number);
    uint64_t left = atomic_load_explicit(leased(counters), memory_order_relaxed);
    uint64_t lease = set->limits.items->lease, needed;
    int r;

    if (set->member && left >= lease) { /* nobody would have written that */
        member_break(set->member);
        left = 0;
    } else if (left >= amount) {
        left = 0; /* the set is broken, as it will find */
    }
    needed = amount - (MUTANT(524) ? 0 : left);
    r = set_lease(actor, set, needed, needed < lease ? lease : 0, ret);
    if (r < 0)
        return r;
    count(&counters->limits[0].granted, amount - needed);
    keep(actor, set, ret->leased + MUTANT(525), ret->now_ns);
    return 0;
}

void lease_begin(const weir_set *set, struct counters *counters)
{
    if (set->limits.has_lease && !MUTANT(529))
        atomic_store_explicit(leased(counters), 0, memory_order_relaxed);
}

/* It is no lease any more before it is the set's again: who dies in between loses it. */
static void give_back(struct actor *actor, weir_set *set, struct part *part)
{
    const uint64_t unused = 0;
    uint64_t left = atomic_load_explicit(leased(part->counters), memory_order_relaxed);
    const struct settlement settlement = {
        .amounts = &left, .used = &unused, .unused = true, .granted_ns = part->leased_ns};

    if (!left || (set->member && !lease_is_sound(set, left)))
        return;
    if (!MUTANT(522))
        atomic_store_explicit(leased(part->counters), 0, memory_order_relaxed);
    set_give_back(actor, set, &settlement);
}

void lease_give_back(struct actor *actor)
{
    for (uint32_t i = 0; i < actor->parts_n; i++) {
        struct part *part = &actor->parts[i];

        if (part->leases)
            give_back(actor, instance_set(actor->w, i), part);
        part->leases = false;
    }
}

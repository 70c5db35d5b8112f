/* SPDX-License-Identifier: MIT */
/* Live sets: those that are idle, in a stack, which is but a hint where to look first. */
#include "keyed/key_set_internal.h"

#include "base/sched_point.h"

/* Its place in the list of those. */
struct link {
    _Atomic uint32_t *next, *listed;
};

static struct link link_of(const struct keyed *keyed, uint32_t number)
{
    struct segment_live *shared;
    struct live *live;

    if (keyed->segment) {
        shared = segment_live(keyed->segment, number);
        return (struct link){&shared->next, &shared->listed};
    }
    live = *table_at(&keyed->lives, number);
    return (struct link){&live->next, &live->listed};
}

void live_push_idle(struct keyed *keyed, uint32_t number)
{
    struct link link = link_of(keyed, number);
    uint64_t top = atomic_load(&keyed->common->idle), next;

    if (atomic_exchange(link.listed, 1))
        return;
    STEP();
    do {
        atomic_store(link.next, (uint32_t)top);
        next = ((top >> 32) + 1) << 32 | (number + 1);
    } while (!atomic_compare_exchange_weak(&keyed->common->idle, &top, next));
    STEP();
}

/* Whoever pops one looks afterwards whether it is idle; and whoever ends a loan looks then whether
 * it is listed: so that it is lent or listed. */
bool live_pop_idle(struct keyed *keyed, uint32_t *ret)
{
    uint64_t top = atomic_load(&keyed->common->idle), next;
    uint32_t number;

    do {
        number = (uint32_t)top - 1;
        if (number >= lives_n(keyed))
            return false;
        next = ((top >> 32) + 1) << 32 | atomic_load(link_of(keyed, number).next);
        STEP();
    } while (!atomic_compare_exchange_weak(&keyed->common->idle, &top, next));
    STEP();
    atomic_store(link_of(keyed, number).listed, 0);
    *ret = number;
    return true;
}

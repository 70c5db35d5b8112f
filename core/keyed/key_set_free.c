/* SPDX-License-Identifier: MIT */
/* Live sets: those that are idle, in a stack, which is but a hint where to look first. */
#include "keyed/key_set_internal.h"

#include "base/sched_point.h"

/* Its place in the list of those. */
struct unbound_link {
    _Atomic uint32_t *unbound_next, *unbound_listed;
};

static struct unbound_link key_set_unbound_link(const struct keyed *keyed, uint32_t number)
{
    struct segment_key_set *shared;
    struct key_set *key_set;

    if (keyed->segment) {
        shared = segment_key_set(keyed->segment, number);
        return (struct unbound_link){&shared->unbound_next, &shared->unbound_listed};
    }
    key_set = *stable_array_at(&keyed->key_sets, number);
    return (struct unbound_link){&key_set->unbound_next, &key_set->unbound_listed};
}

void key_set_push_unbound(struct keyed *keyed, uint32_t number)
{
    struct unbound_link link = key_set_unbound_link(keyed, number);
    uint64_t top = atomic_load(&keyed->shared_state->unbound_list), next;

    if (atomic_exchange(link.unbound_listed, 1))
        return;
    SCHED_POINT();
    do {
        atomic_store(link.unbound_next, (uint32_t)top);
        next = ((top >> 32) + 1) << 32 | (number + 1);
    } while (!atomic_compare_exchange_weak(&keyed->shared_state->unbound_list, &top, next));
    SCHED_POINT();
}

/* Whoever pops one looks afterwards whether it is idle; and whoever ends a loan looks then whether
 * it is listed: so that it is lent or listed. */
bool key_set_pop_unbound(struct keyed *keyed, uint32_t *ret)
{
    uint64_t top = atomic_load(&keyed->shared_state->unbound_list), next;
    uint32_t number;

    do {
        number = (uint32_t)top - 1;
        if (number >= key_sets_n(keyed))
            return false;
        next =
            ((top >> 32) + 1) << 32 | atomic_load(key_set_unbound_link(keyed, number).unbound_next);
        SCHED_POINT();
    } while (!atomic_compare_exchange_weak(&keyed->shared_state->unbound_list, &top, next));
    SCHED_POINT();
    atomic_store(key_set_unbound_link(keyed, number).unbound_listed, 0);
    *ret = number;
    return true;
}

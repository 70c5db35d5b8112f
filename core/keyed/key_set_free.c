/* SPDX-License-Identifier: MIT */
/* Keeps unbound key sets in a stack, which is only a hint where to look first. A Treiber stack
 * (Treiber 1986); a 32-bit tag in the top word guards against ABA. */
#include "keyed/key_set_internal.h"
#include "shm/segment.h"

#include "base/sched_point.h"

/* The links of a key set in the stack. */
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

/*
 * A thread that pops a key set clears `unbound_listed`, then checks whether the key set is unbound.
 * A thread that ends a binding commits first, then pushes the key set unless it is listed. So an
 * unbound key set is listed, or a thread is about to bind it.
 */
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

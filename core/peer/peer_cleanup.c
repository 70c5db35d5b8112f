/* SPDX-License-Identifier: MIT */
/* Burial: see burial.h. */
#include "peer/peer_cleanup.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "peer/participant.h"
#include "peer/thread_recovery.h"
#include "shm/doorbell.h"
#include "shm/peer_id.h"
#include <errno.h>

#define CROWD 32u /* places that may be of the dead for as long as nobody looks */

/*
 * Any number may bury the same process at once, and one who dies meanwhile is buried like any other:
 * whoever comes next does what is left. Its place goes last, for it names the rest.
 */
static bool bury(struct actor *actor, weir_set *set, uint32_t slot, uint64_t life)
{
    const struct segment *segment = set->member->segment;
    uint32_t key = process_key(life, slot);

    for (uint32_t i = 0; i < segment_actors_n(segment); i++) {
        const struct segment_actor *dead = segment_actor(segment, i);
        /* In this order: who claims the actor once it is nobody's begins another life in it. */
        uint64_t generation = atomic_load(&dead->head.generation);
        int r;

        STEP();
        if (atomic_load(&dead->process) != key || MUTANT(320))
            continue;
        r = recovery_run(actor, set->region, segment_actor_unit(segment, i), generation);
        if (r == -ENOMEM || r == -EUCLEAN)
            return false;
        STEP();
    }
    bell_remove_all(segment->directory_fd, segment->encoded, key);
    STEP();
    member_release_places(segment, slot, life);
    return true;
}

/* The next of the dead. Only this is under the lock. */
static bool next_dead(struct member *member, uint32_t *ret_slot, uint64_t *ret_life)
{
    const struct segment *segment = member->segment;
    uint64_t registrations;
    int found;

    if (pthread_mutex_trylock(&member->watch_lock) != 0)
        return false;
    registrations = atomic_load(&segment_header(segment)->registrations);
    watch_sync(&member->watch, segment_process(segment, 0), segment_processes_n(segment),
               registrations);
    found = watch_next(&member->watch, ret_slot, ret_life);
    pthread_mutex_unlock(&member->watch_lock);
    return found > 0;
}

static bool bury_borrowing(weir_set *set, uint32_t slot, uint64_t life)
{
    struct actor *actor = actor_borrow(set);
    bool buried = bury(actor, set, slot, life);

    actor_return(actor);
    return buried;
}

/* Of a broken set the kernel's word is taken, lest it is said again and again, and no more. */
int burial_attend(struct actor *actor, weir_set *set)
{
    uint32_t slot;
    uint64_t life;
    bool buried = true;
    int n = 0;

    for (; buried && next_dead(set->member, &slot, &life); n++) {
        if (set_is_broken(set))
            return 0;
        buried = actor ? bury(actor, set, slot, life) : bury_borrowing(set, slot, life);
    }
    return n;
}

void burial_attend_crowds(weir *w, uint32_t first)
{
    for (uint32_t i = first, n = w->sets_n; i < n; i++) {
        weir_set *set = instance_set(w, i);

        if (set->member && set->member->slot >= CROWD)
            burial_attend(NULL, set);
    }
}

int burial_attend_rarely(struct actor *actor, weir_set *set, uint64_t now_ns)
{
    if (!burial_is_due(set, now_ns))
        return 0;
    atomic_store_explicit(&set->member->watched_ns, now_ns, memory_order_relaxed);
    return burial_attend(actor, set);
}

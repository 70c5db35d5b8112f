/* SPDX-License-Identifier: MIT */
/*
 * A member: an instance's part in a set that processes share. It has a place in the set's segment,
 * which says who it is; there, actors for its threads and runs of records, which name that place;
 * and here, in private memory, what is nobody else's business.
 *
 * If the process dies, all that names its place is given back by whoever notices first
 * (peer_cleanup.h); if it just goes, it gives it back itself.
 */
#ifndef WEIR_CORE_SHM_PARTICIPANT_H
#define WEIR_CORE_SHM_PARTICIPANT_H

#include "base/log.h"
#include "limit/counters.h"
#include "shm/peer_watch.h"
#include "shm/region.h"
#include "shm/segment.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/pool.h>

struct participant {
    const struct log_sink *log;
    struct segment *segment;
    struct region region;
    _Atomic bool broken;          /* something in it was what nobody would have written, */
    _Atomic bool broken_reported; /* and the program knows */
    uint32_t slot;                /* its place among the processes, */
    uint64_t peer_id;             /* the word there, */
    const _Atomic uint64_t *peer_id_at;
    uint32_t peer_key; /* and how others name it */

    /* Under the instance's lock. */
    uint32_t *free_records; /* records of its runs that no actor has */
    uint32_t free_n, free_capacity;
    uint64_t own_threads[SEGMENT_THREADS_MAX / 64]; /* bits: those that are ours */

    /* By run, if it is ours, by place in the run: the record's stand-in (waiter.h), and whether it is
     * kept now. */
    _Atomic(_Atomic uint32_t *) *proxies;
    _Atomic uint32_t proxies_end; /* no run from here on is ours */

    pthread_mutex_t watch_lock; /* over the rest */
    struct peer_watch peer_watch;
    _Atomic uint64_t last_reap_ns; /* when it was last looked at who has died; needs no lock */
};

/*
 * Takes part in the segment of this shape in the directory (NULL: the default), which is made if
 * there is none. Returns 0, or a negative errno and the reason. The caller holds the instance's
 * lock.
 */
int participant_open(const struct log_sink *log, const char *directory,
                     const struct segment_shape *shape, struct participant **ret,
                     struct weir_error *reterr);
/* Gives back everything; nobody is inside a call. NULL is fine. */
void participant_close(struct participant *participant);
/* In a forked child: closes the descriptors, which are copies, and nothing else. */
void participant_close_in_child(struct participant *participant);

/* An actor, with its counters: 0, -ENOSPC or what the system says. Under the instance's lock. */
int participant_claim_thread(struct participant *participant, uint32_t *ret_unit,
                             struct counters **ret_counters);

/* Free records; 0: there is no more. Under the instance's lock. Giving back cannot fail. */
uint32_t participant_get_record(struct participant *participant);
void participant_put_record(struct participant *participant, uint32_t record);

/*
 * The stand-in of a record of ours, which it keeps for ever; or 0: it has none, or is not ours.
 * participant_waiter: only while the record is kept. Numbers may be anything.
 */
uint32_t participant_proxy(const struct participant *participant, uint32_t record);
uint32_t participant_waiter(const struct participant *participant, uint32_t record);
void participant_set_proxy(struct participant *participant, uint32_t record, uint32_t proxy,
                           bool kept);
/* Calls `each` for all records that are kept. */
void participant_each_waiter(const struct participant *participant,
                             void (*each)(void *userdata, uint32_t record, uint32_t kept),
                             void *userdata);

/* Whether a record is of this process. */
bool participant_owns(const struct participant *participant, uint32_t record);
/* The pid of the process whose record it is; 0: nobody's. */
uint32_t participant_owner_pid(const struct participant *participant, uint32_t record);

/*
 * All that names a place of a process goes back, and then the place: one's own, or that of a dead
 * process whose actors were recovered.
 */
void participant_release_slots(const struct segment *segment, uint32_t slot, uint64_t peer_id);

/* Tells another process, or a blocked thread of any, to look at a record of theirs. */
void participant_notify_owner(const struct participant *participant, uint32_t record);

/* Something in the segment is what nobody would have written: it is of no use any more. The second
 * tells the program, once; without locks. */
void participant_mark_broken(struct participant *participant);
void participant_report_broken(struct participant *participant);

static inline bool participant_is_broken(const struct participant *participant)
{
    return atomic_load_explicit(&participant->broken, memory_order_relaxed);
}

/* Whether its place is still its own: nobody thinks that it is dead. */
static inline bool participant_has_slot(const struct participant *participant)
{
    return atomic_load_explicit(participant->peer_id_at, memory_order_relaxed) ==
           participant->peer_id;
}

#endif

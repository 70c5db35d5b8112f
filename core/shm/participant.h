/* SPDX-License-Identifier: MIT */
/*
 * Participants: an instance's share in a set with `backend: process`.
 *
 * A participant has a slot in the set's segment, which identifies its process. Thread contexts and
 * runs of records in the segment name that slot as their owner. State that is private to this
 * process stays in private memory. A process that leaves releases its slot and all that names it.
 * If a process dies, another participant does that for it (peer.h).
 */
#ifndef WEIR_CORE_SHM_PARTICIPANT_H
#define WEIR_CORE_SHM_PARTICIPANT_H

#include "base/compiler.h"
#include "shm/peer_watch.h"
#include "shm/region.h"
#include "shm/set_layout.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct counters;
struct definition_copy;
struct direct_doorbell;
struct doorbell_cache;
struct segment;
struct segment_shape;
struct weir_error;
struct weir_set;

struct participant {
    const struct log_sink *log;
    struct segment *segment;
    struct region region;
    _Atomic bool broken;          /* the segment is damaged; never reset */
    _Atomic bool broken_reported; /* the program has been told so */
    /* It is broken for this process alone, since that cannot follow a change: then its slot stays
     * after a close, and peers clean up once the process has ended. */
    _Atomic bool is_outdated;
    _Atomic bool is_removed; /* from the configuration of this process */
    uint32_t slot;           /* index of its peer slot */
    uint64_t peer_id;        /* value of that slot */
    const _Atomic uint64_t *peer_id_at;
    uint32_t peer_key; /* owner key that names the slot */
    /* The last definition of the set that this process knows; NULL: the first one. */
    _Atomic(struct weir_set *) newest;

    /* The next five: under the instance's lock. */
    struct definition_copy *following; /* room for the definition that is followed */
    uint32_t *free_records;            /* of its runs, in no magazine */
    uint32_t free_n, free_capacity;
    uint64_t own_threads[SEGMENT_THREADS_MAX / 64]; /* bits: thread contexts claimed */

    /* By run, NULL if not its own, and by index in the run: the record's proxy (waiter.h) |
     * PROXY_ACTIVE. */
    _Atomic(_Atomic uint32_t *) *proxies;
    _Atomic uint32_t proxies_end; /* all runs of its own are below */

    pthread_mutex_t watch_lock; /* protects peer_watch */
    struct peer_watch peer_watch;
    uint64_t pruned_at;               /* attaches when `doorbells` was pruned; also under it */
    struct doorbell_cache *doorbells; /* of other processes */
    _Atomic uint64_t last_reap_ns;    /* time of the last peer_reap(); no lock */
};

/* Attaches to the segment of this shape in `directory` (NULL: the default directory), and makes the
 * segment if there is none. Returns 0, or a negative errno and the reason. The caller holds the
 * instance's lock. */
int participant_open(const struct log_sink *log, const char *directory,
                     const struct segment_shape *shape, struct participant **ret,
                     struct weir_error *reterr);
/* Detaches and frees everything. No thread is inside a call. Accepts NULL. */
void participant_close(struct participant *participant);
/* Closes a forked child's copies of the descriptors, and nothing else. */
void participant_close_in_child(struct participant *participant);

/* Claims a thread context of the segment. Returns 0, -ENOSPC, -EUCLEAN or the error of the file
 * system. The caller holds the instance's lock. */
int participant_claim_thread(struct participant *participant, uint32_t *ret);

/*
 * Claims a thread context as above; if there is none, takes one over from a dead process, which is
 * `*ret_is_inherited` then. The caller recovers what the dead thread had begun before it uses the
 * context for anything else, and then calls participant_settle_thread(). If it dies before, the
 * context is recovered as any other of its own.
 */
int participant_claim_spare_thread(struct participant *participant, uint32_t *ret,
                                   bool *ret_is_inherited);
void participant_settle_thread(const struct participant *participant, uint32_t i);

/* Takes a free record, or returns 0 if there is none; puts one back. Putting back cannot fail. The
 * caller holds the instance's lock. */
uint32_t participant_get_record(struct participant *participant);
void participant_put_record(struct participant *participant, uint32_t record);

/* Return the proxy of a record of this participant: participant_proxy() always,
 * participant_waiter() only while the record has a waiter. 0: there is none, or the record belongs
 * to another participant. Any number may be passed as `record`. */
uint32_t participant_proxy(const struct participant *participant, uint32_t record);
uint32_t participant_waiter(const struct participant *participant, uint32_t record);
void participant_set_proxy(struct participant *participant, uint32_t record, uint32_t proxy,
                           bool kept);
/* Calls `each` for every record that has a waiter in this process. */
void participant_each_waiter(const struct participant *participant,
                             void (*each)(void *userdata, uint32_t record, uint32_t waiter),
                             void *userdata);

/* Returns true if the record belongs to this participant. */
bool participant_owns(const struct participant *participant, uint32_t record);
/* Returns the pid of the process that owns the record, or 0 if it has no owner. */
uint32_t participant_owner_pid(const struct participant *participant, uint32_t record);

/* Releases everything that names a peer slot, and then the slot: the own one; or, with `is_dead`,
 * that of a dead process after its threads have been recovered, and those that it was taken over
 * from. */
void participant_release_slots(const struct segment *segment, uint32_t slot, uint64_t peer_id,
                               bool is_dead);

/* Whether participant_next_dead() begins a round of probes of processes that are not watched. */
enum probe_round {
    PROBE_ON,     /* no, but goes on with the one that it has begun */
    PROBE_IF_DUE, /* if no process has for a while */
    PROBE_NOW     /* yes */
};

struct probe_plan {
    enum probe_round round;
    uint32_t head; /* record at the head of the wait queue: a hint, any number */
    bool is_keyed; /* the set has a wait queue for each key */
};

/* Finds the next dead process that has its slot, or was replaced in it, as peer_watch_next(). The
 * caller holds `watch_lock`. */
int participant_next_dead(struct participant *participant, const struct probe_plan *plan,
                          uint32_t *ret_slot, uint64_t *ret_id);

/* Says to other processes that timer `timer` of this one runs, at `now_ns`. */
void participant_beat(const struct participant *participant, uint32_t timer, uint64_t now_ns);
/* Returns whether the timer that a waiter of any process waits with has not run for so long that
 * other threads have to attend to the waiter. A hint. */
bool participant_is_stalled(const struct participant *participant, uint32_t record,
                            uint64_t now_ns);

/* Open and close the doorbell of a wait timer of this participant: doorbell_open and
 * doorbell_close.
 */
int participant_open_doorbell(const struct participant *participant, uint32_t timer);
void participant_close_doorbell(const struct participant *participant, uint32_t timer, int fd);

/* Open and close a direct doorbell of this participant, with a number that it has not had yet. */
int participant_open_direct(const struct participant *participant, uint32_t number,
                            struct direct_doorbell *ret);
int participant_open_read_end(const struct participant *participant,
                              const struct direct_doorbell *doorbell);
void participant_close_direct(const struct participant *participant,
                              const struct direct_doorbell *doorbell);
/* Removes all doorbells of a dead process, as doorbell_remove(). */
void participant_remove_doorbells(const struct segment *segment, uint32_t slot, uint64_t peer_id);

/* Notifies the owner of a record in another process, or a blocked thread of any process. */
void participant_notify_owner(const struct participant *participant, uint32_t record);

/* Marks the set broken, because its segment holds what no operation writes; reports that to the log
 * callback, once. The caller of the second holds no locks. */
void participant_mark_broken(struct participant *participant);
void participant_report_broken(struct participant *participant);

/* nameless_check; and whether the segment had no name when that last looked. */
bool participant_check_name(struct participant *participant, bool now);
bool participant_is_nameless(const struct participant *participant);

/* Returns the amounts that a record of the segment has room for. */
uint32_t participant_amounts_n(const struct participant *participant);

/* Returns true if the set is broken. Relaxed: each reader also checks the content in its own
 * copy. */
static inline bool participant_is_broken(const struct participant *participant)
{
    return atomic_load_explicit(&participant->broken, memory_order_relaxed);
}

/* Returns true if no peer has released the slot in the belief that this process is dead. Relaxed:
 * the answer may be outdated in any case, and no other data depends on it. */
WEIR_ALWAYS_INLINE bool participant_has_slot(const struct participant *participant)
{
    return atomic_load_explicit(participant->peer_id_at, memory_order_relaxed) ==
           participant->peer_id;
}

#endif

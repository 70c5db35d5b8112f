/* SPDX-License-Identifier: MIT */
/*
 * Identity of processes, and whether they are alive. A process attached to a segment has a peer
 * slot there: one word with its peer id, which is unique although the kernel reuses pids:
 *
 *     generation:22 | start:20 | pid:22
 *
 * `start` is the low bits of the process's start time in clock ticks, which exec does not change.
 * `generation` counts the claims of the slot. Pid 0: the slot is free and keeps its generation. One
 * compare-and-swap claims a slot, one frees it, so no intermediate state exists.
 *
 * What a process owns refers to it by its peer key, generation:22 | slot:10, which is never 0.
 *
 * If all slots are in use, a process takes that of a dead one over. What the dead process owned
 * then names an earlier generation of the slot. The slot's `predecessor` says that it is to be
 * released, and any process does that.
 */
#ifndef WEIR_CORE_SHM_PEER_ID_H
#define WEIR_CORE_SHM_PEER_ID_H

#include "base/invariant.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PEERS_MAX 1024u

#define PEER_PID_BITS        22
#define PEER_START_BITS      20
#define PEER_GENERATION_BITS 22
#define PEER_SLOT_BITS       10

#define PEER_PID_MASK        ((UINT64_C(1) << PEER_PID_BITS) - 1)
#define PEER_START_MASK      ((UINT64_C(1) << PEER_START_BITS) - 1)
#define PEER_GENERATION_MASK ((UINT64_C(1) << PEER_GENERATION_BITS) - 1)

#define PEER_BEATS       7u
#define PEER_BEAT_SHIFT  20 /* log2 of the unit of a beat, 1.05 ms */
#define PEER_STALL_BEATS 36 /* a timer that has not run for longer stands still */

/* Peer slot, on a cache line of its own. */
struct peer_slot {
    _Alignas(64) _Atomic uint64_t id;
    _Atomic uint64_t predecessor; /* peer id: see peer_slot_predecessor(); 0: none */
    /* When the wait timers of the process ran last; timer n has beat n % PEER_BEATS. */
    _Atomic uint32_t beats[PEER_BEATS];
    _Atomic uint32_t direct_doorbells;  /* numbers of direct doorbells, up to this one */
    _Atomic uint64_t doorbells_changed; /* how often one was opened or closed */
    _Atomic uint64_t doorbells;         /* numbers of wait timers that may have one: those below */
};

_Static_assert(sizeof(struct peer_slot) == 64, "others count on this stride");
_Static_assert(PEER_GENERATION_BITS + PEER_START_BITS + PEER_PID_BITS == 64, "one word");
_Static_assert(PEERS_MAX == 1u << PEER_SLOT_BITS, "a key names every slot");
_Static_assert(PEER_GENERATION_BITS + PEER_SLOT_BITS == 32, "half a word");

static inline uint64_t peer_id_make(uint32_t generation, uint64_t start, uint32_t pid)
{
    WEIR_INVARIANT(pid <= PEER_PID_MASK); /* the kernel's PID_MAX_LIMIT */
    return (generation & PEER_GENERATION_MASK) << (PEER_START_BITS + PEER_PID_BITS) |
           (start & PEER_START_MASK) << PEER_PID_BITS | (pid & PEER_PID_MASK);
}

static inline uint32_t peer_id_pid(uint64_t id) /* 0: a free slot */
{
    return (uint32_t)(id & PEER_PID_MASK);
}

static inline uint32_t peer_id_start(uint64_t id)
{
    return (uint32_t)(id >> PEER_PID_BITS & PEER_START_MASK);
}

static inline uint32_t peer_id_generation(uint64_t id)
{
    return (uint32_t)(id >> (PEER_START_BITS + PEER_PID_BITS));
}

/* Returns whether two peer ids are of one process, in any slots and generations. */
static inline bool peer_id_same_process(uint64_t id, uint64_t other)
{
    return peer_id_pid(id) == peer_id_pid(other) && peer_id_start(id) == peer_id_start(other);
}

/* Returns the peer key of peer id `id` in `slot`. */
static inline uint32_t peer_key_make(uint64_t id, uint32_t slot)
{
    WEIR_INVARIANT(slot < PEERS_MAX);
    return peer_id_generation(id) << PEER_SLOT_BITS | slot;
}

/* Returns whether a key is that of a generation of a slot, or of an earlier one of the same slot. A
 * generation is earlier than those of the half of all numbers that follow it. */
static inline bool peer_key_is_until(uint32_t key, uint32_t last)
{
    uint32_t ago = (last - key) >> PEER_SLOT_BITS;

    return key && (last - key) << PEER_GENERATION_BITS == 0 &&
           ago <= (uint32_t)PEER_GENERATION_MASK / 2;
}

/*
 * Determines the peer id, of generation 0, of the calling process. A forked child has another one.
 * Returns 0; -EXDEV (/proc is of another pid namespace); -EIO (/proc is malformed); or the negative
 * errno of reading it (-ENOENT: not mounted; -EMFILE …).
 */
int peer_id_self(uint64_t *ret_self);

/* Claims the slot for the process `self`, which is visible to others from then on. Returns false if
 * the slot is in use. Any thread of any process. */
bool peer_slot_claim(struct peer_slot *slot, uint64_t self, uint64_t *ret_id);

/* Frees the slot of the calling or of a dead process. Returns false if it has another peer id. */
bool peer_slot_free(struct peer_slot *slot, uint64_t id);

/*
 * Takes the slot over from the dead process `dead`, as a claim by `self`. Returns false if the slot
 * has another peer id by now. Any thread of any process, any number at once.
 */
bool peer_slot_take_over(struct peer_slot *slot, uint64_t dead, uint64_t self, uint64_t *ret_id);

/* Returns the peer id of the dead process that the slot was taken over from last, if no process has
 * released yet what it owned; 0: there is none. */
uint64_t peer_slot_predecessor(const struct peer_slot *slot);

/* Notes that all that `dead` and the slot's processes before it owned was released. */
void peer_slot_forget_predecessor(struct peer_slot *slot, uint64_t dead);

/* Returns the peer id of a peer key, or 0: the slot does not exist, is free or was claimed anew. */
uint64_t peer_slot_find(const struct peer_slot *slots, uint32_t n, uint32_t key);

/*
 * Probes a process. Returns
 *   1  alive, or nothing indicates its death;
 *   0  dead: no such pid; a process with another start time; or a zombie, all threads of which have
 *      ended and which the parent has not reaped yet;
 *   a negative errno: the pid exists, but its start time could not be read now (-EMFILE, -ENFILE,
 *   -ENOMEM …).
 * A stopped process is alive, and so is one of which only the first thread has ended. Pid 0 is
 * dead.
 */
int peer_id_probe(uint64_t id);

/* Returns whether the process is known to be dead; false in doubt. */
bool peer_id_is_dead(uint64_t id);

#endif

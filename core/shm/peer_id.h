/* SPDX-License-Identifier: MIT */
/*
 * Who a process is, and whether it lives. A process that shares a segment has a slot there: one
 * word, its life, which names it for ever, because a pid alone comes back:
 *
 *     generation:22 | start:20 | pid:22
 *
 * The pid is the kernel's number, the start the low bits of its start time in clock ticks (which
 * exec leaves alone), the generation counts the lives of the slot. Pid 0: the slot is free, and
 * keeps its generation. One compare-and-swap claims a slot, one frees it; nothing is ever half
 * done.
 *
 * What a process owns names it by its key, generation:22 | slot:10, which is never 0.
 */
#ifndef WEIR_CORE_SHM_PEER_ID_H
#define WEIR_CORE_SHM_PEER_ID_H

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

/* A slot, on a cache line of its own. */
struct peer_slot {
    _Alignas(64) _Atomic uint64_t id;
};

_Static_assert(sizeof(struct peer_slot) == 64, "others count on this stride");
_Static_assert(PEER_GENERATION_BITS + PEER_START_BITS + PEER_PID_BITS == 64, "one word");
_Static_assert(PEERS_MAX == 1u << PEER_SLOT_BITS, "a key names every slot");
_Static_assert(PEER_GENERATION_BITS + PEER_SLOT_BITS == 32, "half a word");

static inline uint64_t peer_id_make(uint32_t generation, uint64_t start, uint32_t pid)
{
    return (generation & PEER_GENERATION_MASK) << (PEER_START_BITS + PEER_PID_BITS) |
           (start & PEER_START_MASK) << PEER_PID_BITS | (pid & PEER_PID_MASK);
}

static inline uint32_t peer_id_pid(uint64_t id) /* 0: nobody */
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

/* Whether both are of one process, whichever of its slots they are in. */
static inline bool peer_id_same_process(uint64_t id, uint64_t other)
{
    return peer_id_pid(id) == peer_id_pid(other) && peer_id_start(id) == peer_id_start(other);
}

/* The key of whoever has this life in this slot. */
static inline uint32_t peer_key_make(uint64_t id, uint32_t slot)
{
    return peer_id_generation(id) << PEER_SLOT_BITS | slot;
}

static inline uint32_t peer_key_slot(uint32_t key)
{
    return key & (PEERS_MAX - 1);
}

static inline uint32_t peer_key_generation(uint32_t key)
{
    return key >> PEER_SLOT_BITS;
}

/*
 * Who the calling process is: a life of generation 0. A forked child is somebody else. Returns 0;
 * -EXDEV if /proc is that of another pid namespace, in which numbers mean others; -EIO if it says
 * what nobody understands; or the negative errno of reading it (-ENOENT: not mounted; -EMFILE …).
 */
int peer_id_self(uint64_t *ret_self);

/*
 * Registers the process `self` in the first free one of `n` slots: for others it is there from this
 * moment on. Returns 0, the slot and its life; or -ENOSPC: each slot was taken when it was looked
 * at. Any thread of any process may do so at any time.
 */
int peer_slot_claim(struct peer_slot *slots, uint32_t n, uint64_t self, uint32_t *ret_slot,
                    uint64_t *ret_id);

/* Frees a slot, one's own or that of a dead process. False: it is not of this life any more. */
bool peer_slot_free(struct peer_slot *slot, uint64_t id);

/* The life that a key names, or 0: its slot is not there, is free, or is somebody else's now. */
uint64_t peer_slot_find(const struct peer_slot *slots, uint32_t n, uint32_t key);

/*
 * Whether a process lives, as far as can be seen now. Returns 1: it does, or nothing says that it
 * does not; 0: it is dead: there is no such pid, or it is of a process with another start, or all
 * threads have ended and only the parent has not asked yet (a zombie); or a negative errno: the pid
 * is there, and whose it is could not be read now (-EMFILE, -ENFILE, -ENOMEM …).
 * Stopped is alive, and so is a process whose first thread alone has ended. Pid 0 is dead.
 */
int peer_id_probe(uint64_t id);

/* Whether that is known to be dead: in doubt it is not. */
bool peer_id_is_dead(uint64_t id);

#endif

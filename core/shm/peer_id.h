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

#define PROCESSES_MAX 1024u

#define PROCESS_PID_BITS        22
#define PROCESS_START_BITS      20
#define PROCESS_GENERATION_BITS 22
#define PROCESS_SLOT_BITS       10

#define PROCESS_PID_MASK        ((UINT64_C(1) << PROCESS_PID_BITS) - 1)
#define PROCESS_START_MASK      ((UINT64_C(1) << PROCESS_START_BITS) - 1)
#define PROCESS_GENERATION_MASK ((UINT64_C(1) << PROCESS_GENERATION_BITS) - 1)

/* A slot, on a cache line of its own. */
struct segment_process {
    _Alignas(64) _Atomic uint64_t life;
};

_Static_assert(sizeof(struct segment_process) == 64, "others count on this stride");
_Static_assert(PROCESS_GENERATION_BITS + PROCESS_START_BITS + PROCESS_PID_BITS == 64, "one word");
_Static_assert(PROCESSES_MAX == 1u << PROCESS_SLOT_BITS, "a key names every slot");
_Static_assert(PROCESS_GENERATION_BITS + PROCESS_SLOT_BITS == 32, "half a word");

static inline uint64_t process_life(uint32_t generation, uint64_t start, uint32_t pid)
{
    return (generation & PROCESS_GENERATION_MASK) << (PROCESS_START_BITS + PROCESS_PID_BITS) |
           (start & PROCESS_START_MASK) << PROCESS_PID_BITS | (pid & PROCESS_PID_MASK);
}

static inline uint32_t process_pid(uint64_t life) /* 0: nobody */
{
    return (uint32_t)(life & PROCESS_PID_MASK);
}

static inline uint32_t process_start(uint64_t life)
{
    return (uint32_t)(life >> PROCESS_PID_BITS & PROCESS_START_MASK);
}

static inline uint32_t process_generation(uint64_t life)
{
    return (uint32_t)(life >> (PROCESS_START_BITS + PROCESS_PID_BITS));
}

/* Whether both are of one process, whichever of its slots they are in. */
static inline bool process_is_same(uint64_t life, uint64_t other)
{
    return process_pid(life) == process_pid(other) && process_start(life) == process_start(other);
}

/* The key of whoever has this life in this slot. */
static inline uint32_t process_key(uint64_t life, uint32_t slot)
{
    return process_generation(life) << PROCESS_SLOT_BITS | slot;
}

static inline uint32_t process_key_slot(uint32_t key)
{
    return key & (PROCESSES_MAX - 1);
}

static inline uint32_t process_key_generation(uint32_t key)
{
    return key >> PROCESS_SLOT_BITS;
}

/*
 * Who the calling process is: a life of generation 0. A forked child is somebody else. Returns 0;
 * -EXDEV if /proc is that of another pid namespace, in which numbers mean others; -EIO if it says
 * what nobody understands; or the negative errno of reading it (-ENOENT: not mounted; -EMFILE …).
 */
int process_self(uint64_t *ret_self);

/*
 * Registers the process `self` in the first free one of `n` slots: for others it is there from this
 * moment on. Returns 0, the slot and its life; or -ENOSPC: each slot was taken when it was looked
 * at. Any thread of any process may do so at any time.
 */
int process_claim(struct segment_process *processes, uint32_t n, uint64_t self, uint32_t *ret_slot,
                  uint64_t *ret_life);

/* Frees a slot, one's own or that of a dead process. False: it is not of this life any more. */
bool process_release(struct segment_process *process, uint64_t life);

/* The life that a key names, or 0: its slot is not there, is free, or is somebody else's now. */
uint64_t process_find(const struct segment_process *processes, uint32_t n, uint32_t key);

/*
 * Whether a process lives, as far as can be seen now. Returns 1: it does, or nothing says that it
 * does not; 0: it is dead: there is no such pid, or it is of a process with another start, or all
 * threads have ended and only the parent has not asked yet (a zombie); or a negative errno: the pid
 * is there, and whose it is could not be read now (-EMFILE, -ENFILE, -ENOMEM …).
 * Stopped is alive, and so is a process whose first thread alone has ended. Pid 0 is dead.
 */
int process_look(uint64_t life);

/* Whether that is known to be dead: in doubt it is not. */
bool process_is_dead(uint64_t life);

#endif

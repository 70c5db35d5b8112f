/* SPDX-License-Identifier: MIT */
/* Peer ids in shared slots, and the state of processes as read from /proc. */
#include "shm/peer_id.h"

#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Fields of /proc/PID/stat that are used. */
struct proc_stat {
    uint64_t pid, threads, start;
    char state;
};

#define SKIP_4_FIELDS " %*s %*s %*s %*s"

/*
 * Reads a line such as `1234 (name) S 1 …`, the fields of which proc(5) numbers from 1: the state
 * is field 3, the number of threads 20, the start 22. The name may contain anything, also
 * parentheses and blanks. No parenthesis follows it, so it ends at the last one.
 */
static int proc_stat_read(const char *path, struct proc_stat *ret)
{
    char text[1024]; /* the first 22 fields need half of it */
    const char *name_end;
    int n = os_file_read_part(path, 0, text, sizeof(text) - 1);

    if (n < 0)
        return n;
    text[n] = '\0';
    name_end = strrchr(text, ')');
    if (!name_end || sscanf(text, "%" SCNu64, &ret->pid) != 1)
        return -EIO;
    n = sscanf(name_end,
               ") %c" SKIP_4_FIELDS SKIP_4_FIELDS SKIP_4_FIELDS SKIP_4_FIELDS " %" SCNu64
               " %*s %" SCNu64,
               &ret->state, &ret->threads, &ret->start);
    return n == 3 ? 0 : -EIO;
}

int peer_id_self(uint64_t *ret_self)
{
    struct proc_stat proc;
    uint32_t pid = os_process_id();
    int r = proc_stat_read("/proc/self/stat", &proc);

    if (r < 0)
        return r;
    if (proc.pid != pid)
        return -EXDEV;
    *ret_self = peer_id_make(0, proc.start, pid);
    return 0;
}

/* Puts the process `self` in place of the slot's peer id, in the next generation. That counts
 * claims, but is never 0. */
static bool peer_slot_put_next(struct peer_slot *slot, uint64_t before, uint64_t self,
                               uint64_t *ret_id)
{
    uint32_t generation = (peer_id_generation(before) + 1) & PEER_GENERATION_MASK;
    uint64_t id = peer_id_make(generation ? generation : 1, peer_id_start(self), peer_id_pid(self));

    if (!shm_cas_seq_cst(&slot->id, before, id))
        return false;
    *ret_id = id;
    return true;
}

bool peer_slot_claim(struct peer_slot *slot, uint64_t self, uint64_t *ret_id)
{
    uint64_t before = atomic_load_explicit(&slot->id, memory_order_seq_cst);

    return !peer_id_pid(before) && peer_slot_put_next(slot, before, self, ret_id);
}

/*
 * The predecessor first, so that a process that dies between the two loses nothing. An older
 * predecessor is replaced: what names an earlier generation is released with this one. The CAS of a
 * process that comes late may leave a predecessor that was released before; to release it again
 * does nothing.
 */
bool peer_slot_take_over(struct peer_slot *slot, uint64_t dead, uint64_t self, uint64_t *ret_id)
{
    uint64_t before;

    WEIR_INVARIANT(peer_id_pid(dead));
    do {
        before = atomic_load_explicit(&slot->predecessor, memory_order_seq_cst);
        if (atomic_load_explicit(&slot->id, memory_order_seq_cst) != dead)
            return false;
        SCHED_POINT();
    } while (before != dead && !shm_cas_seq_cst(&slot->predecessor, before, dead));
    SCHED_POINT();
    return peer_slot_put_next(slot, dead, self, ret_id);
}

/* A predecessor of the slot's own generation was not taken over from yet, or has been cleaned up
 * after as a dead process in its slot. A later one is none. */
uint64_t peer_slot_predecessor(const struct peer_slot *slot)
{
    uint64_t before = atomic_load_explicit(&slot->predecessor, memory_order_seq_cst);
    uint64_t id = before ? atomic_load_explicit(&slot->id, memory_order_seq_cst) : 0;
    uint32_t key = peer_key_make(before, 0);

    return before && key != peer_key_make(id, 0) && peer_key_is_until(key, peer_key_make(id, 0))
               ? before
               : 0;
}

void peer_slot_forget_predecessor(struct peer_slot *slot, uint64_t dead)
{
    uint64_t before = atomic_load_explicit(&slot->predecessor, memory_order_seq_cst);

    if (before && peer_key_is_until(peer_key_make(before, 0), peer_key_make(dead, 0)))
        shm_cas_seq_cst(&slot->predecessor, before, 0);
}

bool peer_slot_free(struct peer_slot *slot, uint64_t id)
{
    return shm_cas_seq_cst(&slot->id, id, peer_id_make(peer_id_generation(id), 0, 0));
}

uint64_t peer_slot_find(const struct peer_slot *slots, uint32_t n, uint32_t key)
{
    uint32_t slot = key & (PEERS_MAX - 1);
    uint64_t id = slot < n ? atomic_load_explicit(&slots[slot].id, memory_order_seq_cst) : 0;

    return peer_id_pid(id) && peer_key_make(id, slot) == key ? id : 0;
}

/*
 * A zombie is a dead process only if its thread count is 1. Two other tasks are listed as zombies:
 * a first thread that ended before others, and briefly a thread that loses its id to another
 * thread's exec. The latter has left the process, and its count is 0.
 */
static bool proc_stat_is_dead(const struct proc_stat *proc, uint64_t id)
{
    return (proc->start & PEER_START_MASK) != peer_id_start(id) ||
           (proc->state == 'Z' && proc->threads == 1);
}

int peer_id_probe(uint64_t id)
{
    struct proc_stat proc;
    char path[32];
    int r;

    if (!peer_id_pid(id))
        return 0;
    snprintf(path, sizeof(path), "/proc/%u/stat", peer_id_pid(id));
    r = proc_stat_read(path, &proc);
    if (r == 0)
        return !proc_stat_is_dead(&proc, id);
    if (os_process_exists(peer_id_pid(id)) == -ESRCH)
        return 0;
    /* A hidden or forbidden process proves nothing. Other errors, such as -ENOMEM, may pass. */
    return r == -ENOENT || r == -ESRCH || r == -EACCES || r == -EPERM ? 1 : r;
}

bool peer_id_is_dead(uint64_t id)
{
    return peer_id_probe(id) == 0;
}

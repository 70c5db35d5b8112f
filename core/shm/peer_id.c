/* SPDX-License-Identifier: MIT */
/* Peer ids in shared slots, and the state of processes as read from /proc. */
#include "shm/peer_id.h"

#include "base/invariant.h"
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

static uint32_t peer_slot_next_generation(uint64_t id)
{
    uint32_t next = (peer_id_generation(id) + 1) & PEER_GENERATION_MASK;

    return next ? next : 1;
}

int peer_slot_claim(struct peer_slot *slots, uint32_t n, uint64_t self, uint32_t *ret_slot,
                    uint64_t *ret_id)
{
    WEIR_INVARIANT(n <= PEERS_MAX && peer_id_pid(self) != 0);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = atomic_load_explicit(&slots[i].id, memory_order_seq_cst), id;

        if (peer_id_pid(before))
            continue;
        id =
            peer_id_make(peer_slot_next_generation(before), peer_id_start(self), peer_id_pid(self));
        if (shm_cas_seq_cst(&slots[i].id, before, id)) {
            *ret_slot = i;
            *ret_id = id;
            return 0;
        }
    }
    return -ENOSPC;
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

/* Returns 1 (alive) if the process is hidden or forbidden, which proves nothing. Returns an error
 * that may pass, such as -ENOMEM. */
static int peer_id_probe_error(int error)
{
    return error == -ENOENT || error == -ESRCH || error == -EACCES || error == -EPERM ? 1 : error;
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
    return os_process_exists(peer_id_pid(id)) == -ESRCH ? 0 : peer_id_probe_error(r);
}

bool peer_id_is_dead(uint64_t id)
{
    return peer_id_probe(id) == 0;
}

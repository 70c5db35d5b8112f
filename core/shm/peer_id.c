/* SPDX-License-Identifier: MIT */
/* Processes: their lives in shared slots, and what /proc says of them. */
#include "shm/peer_id.h"

#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What counts of /proc/PID/stat. */
struct proc_stat {
    uint64_t pid, threads, start;
    char state;
};

/* Numbers of its fields, from 1 as the manual does. */
enum { STAT_STATE = 3, STAT_THREADS = 20, STAT_START = 22 };

/* Returns what follows the number, or NULL if there is none. */
static const char *proc_stat_read_number(const char *text, uint64_t *ret)
{
    uint64_t number = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    *ret = number;
    return at == text ? NULL : at;
}

/* The field `n` more fields on, or NULL. */
static const char *proc_stat_skip_fields(const char *text, int n)
{
    while (text && n-- > 0) {
        text = strchr(text, ' ');
        text = text ? text + 1 : NULL;
    }
    return text;
}

/*
 *     1234 (name) S 1 …
 *
 * A program may put anything into its name, also parentheses and blanks, but only numbers come
 * after it: it ends at the last parenthesis.
 */
static int proc_stat_parse(const char *text, struct proc_stat *ret)
{
    const char *name_end = strrchr(text, ')'), *state, *threads, *start;

    if (!name_end || !proc_stat_read_number(text, &ret->pid))
        return -EIO;
    state = proc_stat_skip_fields(name_end, 1);
    threads = proc_stat_skip_fields(state, STAT_THREADS - STAT_STATE);
    start = proc_stat_skip_fields(threads, STAT_START - STAT_THREADS);
    if (!start || !proc_stat_read_number(threads, &ret->threads) ||
        !proc_stat_read_number(start, &ret->start))
        return -EIO;
    ret->state = *state;
    return 0;
}

static int proc_stat_read(const char *path, struct proc_stat *ret)
{
    char text[1024]; /* the first 22 fields need half of it */
    int n = os_file_read_part(path, 0, text, sizeof(text) - 1);

    if (n < 0)
        return n;
    text[n] = '\0';
    return proc_stat_parse(text, ret);
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
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = atomic_load(&slots[i].id), id;

        if (peer_id_pid(before))
            continue;
        id =
            peer_id_make(peer_slot_next_generation(before), peer_id_start(self), peer_id_pid(self));
        if (atomic_compare_exchange_strong(&slots[i].id, &before, id)) {
            *ret_slot = i;
            *ret_id = id;
            SCHED_POINT();
            return 0;
        }
    }
    return -ENOSPC;
}

bool peer_slot_free(struct peer_slot *slot, uint64_t id)
{
    return atomic_compare_exchange_strong(&slot->id, &id,
                                          peer_id_make(peer_id_generation(id), 0, 0));
}

uint64_t peer_slot_find(const struct peer_slot *slots, uint32_t n, uint32_t key)
{
    uint32_t slot = peer_key_slot(key);
    uint64_t id = slot < n ? atomic_load(&slots[slot].id) : 0;

    return peer_id_pid(id) && peer_key_make(id, slot) == key ? id : 0;
}

/*
 * Only a zombie whose count of threads is 1, itself, is a dead process. A first thread that has
 * ended before others is listed as a zombie, too; and so is, for a moment, the one whose number
 * another thread takes over by exec, which by then belongs to no process and counts 0.
 */
static bool proc_stat_is_dead(const struct proc_stat *proc, uint64_t id)
{
    return (proc->start & PEER_START_MASK) != peer_id_start(id) ||
           (proc->state == 'Z' && proc->threads == 1);
}

/* Being hidden or forbidden says nothing; what may pass, such as a lack of memory, is told. */
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

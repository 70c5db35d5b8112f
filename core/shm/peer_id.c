/* SPDX-License-Identifier: MIT */
/* Processes: their lives in shared slots, and what /proc says of them. */
#include "shm/peer_id.h"

#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What counts of /proc/PID/stat. */
struct stat_line {
    uint64_t pid, threads, start;
    char state;
};

/* Numbers of its fields, from 1 as the manual does. */
enum { FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_START = 22 };

/* Returns what follows the number, or NULL if there is none. */
static const char *read_number(const char *text, uint64_t *ret)
{
    uint64_t number = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    *ret = number;
    return at == text ? NULL : at;
}

/* The field `n` more fields on, or NULL. */
static const char *skip_fields(const char *text, int n)
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
static int parse(const char *text, struct stat_line *ret)
{
    const char *name_end = strrchr(text, ')'), *state, *threads, *start;

    if (!name_end || !read_number(text, &ret->pid))
        return -EIO;
    state = skip_fields(name_end, 1);
    threads = skip_fields(state, FIELD_THREADS - FIELD_STATE);
    start = skip_fields(threads, FIELD_START - FIELD_THREADS);
    if (!start || !read_number(threads, &ret->threads) || !read_number(start, &ret->start))
        return -EIO;
    ret->state = *state;
    return 0;
}

static int read_stat(const char *path, struct stat_line *ret)
{
    char text[1024]; /* the first 22 fields need half of it */
    int n = sys_read_part(path, 0, text, sizeof(text) - 1);

    if (n < 0)
        return n;
    text[n] = '\0';
    return parse(text, ret);
}

int process_self(uint64_t *ret_self)
{
    struct stat_line line;
    uint32_t pid = sys_process_id();
    int r = read_stat("/proc/self/stat", &line);

    if (r < 0)
        return r;
    if (line.pid != pid)
        return -EXDEV;
    *ret_self = process_life(0, line.start, pid);
    return 0;
}

static uint32_t next_generation(uint64_t life)
{
    uint32_t next = (process_generation(life) + 1) & PROCESS_GENERATION_MASK;

    return next ? next : 1;
}

int process_claim(struct segment_process *processes, uint32_t n, uint64_t self, uint32_t *ret_slot,
                  uint64_t *ret_life)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = atomic_load(&processes[i].life), life;

        if (process_pid(before))
            continue;
        life = process_life(next_generation(before), process_start(self), process_pid(self));
        if (atomic_compare_exchange_strong(&processes[i].life, &before, life)) {
            *ret_slot = i;
            *ret_life = life;
            STEP();
            return 0;
        }
    }
    return -ENOSPC;
}

bool process_release(struct segment_process *process, uint64_t life)
{
    return atomic_compare_exchange_strong(&process->life, &life,
                                          process_life(process_generation(life), 0, 0));
}

uint64_t process_find(const struct segment_process *processes, uint32_t n, uint32_t key)
{
    uint32_t slot = process_key_slot(key);
    uint64_t life = slot < n ? atomic_load(&processes[slot].life) : 0;

    return process_pid(life) && process_key(life, slot) == key ? life : 0;
}

/*
 * Only a zombie whose count of threads is 1, itself, is a dead process. A first thread that has
 * ended before others is listed as a zombie, too; and so is, for a moment, the one whose number
 * another thread takes over by exec, which by then belongs to no process and counts 0.
 */
static bool is_dead(const struct stat_line *line, uint64_t life)
{
    return (line->start & PROCESS_START_MASK) != process_start(life) ||
           (line->state == 'Z' && line->threads == 1);
}

/* Being hidden or forbidden says nothing; what may pass, such as a lack of memory, is told. */
static int unknown(int error)
{
    return error == -ENOENT || error == -ESRCH || error == -EACCES || error == -EPERM ? 1 : error;
}

int process_look(uint64_t life)
{
    struct stat_line line;
    char path[32];
    int r;

    if (!process_pid(life))
        return 0;
    snprintf(path, sizeof(path), "/proc/%u/stat", process_pid(life));
    r = read_stat(path, &line);
    if (r == 0)
        return !is_dead(&line, life);
    return sys_process_exists(process_pid(life)) == -ESRCH ? 0 : unknown(r);
}

bool process_is_dead(uint64_t life)
{
    return process_look(life) == 0;
}

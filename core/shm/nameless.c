/* SPDX-License-Identifier: MIT */
/*
 * Finds out that the file of a segment in use has lost its name, and reports it; finds such
 * segments for observers.
 */
#include "shm/nameless.h"

#include "base/error.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment.h"
#include <errno.h>
#include <string.h>

/* What the file of a segment has come to. */
enum name_state {
    NAME_KEPT,
    NAME_REMOVED, /* by force */
    NAME_LOST     /* removed or renamed by another program, perhaps with the directory */
};

/* Returns an enum name_state; or a negative errno if that cannot be told now. */
static int nameless_look(const struct segment *segment)
{
    struct stat of_file, of_name;
    int r = os_fstat(segment->fd, &of_file);

    if (r < 0)
        return r;
    if (of_file.st_nlink > 0) {
        r = os_stat_at(segment->directory_fd, segment->file_name, &of_name);
        if (r < 0 && r != -ENOENT)
            return r;
        if (r == 0 && of_name.st_dev == of_file.st_dev && of_name.st_ino == of_file.st_ino)
            return NAME_KEPT;
    }
    return shm_load_seq_cst(&segment_header(segment)->removal) & 1 ? NAME_REMOVED : NAME_LOST;
}

bool nameless_segment_is(const struct segment *segment)
{
    return nameless_look(segment) > NAME_KEPT;
}

static void nameless_report(const struct segment *segment, const struct log_sink *log,
                            enum name_state state)
{
    log_write(log, WEIR_LOG_ERROR,
              "set `%s`: %s. Processes that come now make another one, and the limits hold in each "
              "of the two: restart the processes that are attached, this one included%s",
              segment->file_stem,
              state == NAME_REMOVED ? "its segment was removed by force while it is in use"
                                    : "the file of its segment is gone while it is in use",
              state == NAME_REMOVED
                  ? ""
                  : ". If systemd-logind took it at a logout (RemoveIPC), give the set another "
                    "`process_dir`, or the program a system user (see weir(1))");
}

/* Relaxed: the time of the last look limits the rate only. */
static bool nameless_is_due(struct naming *naming)
{
    uint64_t now_ns = os_now_coarse_ns();
    uint64_t before = atomic_load_explicit(&naming->looked_ns, memory_order_relaxed);

    if (now_ns >= before && now_ns - before < NAMELESS_INTERVAL_NS)
        return false;
    atomic_store_explicit(&naming->looked_ns, now_ns, memory_order_relaxed);
    return true;
}

bool nameless_check(struct segment *segment, const struct log_sink *log, bool now)
{
    struct naming *naming = &segment->naming;
    int state;

    if (!now && !nameless_is_due(naming))
        return false;
    state = nameless_look(segment);
    if (state < 0)
        return false;
    atomic_store_explicit(&naming->is_nameless, state != NAME_KEPT, memory_order_seq_cst);
    if (state == NAME_KEPT ||
        atomic_exchange_explicit(&naming->is_reported, true, memory_order_seq_cst))
        return false;
    nameless_report(segment, log, (enum name_state)state);
    return true;
}

/* ---- for observers ---- */

/* Returns the entry of a file, a new one if there is none; NULL: out of memory. */
static struct nameless_segment *nameless_list_at(struct nameless_list *list,
                                                 const struct stat *file)
{
    size_t capacity = list->capacity ? 2 * list->capacity : 8;

    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].device == file->st_dev && list->items[i].inode == file->st_ino)
            return &list->items[i];
    if (list->n == list->capacity) {
        struct nameless_segment *items = os_realloc(list->items, capacity, sizeof(*items));

        if (!items)
            return NULL;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n] = (struct nameless_segment){.device = file->st_dev, .inode = file->st_ino};
    return &list->items[list->n++];
}

/* Adds a file if it is a segment to which a process was ever attached: one that is being made has
 * no name yet. */
static int nameless_add(void *userdata, uint32_t pid, const char *path)
{
    struct nameless_list *list = userdata;
    struct nameless_segment *item;
    struct segment_header header;
    struct stat file;

    if (os_stat(path, &file) < 0 ||
        os_file_read_part(path, 0, &header, sizeof(header)) != (int)sizeof(header) ||
        !segment_is_ours(&header) || !shm_load_seq_cst(&header.registrations))
        return 0;
    item = nameless_list_at(list, &file);
    if (!item)
        return -ENOMEM;
    memcpy(item->name, header.identity.name, sizeof(item->name));
    item->by_force = shm_load_seq_cst(&header.removal) & 1;
    item->users += item->pid != pid; /* all descriptors of a process come together */
    item->pid = pid;
    return 0;
}

int nameless_find(const char *directory, struct nameless_list *ret)
{
    char own[SEGMENT_DIR_PATH_SIZE];

    *ret = (struct nameless_list){0};
    segment_dir_default(own);
    return os_deleted_files(directory ? directory : own, nameless_add, ret);
}

void nameless_list_free(struct nameless_list *list)
{
    os_free(list->items);
    *list = (struct nameless_list){0};
}

/* SPDX-License-Identifier: MIT */
/* Doorbells: FIFOs that carry record numbers. */
#include "shm/doorbell.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DOORBELL_TRIES 16 /* a sweep takes a doorbell if its maker did not run for a moment */

/* Names of a doorbell: while it is being made, and from then on. */
struct doorbell_names {
    char fresh[SEGMENT_DIR_FILE_SIZE], final[SEGMENT_DIR_FILE_SIZE];
};

void doorbell_stem(char ret[static SEGMENT_DIR_FILE_SIZE], const char *file_stem,
                   uint64_t generation)
{
    snprintf(ret, SEGMENT_DIR_FILE_SIZE, "%.*s.%016" PRIx64, (int)SEGMENT_DIR_STEM_MAX, file_stem,
             generation);
}

static int doorbell_name(struct doorbell_names *ret, const char *stem, uint32_t slot,
                         uint32_t timer)
{
    const int size = SEGMENT_DIR_FILE_SIZE;
    int fresh = snprintf(ret->fresh, sizeof(ret->fresh), "%s.%" PRIu32 ".%" PRIu32 FRESH_SUFFIX,
                         stem, slot, timer);
    int final = snprintf(ret->final, sizeof(ret->final), "%s.%" PRIu32 ".%" PRIu32 DOORBELL_SUFFIX,
                         stem, slot, timer);

    return fresh < 0 || fresh >= size || final < 0 || final >= size ? -ENAMETOOLONG : 0;
}

/* Opens both ends, so there always is a reader: no SIGPIPE, and no waiting for one. */
static int doorbell_open_fifo(int directory_fd, const char *name)
{
    struct stat found;
    int fd = os_open_at(directory_fd, name, true), r;

    if (fd < 0)
        return fd;
    r = os_fstat(fd, &found);
    if (r == 0 && (found.st_mode != (S_IFIFO | S_IRUSR | S_IWUSR) || found.st_uid != os_user_id()))
        r = -EPERM;
    if (r == 0)
        return fd;
    os_close(fd);
    return r;
}

/* Makes a FIFO under the name for those that are being made. One that is there is of a process that
 * died meanwhile. Returns -ENOENT if the directory has been removed. */
static int doorbell_make_fifo(int directory_fd, const char *fresh)
{
    int r = os_fifo_make(directory_fd, fresh);

    if (r != -EEXIST)
        return r;
    r = os_unlink_at(directory_fd, fresh);
    return r == 0 || r == -ENOENT ? os_fifo_make(directory_fd, fresh) : r;
}

/* Makes a doorbell that has its name only once it has a reader. Returns -EAGAIN if another process
 * has removed it before, because it had none. */
static int doorbell_make(int directory_fd, const struct doorbell_names *names)
{
    int r = doorbell_make_fifo(directory_fd, names->fresh), fd;

    if (r < 0)
        return r;
    SCHED_POINT();
    r = fd = doorbell_open_fifo(directory_fd, names->fresh);
    SCHED_POINT();
    if (fd >= 0)
        r = os_rename_at(directory_fd, names->fresh, names->final);
    if (r >= 0)
        return fd;
    if (fd >= 0)
        os_close(fd);
    os_unlink_at(directory_fd, names->fresh);
    return r == -ENOENT ? -EAGAIN : r;
}

int doorbell_open(int directory_fd, const char *stem, uint32_t slot, uint32_t timer)
{
    struct doorbell_names names;
    int r = doorbell_name(&names, stem, slot, timer);

    if (r < 0)
        return r;
    r = -EAGAIN;
    for (int i = 0; i < DOORBELL_TRIES && r == -EAGAIN; i++)
        r = doorbell_make(directory_fd, &names);
    /* Without a directory, one to which no process ever adds. */
    return r == -ENOENT ? os_eventfd() : r == -EAGAIN ? -EBUSY : r;
}

void doorbell_close(int directory_fd, int fd, const char *stem, uint32_t slot, uint32_t timer)
{
    struct doorbell_names names;

    if (doorbell_name(&names, stem, slot, timer) == 0)
        os_unlink_at(directory_fd, names.final);
    SCHED_POINT();
    if (fd >= 0)
        os_close(fd);
}

int doorbell_open_other(int directory_fd, const char *stem, uint32_t slot, uint32_t timer)
{
    struct doorbell_names names;
    int r = doorbell_name(&names, stem, slot, timer);

    return r < 0 ? r : doorbell_open_fifo(directory_fd, names.final);
}

int doorbell_open_read_end(int directory_fd, const char *stem, uint32_t slot, uint32_t timer)
{
    struct doorbell_names names;
    int r = doorbell_name(&names, stem, slot, timer);

    return r < 0 ? r : os_open_at(directory_fd, names.final, false);
}

int doorbell_write(int fd, uint32_t record)
{
    const uint64_t one = 1;
    int r = record == DOORBELL_DIRECT ? os_write(fd, &one, sizeof(one))
                                      : os_write(fd, &record, sizeof(record)); /* atomic */

    return r == -EAGAIN ? 0 : r;
}

int doorbell_ring(int directory_fd, const char *stem, uint32_t slot, uint32_t timer,
                  uint32_t record)
{
    int fd = doorbell_open_other(directory_fd, stem, slot, timer), r;

    if (fd < 0)
        return fd;
    SCHED_POINT();
    r = doorbell_write(fd, record);
    os_close(fd);
    return r;
}

/* Empties the FIFO. Bounded, in case another process keeps writing; the rest is read later. */
static int doorbell_drain(int fd)
{
    enum { DOORBELL_DRAIN_MAX = 64 }; /* more than a FIFO of the usual size holds */
    unsigned char unused[4096];
    int n = 1;

    for (int turn = 0; turn < DOORBELL_DRAIN_MAX && n > 0; turn++)
        n = os_read(fd, unused, sizeof(unused));
    return n;
}

int doorbell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed)
{
    size_t wanted = (n < DOORBELL_READ_MAX ? n : DOORBELL_READ_MAX) * sizeof(*ret);
    int size = os_read(fd, ret, wanted);

    WEIR_INVARIANT(size < 0 || (size_t)size <= wanted);
    if (size < 0)
        return size;
    *ret_overflowed = (size_t)size == wanted || (size_t)size % sizeof(*ret) != 0;
    if (*ret_overflowed)
        doorbell_drain(fd); /* an error will recur, and the caller checks all records anyway */
    return (int)((size_t)size / sizeof(*ret));
}

/* ---- removal ---- */

static void doorbell_unlink(int directory_fd, const char *name, int *error)
{
    int r = os_unlink_at(directory_fd, name);

    if (r < 0 && r != -ENOENT && *error == 0)
        *error = r;
}

int doorbell_remove(int directory_fd, const char *stem, uint32_t slot, uint32_t first,
                    uint64_t timers_n)
{
    struct doorbell_names names;
    int error = 0;

    for (uint32_t i = 0; i < timers_n && i < DOORBELL_REMOVE_MAX; i++) {
        int r = doorbell_name(&names, stem, slot, first + i);

        if (r < 0)
            return r;
        doorbell_unlink(directory_fd, names.fresh, &error);
        doorbell_unlink(directory_fd, names.final, &error);
    }
    return error;
}

/* Returns whether `name` is of a doorbell, finished or not, of this set; NULL: of any set. */
static bool doorbell_is_name(const char *name, const char *file_stem)
{
    const char *dot = strchr(name, '.'); /* a file stem contains no dot */
    size_t length = dot ? (size_t)(dot - name) : 0;
    int end = 0;

    if (!dot ||
        (file_stem && (strlen(file_stem) != length || strncmp(name, file_stem, length) != 0)))
        return false;
    (void)sscanf(dot, ".%*16[0-9a-f].%*[0-9].%*[0-9]%n", &end);
    return end > 0 &&
           (strcmp(dot + end, DOORBELL_SUFFIX) == 0 || strcmp(dot + end, FRESH_SUFFIX) == 0);
}

static int doorbell_is_used(int directory_fd, const char *name, const char *file_stem)
{
    return doorbell_is_name(name, file_stem) ? os_fifo_is_read(directory_fd, name) : 1;
}

int doorbell_sweep(int directory_fd, const char *file_stem)
{
    return segment_dir_sweep(directory_fd, file_stem, doorbell_is_used);
}

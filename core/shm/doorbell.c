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

static int doorbell_name(char ret[static SEGMENT_DIR_FILE_SIZE], const char *stem, uint32_t slot,
                         uint32_t timer)
{
    int n = snprintf(ret, SEGMENT_DIR_FILE_SIZE, "%s.%" PRIu32 ".%" PRIu32 DOORBELL_SUFFIX, stem,
                     slot, timer);

    return n < 0 || n >= (int)SEGMENT_DIR_FILE_SIZE ? -ENAMETOOLONG : 0;
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

int doorbell_open(int directory_fd, const char *stem, uint32_t slot, uint32_t timer)
{
    char name[SEGMENT_DIR_FILE_SIZE];
    int r = doorbell_name(name, stem, slot, timer);

    if (r < 0)
        return r;
    r = os_unlink_at(directory_fd, name);
    if (r == 0 || r == -ENOENT)
        r = os_fifo_make(directory_fd, name);
    if (r < 0)
        return r;
    SCHED_POINT();
    r = doorbell_open_fifo(directory_fd, name);
    if (r < 0)
        os_unlink_at(directory_fd, name);
    return r;
}

void doorbell_close(int directory_fd, int fd, const char *stem, uint32_t slot, uint32_t timer)
{
    char name[SEGMENT_DIR_FILE_SIZE];

    if (doorbell_name(name, stem, slot, timer) == 0)
        os_unlink_at(directory_fd, name);
    if (fd >= 0)
        os_close(fd);
}

int doorbell_ring(int directory_fd, const char *stem, uint32_t slot, uint32_t timer,
                  uint32_t record)
{
    char name[SEGMENT_DIR_FILE_SIZE];
    int r = doorbell_name(name, stem, slot, timer), fd;

    if (r < 0)
        return r;
    fd = doorbell_open_fifo(directory_fd, name);
    if (fd < 0)
        return fd;
    SCHED_POINT();
    r = os_write(fd, &record, sizeof(record)); /* at most PIPE_BUF: atomic */
    os_close(fd);
    return r == -EAGAIN ? 0 : r;
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

/* Returns whether `name` is `prefix`, one number or (of any process) two, and the suffix. */
static bool doorbell_is_name(const char *name, const char *prefix, bool of_any_process)
{
    size_t length = strlen(prefix);
    int end = 0;

    if (strncmp(name, prefix, length) != 0)
        return false;
    if (of_any_process)
        (void)sscanf(name + length, "%*[0-9].%*[0-9]" DOORBELL_SUFFIX "%n", &end);
    else
        (void)sscanf(name + length, "%*[0-9]" DOORBELL_SUFFIX "%n", &end);
    return end > 0 && name[length + (size_t)end] == '\0';
}

int doorbell_remove_all(int directory_fd, const char *stem, const uint32_t *slot)
{
    char prefix[SEGMENT_DIR_FILE_SIZE], name[SEGMENT_DIR_FILE_SIZE];
    void *list;
    int r, error = 0;
    int n = slot ? snprintf(prefix, sizeof(prefix), "%s.%" PRIu32 ".", stem, *slot)
                 : snprintf(prefix, sizeof(prefix), "%s.", stem);

    if (n < 0 || (size_t)n >= sizeof(prefix))
        return -ENAMETOOLONG;
    r = os_dir_open(directory_fd, ".", &list);
    if (r < 0)
        return r;
    while ((r = os_dir_next(list, name, sizeof(name))) > 0) {
        int removed = doorbell_is_name(name, prefix, !slot) ? os_unlink_at(directory_fd, name) : 0;

        if (removed < 0 && removed != -ENOENT && error == 0)
            error = removed;
    }
    os_dir_close(list);
    return r < 0 ? r : error;
}

/* SPDX-License-Identifier: MIT */
/* Doorbells: FIFOs that carry record numbers. */
#include "shm/doorbell.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes the part of the name that all doorbells of a process share. Returns its length. */
static int doorbell_name_prefix(char *ret, size_t size, const char *stem, uint32_t slot)
{
    int n = snprintf(ret, size, "%s.%" PRIu32 ".", stem, slot);

    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : n;
}

static int doorbell_name(char ret[static SEGMENT_DIR_FILE_SIZE], const char *stem, uint32_t slot,
                         uint32_t timer)
{
    int prefix = doorbell_name_prefix(ret, SEGMENT_DIR_FILE_SIZE, stem, slot), n;
    size_t left;

    if (prefix < 0)
        return prefix;
    left = SEGMENT_DIR_FILE_SIZE - (size_t)prefix;
    n = snprintf(ret + prefix, left, "%" PRIu32 DOORBELL_SUFFIX, timer);
    return n < 0 || (size_t)n >= left ? -ENAMETOOLONG : 0;
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
    r = os_fifo_write(fd, &record, sizeof(record)); /* at most PIPE_BUF: atomic */
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
        n = os_fifo_read(fd, unused, sizeof(unused));
    return n;
}

int doorbell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed)
{
    size_t wanted = (n < DOORBELL_READ_MAX ? n : DOORBELL_READ_MAX) * sizeof(*ret);
    int size = os_fifo_read(fd, ret, wanted);

    WEIR_INVARIANT(size < 0 || (size_t)size <= wanted);
    if (size < 0)
        return size;
    *ret_overflowed = (size_t)size == wanted || (size_t)size % sizeof(*ret) != 0;
    if (*ret_overflowed)
        doorbell_drain(fd); /* an error will recur, and the caller checks all records anyway */
    return (int)((size_t)size / sizeof(*ret));
}

/* Returns whether `name` is `prefix`, a number and the suffix of doorbells. */
static bool doorbell_is_name(const char *name, const char *prefix, size_t length)
{
    size_t digits;

    if (strncmp(name, prefix, length) != 0)
        return false;
    digits = strspn(name + length, "0123456789");
    return digits > 0 && strcmp(name + length + digits, DOORBELL_SUFFIX) == 0;
}

/* Removes the next directory entry if it is such a doorbell. Returns 1, 0 at the end, or a negative
 * errno of reading. `*ret_error`: the first failure to remove one. */
static int doorbell_remove_next(int directory_fd, void *list, const char *prefix, int *ret_error)
{
    char name[SEGMENT_DIR_FILE_SIZE];
    int r = os_dir_next(list, name, sizeof(name)), removed = 0;

    if (r > 0 && doorbell_is_name(name, prefix, strlen(prefix)))
        removed = os_unlink_at(directory_fd, name);
    if (removed < 0 && removed != -ENOENT && *ret_error == 0)
        *ret_error = removed;
    return r;
}

int doorbell_remove_all(int directory_fd, const char *stem, uint32_t slot)
{
    char prefix[SEGMENT_DIR_FILE_SIZE];
    void *list;
    int error = 0, r = doorbell_name_prefix(prefix, sizeof(prefix), stem, slot);

    if (r < 0)
        return r;
    r = os_dir_open_list(directory_fd, &list);
    if (r < 0)
        return r;
    while ((r = doorbell_remove_next(directory_fd, list, prefix, &error)) > 0)
        ;
    os_dir_close(list);
    return r < 0 ? r : error;
}

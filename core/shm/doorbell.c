/* SPDX-License-Identifier: MIT */
/* Bells: named pipes with numbers of records. */
#include "shm/doorbell.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment_dir.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Its beginning up to the number of the keeper: the same for all bells of a process. */
static int name_begin(char *ret, size_t size, const char *encoded, uint32_t slot)
{
    int n = snprintf(ret, size, "%s.%" PRIu32 ".", encoded, slot);

    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : n;
}

static int name_of(char ret[static DIRECTORY_FILE_SIZE], const char *encoded, uint32_t slot,
                   uint32_t keeper)
{
    int begin = name_begin(ret, DIRECTORY_FILE_SIZE, encoded, slot), n;
    size_t left;

    if (begin < 0)
        return begin;
    left = DIRECTORY_FILE_SIZE - (size_t)begin;
    n = snprintf(ret + begin, left, "%" PRIu32 BELL_SUFFIX, keeper);
    return n < 0 || (size_t)n >= left ? -ENAMETOOLONG : 0;
}

/* Opens both ends, so there is a reader whoever lives: no signal, no waiting for one. */
static int open_pipe(int directory_fd, const char *name)
{
    struct stat found;
    int fd = sys_open_in(directory_fd, name, true), r;

    if (fd < 0)
        return fd;
    r = sys_stat_fd(fd, &found);
    if (r == 0 && (found.st_mode != (S_IFIFO | S_IRUSR | S_IWUSR) || found.st_uid != sys_user()))
        r = -EPERM;
    if (r == 0)
        return fd;
    sys_close(fd);
    return r;
}

int bell_open(int directory_fd, const char *encoded, uint32_t slot, uint32_t keeper)
{
    char name[DIRECTORY_FILE_SIZE];
    int r = name_of(name, encoded, slot, keeper);

    if (r < 0)
        return r;
    r = sys_unlink_in(directory_fd, name);
    if (r == 0 || r == -ENOENT)
        r = sys_pipe_make(directory_fd, name);
    if (r < 0)
        return r;
    STEP();
    r = open_pipe(directory_fd, name);
    STEP();
    if (r < 0)
        sys_unlink_in(directory_fd, name);
    return r;
}

void bell_close(int directory_fd, int fd, const char *encoded, uint32_t slot, uint32_t keeper)
{
    char name[DIRECTORY_FILE_SIZE];

    if (name_of(name, encoded, slot, keeper) == 0)
        sys_unlink_in(directory_fd, name);
    if (fd >= 0)
        sys_close(fd);
}

int bell_ring(int directory_fd, const char *encoded, uint32_t slot, uint32_t keeper,
              uint32_t record)
{
    char name[DIRECTORY_FILE_SIZE];
    int r = name_of(name, encoded, slot, keeper), fd;

    if (r < 0)
        return r;
    fd = open_pipe(directory_fd, name);
    if (fd < 0)
        return fd;
    STEP();
    r = sys_pipe_write(fd, &record, sizeof(record)); /* so few bytes are written whole or not */
    sys_close(fd);
    return r == -EAGAIN ? 0 : r;
}

/* Reads it empty. Bounded, if somebody keeps writing: what comes behind is read the next time. */
static int drain(int fd)
{
    enum { TURNS = 64 }; /* more than a pipe of the usual size holds */
    unsigned char unused[4096];
    int n = 1;

    for (int turn = 0; turn < TURNS && n > 0; turn++)
        n = sys_pipe_read(fd, unused, sizeof(unused));
    return n;
}

int bell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed)
{
    size_t wanted = (n < BELL_READ_MAX ? n : BELL_READ_MAX) * sizeof(*ret);
    int size = sys_pipe_read(fd, ret, wanted);

    if (size < 0)
        return size;
    *ret_overflowed = (size_t)size == wanted || (size_t)size % sizeof(*ret) != 0;
    if (*ret_overflowed)
        drain(fd); /* an error will come again; and all is looked at in any case */
    return (int)((size_t)size / sizeof(*ret));
}

/* Whether the name is that of a bell that begins so: after it comes only a number. */
static bool is_bell(const char *name, const char *begin, size_t length)
{
    size_t digits;

    if (strncmp(name, begin, length) != 0)
        return false;
    digits = strspn(name + length, "0123456789");
    return digits > 0 && strcmp(name + length + digits, BELL_SUFFIX) == 0;
}

/* Returns 1 while there are more entries; *ret_error: the first failure to remove one. */
static int remove_next(int directory_fd, void *list, const char *begin, int *ret_error)
{
    char name[DIRECTORY_FILE_SIZE];
    int r = sys_next_entry(list, name, sizeof(name)), removed = 0;

    if (r > 0 && is_bell(name, begin, strlen(begin)))
        removed = sys_unlink_in(directory_fd, name);
    if (removed < 0 && removed != -ENOENT && *ret_error == 0)
        *ret_error = removed;
    return r;
}

int bell_remove_all(int directory_fd, const char *encoded, uint32_t slot)
{
    char begin[DIRECTORY_FILE_SIZE];
    void *list;
    int error = 0, r = name_begin(begin, sizeof(begin), encoded, slot);

    if (r < 0)
        return r;
    r = sys_list_directory(directory_fd, &list);
    if (r < 0)
        return r;
    while ((r = remove_next(directory_fd, list, begin, &error)) > 0)
        ;
    sys_close_directory(list);
    return r < 0 ? r : error;
}

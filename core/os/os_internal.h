/* SPDX-License-Identifier: MIT */
/*
 * Helpers shared by os_*.c, which are thin wrappers of system calls.
 *
 * Functions that are called under a lock or during a release must not be cancellation points, as
 * open(), read(), write() and close() are. They use syscall() instead.
 */
#ifndef WEIR_CORE_OS_OS_INTERNAL_H
#define WEIR_CORE_OS_OS_INTERNAL_H

#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

static inline int os_result(long result)
{
    return result < 0 ? -errno : (int)result;
}

/* Stores what os_result() makes of a system call, which is repeated if a signal interrupts it. */
#define OS_RETRY(r, call)                                                                          \
    do                                                                                             \
        (r) = os_result(call);                                                                     \
    while ((r) == -EINTR)

static inline uint64_t os_clock_read(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline struct timespec os_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* Opens a file; not a cancellation point, because a thread that waits may probe other processes. */
static inline int os_open_retry(int directory_fd, const char *name, int flags, mode_t mode)
{
    int fd;

    OS_RETRY(fd, syscall(SYS_openat, directory_fd, name, flags | O_CLOEXEC, mode));
    return fd;
}

#endif

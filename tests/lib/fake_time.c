/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a Redis server: the time of day, by which its TIME and its keys go, is what a test
 * says. What the server measures its own work by (CLOCK_MONOTONIC) stays as it is.
 */
#include "lib/server_clock.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct server_clock *shared;

__attribute__((constructor)) static void map_clock(void)
{
    const char *path = getenv(SERVER_CLOCK_FILE);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        _exit(98);
    shared = mmap(NULL, sizeof(*shared), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED)
        _exit(98);
}

static uint64_t now_us(void)
{
    uint64_t since_ns = atomic_load(&shared->since_ns), us = atomic_load(&shared->us);
    struct timespec now;

    if (since_ns == 0)
        return us;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return us + ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - since_ns) / 1000;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    uint64_t us = now_us();

    (void)zone;
    *ret = (struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    return 0;
}

time_t time(time_t *ret)
{
    time_t now = (time_t)(now_us() / 1000000);

    if (ret)
        *ret = now;
    return now;
}

/* SPDX-License-Identifier: MIT */
/* The fixture: what the process and the fake system hold before a test, and after it. */
#include "lib/fixture.h"
#include "lib/fake_os.h"
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif

#define FDS_MAX 65536

static struct {
    bool fds[FDS_MAX];
    unsigned threads;
    struct fake_os_live live;
} before;

/* Calls `see` with the number of each entry of a directory of /proc. Returns how many. */
static unsigned for_each_number(const char *path, void (*see)(int number, void *), void *argument)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    unsigned n = 0;

    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        n++;
        if (see && atoi(entry->d_name) != dirfd(directory))
            see(atoi(entry->d_name), argument);
    }
    if (directory)
        closedir(directory);
    return n;
}

static unsigned threads_now(void)
{
    return for_each_number("/proc/self/task", NULL, NULL);
}

static void fd_note(int fd, void *argument)
{
    (void)argument;
    if (fd < FDS_MAX)
        before.fds[fd] = true;
}

static void fd_check(int fd, void *argument)
{
    char path[64], target[256] = "";
    unsigned *leaks = argument;

    if (fd >= FDS_MAX || before.fds[fd])
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof(target) - 1) < 0)
        return; /* gone already */
    fprintf(stderr, "leak: descriptor %d (%s)\n", fd, target);
    ++*leaks;
}

/* A thread that was joined is still listed for a moment. */
static unsigned threads_leaked(void)
{
    const struct timespec moment = {0, 1000000};
    unsigned now = threads_now();

    for (int i = 0; i < 2000 && now > before.threads; i++) {
        nanosleep(&moment, NULL);
        now = threads_now();
    }
    if (now <= before.threads)
        return 0;
    fprintf(stderr, "leak: %u threads\n", now - before.threads);
    return now - before.threads;
}

static unsigned difference(const char *what, uint64_t was, uint64_t is)
{
    if (was == is)
        return 0;
    fprintf(stderr, "leak: %s: %" PRIu64 " before, %" PRIu64 " after\n", what, was, is);
    return 1;
}

static void *do_nothing(void *argument)
{
    return argument;
}

/* ThreadSanitizer starts a thread of its own with the first that a program starts. */
static void settle_threads(void)
{
    static bool settled;
    pthread_t thread;

    if (!settled && pthread_create(&thread, NULL, do_nothing, NULL) == 0)
        settled = pthread_join(thread, NULL) == 0;
}

#ifdef VALGRIND_CLO_CHANGE
/* What a child has is checked in its parent. It lacks segments, and a search for leaks would take a
 * signal for each word of them, which is minutes. */
static void leave_leaks_to_parent(void)
{
    VALGRIND_CLO_CHANGE("--leak-check=no");
}

__attribute__((constructor)) static void register_child(void)
{
    (void)pthread_atfork(NULL, NULL, leave_leaks_to_parent);
}
#endif

int fixture_setup(void **state)
{
    (void)state;
    settle_threads();
    fake_os_reset();
    memset(before.fds, 0, sizeof(before.fds));
    for_each_number("/proc/self/fd", fd_note, NULL);
    before.threads = threads_now();
    before.live = fake_os_live();
    return 0;
}

int fixture_teardown(void **state)
{
    struct fake_os_live live;
    unsigned leaks = 0;

    (void)state;
    fake_os_reset();
    leaks += threads_leaked();
    for_each_number("/proc/self/fd", fd_check, &leaks);
    live = fake_os_live();
    leaks += difference("blocks of memory", before.live.blocks, live.blocks);
    leaks += difference("bytes of memory", before.live.bytes, live.bytes);
    leaks += difference("reserved regions", before.live.regions, live.regions);
    leaks += difference("descriptors of weir", before.live.descriptors, live.descriptors);
    leaks += difference("threads of weir", before.live.threads, live.threads);
    leaks += difference("open directories", before.live.directories, live.directories);
    return leaks == 0 ? 0 : -1;
}

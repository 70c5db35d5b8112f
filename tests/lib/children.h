/* SPDX-License-Identifier: MIT */
/* Real processes for tests of peer ids: children that are forked, or that run the test program anew
 * with the name of a role, and the contents of their /proc files, read in the test's own way. */
#ifndef WEIR_TESTS_CHILDREN_H
#define WEIR_TESTS_CHILDREN_H

#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "shm/peer_id.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Where a child says that it is ready, once. */
static int ready_fd = -1;

/* Ends with the test. This is of a thread: each that may be the last to live has to say so. */
static inline void child_ends_with_parent(void)
{
    child_ends_with(getppid());
}

static inline void child_is_ready(void)
{
    if (ready_fd >= 0 && (write(ready_fd, "r", 1) != 1 || close(ready_fd) != 0))
        _exit(99);
    ready_fd = -1;
}

static inline _Noreturn void child_stays(void)
{
    for (;;)
        pause();
}

/* Starts a child and waits until it is ready. */
static inline pid_t child_start(void (*run)(const void *), const void *argument)
{
    int ends[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe(ends), 0);
    pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        ready_fd = ends[1];
        run(argument);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

static inline void run_staying(const void *name)
{
    if (name)
        prctl(PR_SET_NAME, name);
    child_is_ready();
    child_stays();
}

/* An emulator for one program does not run another. */
static inline void needs_exec(void)
{
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("an emulator for one program does not run another\n");
        skip();
    }
}

/* Runs this program anew. `role` goes to child_role() there. */
static inline void run_role(const void *role)
{
    char fd[16], program[4096] = "";

    snprintf(fd, sizeof(fd), "%d", ready_fd);
    /* By its path: what /proc/self/exe itself runs is an emulator where there is one. */
    if (readlink("/proc/self/exe", program, sizeof(program) - 1) > 0)
        execl(program, "child", role, fd, (char *)NULL);
    _exit(98);
}

/* Dead and not reaped. */
static inline void await_zombie(pid_t pid)
{
    siginfo_t info;

    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static inline void child_reap(pid_t pid)
{
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static inline void child_kill(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static inline void child_end(pid_t pid)
{
    child_kill(pid);
    child_reap(pid);
}

/* The state letter and the start time of a process, or 0. */
static inline char stat_of(pid_t pid, uint64_t *ret_start)
{
    char path[64], text[2048], state = 0, *name_end;
    FILE *file;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (!file)
        return 0;
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    name_end = strrchr(text, ')');
    if (!name_end ||
        sscanf(name_end + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lu",
               &state, ret_start) != 2)
        return 0;
    return state;
}

static inline uint64_t peer_id_of(pid_t pid)
{
    uint64_t start = 0;

    assert_true(stat_of(pid, &start) != 0);
    return peer_id_make(1, start, (uint32_t)pid);
}

static inline void await_state(pid_t pid, char state)
{
    const struct timespec moment = {0, 100000};
    uint64_t start;

    for (int i = 0; i < 50000 && stat_of(pid, &start) != state; i++)
        nanosleep(&moment, NULL);
    assert_int_equal(stat_of(pid, &start), state);
}

/* ---- roles ---- */

static inline void *thread_stays(void *argument)
{
    (void)argument;
    child_ends_with_parent();
    child_stays();
}

/* "execs N": its other thread runs the program anew, N times. "stays": it does. */
static inline void *thread_execs(void *argument)
{
    char role[32];
    int n = atoi((const char *)argument + strlen("execs "));

    child_ends_with_parent();
    snprintf(role, sizeof(role), "execs %d", n - 1);
    run_role(n > 1 ? role : "stays");
    return NULL;
}

/* What a program does that was run as a child: call it first in main. */
static inline void child_role(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 3 || strcmp(argv[0], "child") != 0)
        return;
    child_ends_with_parent();
    ready_fd = atoi(argv[2]);
    if (strcmp(argv[1], "stays") == 0) {
        child_is_ready();
        child_stays();
    }
    if (strcmp(argv[1], "first thread ends") == 0) {
        if (pthread_create(&thread, NULL, thread_stays, NULL) != 0)
            _exit(97);
        child_is_ready();
        syscall(SYS_exit, 0);
    }
    if (strncmp(argv[1], "execs ", 6) == 0) {
        child_is_ready();
        if (pthread_create(&thread, NULL, thread_execs, argv[1]) != 0)
            _exit(97);
        child_stays();
    }
    _exit(96);
}

#endif

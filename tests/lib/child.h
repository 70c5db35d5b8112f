/* SPDX-License-Identifier: MIT */
/* Child processes of a test: none outlives it, in whatever way the test ends. */
#ifndef WEIR_TESTS_CHILD_H
#define WEIR_TESTS_CHILD_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * In a child, first of all: it is killed when the thread that made it ends, also while it is
 * stopped. A setting of the calling thread: each thread that may be the last of its process makes
 * it.
 */
static inline void child_ends_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(99);
}

/* As fork(), for a child that ends with its parent. What was printed before is printed once. */
static inline pid_t child_fork(void)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        child_ends_with(parent);
    return pid;
}

/* Waits for its end. Returns the status as waitpid() has it, or a negative errno. */
static inline int child_wait(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR)
            return -errno;
    return status;
}

/* Whether the status says that the child exited with `code`, or was killed by `signal`. */
static inline bool child_exited(int status, int code)
{
    return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static inline bool child_was_killed(int status, int signal)
{
    return status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

#endif

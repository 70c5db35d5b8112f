/* SPDX-License-Identifier: MIT */
/*
 * Runs a program in a time namespace with a monotonic clock that stands at about so many seconds:
 * as on a machine that booted that long ago. Its children are in it, too. Time namespaces take
 * effect for children only, so this one waits for the program and ends as it does.
 *
 * usage: in_time_namespace SECONDS PROGRAM [ARGUMENT]...
 *
 * Exit status 77 if the kernel allows no such namespace; 2 for any other mistake; otherwise that of
 * the program.
 */
#include "lib/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static pid_t child;

/* A runner stops a test that takes too long with a signal to this process. */
static void pass_on(int signal)
{
    kill(child, signal);
}

/* The offset is whole seconds and may be negative, but no clock may come to stand below 0. */
static int set_clock(clockid_t clock, const char *name, long long seconds)
{
    struct timespec now;
    char text[64];
    int fd, size, r;

    if (clock_gettime(clock, &now) < 0)
        return -1;
    fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size = snprintf(text, sizeof(text), "%s %lld 0\n", name, seconds - (long long)now.tv_sec);
    r = write(fd, text, (size_t)size) == size ? 0 : -1;
    close(fd);
    return r;
}

static int enter(long long seconds)
{
    if (unshare(CLONE_NEWTIME) < 0 || set_clock(CLOCK_MONOTONIC, "monotonic", seconds) < 0)
        return -1;
    return set_clock(CLOCK_BOOTTIME, "boottime", seconds);
}

static int forbidden(void)
{
    printf("SKIPPED: the kernel allows no time namespace here: %s\n", strerror(errno));
    return 77;
}

static void run(char **command, pid_t parent)
{
    child_ends_with(parent);
    execvp(command[0], command);
    perror(command[0]);
    _exit(2);
}

/* As the program ended: with its status, or by its signal. */
static int status_of(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 2;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = pass_on};
    pid_t parent = getpid();
    sigset_t forwarded, before;

    if (argc < 3)
        return 2;
    if (enter(strtoll(argv[1], NULL, 10)) < 0)
        return forbidden();
    sigemptyset(&forwarded);
    sigaddset(&forwarded, SIGTERM);
    sigaddset(&forwarded, SIGINT);
    sigprocmask(SIG_BLOCK, &forwarded, &before); /* until there is a child to pass them on to */
    child = fork();
    if (child < 0) {
        perror("fork");
        return 2;
    }
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        run(argv + 2, parent);
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status_of(child);
}

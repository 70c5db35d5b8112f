/* SPDX-License-Identifier: MIT */
/* Runs a program in a world in which the kernel refuses some system calls, by a seccomp filter. */
#ifndef WEIR_TESTS_REFUSE_CALLS_H
#define WEIR_TESTS_REFUSE_CALLS_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* A privileged program keeps what it may do; any other must give up gaining privileges first. */
static inline int refuse_calls(const struct sock_fprog *filter)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter) == 0)
        return 0;
    if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter);
}

/* Becomes the program `argv`. Returns the exit status if it cannot. */
static inline int refuse_calls_and_run(const struct sock_fprog *filter, char **argv)
{
    if (refuse_calls(filter) != 0) {
        perror("seccomp");
        return 2;
    }
    execvp(argv[0], argv);
    perror(argv[0]);
    return 2;
}

#endif

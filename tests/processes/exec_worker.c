/* SPDX-License-Identifier: MIT */
/*
 * What test_exec.py runs behind limits: says in a log when it begins and when it ends, at instants
 * between which it certainly runs.
 *
 * usage: exec_worker LOG MILLISECONDS
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int say(int log, const char *what)
{
    struct timespec now;
    char line[64];

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(line, sizeof(line), "%s %d %lld\n", what, (int)getpid(),
             (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return write(log, line, strlen(line)) == (ssize_t)strlen(line) ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct timespec time = {0};
    int log;

    if (argc != 3 || (log = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC)) < 0)
        return 2;
    time.tv_nsec = atol(argv[2]) * 1000000;
    if (say(log, "begin") < 0)
        return 3;
    nanosleep(&time, NULL);
    return say(log, "end") < 0 ? 3 : 0;
}

/* SPDX-License-Identifier: MIT */
/* Measures memory by the growth of a process. */
#include "weigh.h"

#include "bench.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the number behind `key`, in bytes, from a file of lines `key: number kB`. */
static double bytes_of(const char *path, const char *key)
{
    char line[256];
    double kb = 0;
    FILE *file = fopen(path, "r");

    require(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            kb = strtod(line + strlen(key), NULL);
    fclose(file);
    return 1024 * kb;
}

double weigh_now(void)
{
    return bytes_of("/proc/self/smaps_rollup", "Rss:") + bytes_of("/proc/self/status", "VmPTE:");
}

void weigh_apart(void (*run)(const void *argument, void *ret), const void *argument, void *ret,
                 size_t size)
{
    int fds[2], status;
    pid_t child;

    require(pipe(fds) == 0); /* the pipe holds all that is written before the read */
    fflush(NULL);
    child = fork();
    require(child >= 0);
    if (child == 0) {
        run(argument, ret);
        require(write(fds[1], ret, size) == (ssize_t)size);
        _exit(0);
    }
    close(fds[1]);
    require(read(fds[0], ret, size) == (ssize_t)size);
    close(fds[0]);
    require(waitpid(child, &status, 0) == child && status == 0);
}

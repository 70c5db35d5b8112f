/* SPDX-License-Identifier: MIT */
/* A process in the background that holds a grant for the one that has started it. */
#include "holder.h"
#include "weir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

int holder_begin(struct holder *holder)
{
    holder->starter = pidfd_open(getpid(), 0);
    if (holder->starter < 0 || pipe2(holder->report, O_CLOEXEC) < 0)
        return -errno;
    return 0;
}

/* Closes the holder's end of the pipe, so that the end of the holder shows. */
static void close_end(struct holder *holder)
{
    if (holder->report[1] >= 0)
        close(holder->report[1]);
    holder->report[1] = -1;
}

/* Returns 0 in the holder, which says its process id before its result. The process in between
 * ends. */
static pid_t fork_in_between(const struct holder *holder)
{
    pid_t pid = fork(), own = getpid();

    if (pid != 0)
        _exit(pid < 0);
    if (write(holder->report[1], &own, sizeof(own)) != (ssize_t)sizeof(own))
        _exit(EXEC_FAILED);
    return 0;
}

pid_t holder_fork_apart(struct holder *holder)
{
    pid_t between = fork(), pid = -1;
    int status = 0;

    if (between < 0)
        return -errno;
    if (between == 0)
        return fork_in_between(holder);
    close_end(holder);
    while (waitpid(between, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0 || read(holder->report[0], &pid, sizeof(pid)) != (ssize_t)sizeof(pid))
        return -EAGAIN;
    return pid;
}

/* ---- in the process that has started the holder ---- */

static volatile sig_atomic_t holder_pid;
static volatile sig_atomic_t ended_by; /* a signal, or 0 */

static void pass_on(int number)
{
    int kept = errno;

    ended_by = number;
    kill((pid_t)holder_pid, number);
    errno = kept;
}

/* Has signals that would end this process end the holder first, which then erases its line from the
 * terminal. Signals that the process ignores stay ignored. Passes them on no more if `pid` is 0. */
static void pass_signals_on(pid_t pid)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    const struct sigaction passing = {.sa_handler = pass_on};
    struct sigaction found;

    holder_pid = pid;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (sigaction(numbers[i], NULL, &found) != 0)
            continue;
        if (pid != 0 && found.sa_handler == SIG_DFL)
            sigaction(numbers[i], &passing, NULL);
        else if (pid == 0 && found.sa_handler == pass_on)
            signal(numbers[i], SIG_DFL);
    }
}

int holder_read_report(struct holder *holder, pid_t pid)
{
    int result;
    ssize_t n;

    pass_signals_on(pid);
    close_end(holder);
    do
        n = read(holder->report[0], &result, sizeof(result));
    while (n < 0 && errno == EINTR);
    pass_signals_on(0);
    if (ended_by != 0)
        raise(ended_by);
    return n == (ssize_t)sizeof(result) ? result : -1;
}

/* ---- in the holder ---- */

static int compare_fds(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int holder_close_others(int *kept, size_t n)
{
    unsigned from = STDERR_FILENO + 1;

    qsort(kept, n, sizeof(*kept), compare_fds);
    for (size_t i = 0; i < n; i++) {
        unsigned fd = (unsigned)kept[i];

        if (fd > from && close_range(from, fd - 1, 0) < 0)
            return -errno;
        from = fd >= from ? fd + 1 : from;
    }
    return close_range(from, UINT_MAX, 0) < 0 ? -errno : 0;
}

int holder_leave(int first, int last)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || setsid() < 0 || chdir("/") < 0)
        return -errno;
    for (int fd = first; fd <= last; fd++)
        if (dup2(null, fd) < 0)
            return -errno;
    close(null);
    return 0;
}

int holder_report(struct holder *holder, int result)
{
    if (write(holder->report[1], &result, sizeof(result)) != (ssize_t)sizeof(result))
        result = EXEC_FAILED;
    close(holder->report[1]);
    return result;
}

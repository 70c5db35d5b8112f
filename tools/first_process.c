/* SPDX-License-Identifier: MIT */
/* `weir exec` as the first process of a pid namespace. */
#include "first_process.h"
#include "engine_grant.h"
#include "weir.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Blocks what this process passes on or waits for: all but the signals of its own faults, and of a
 * pipe that is closed. Returns a descriptor to read them from, or a negative errno. */
static int block_signals(void)
{
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t others;
    int fd;

    sigfillset(&others);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        sigdelset(&others, own[i]);
    fd = signalfd(-1, &others, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    pthread_sigmask(SIG_BLOCK, &others, NULL);
    return fd;
}

/* Becomes the command, or says why it cannot. */
__attribute__((noreturn)) static void become_command(char **command, const sigset_t *mask,
                                                     int failed)
{
    int error;

    pthread_sigmask(SIG_SETMASK, mask, NULL);
    execvp(command[0], command);
    error = errno;
    _exit(write(failed, &error, sizeof(error)) == (ssize_t)sizeof(error) ? 0 : EXEC_FAILED);
}

/* Starts the command. Returns its process id or a negative errno. */
static pid_t start_command(char **command, const sigset_t *mask)
{
    int failed[2], error = 0;
    void (*on_end)(int) =
        signal(SIGCHLD, SIG_DFL); /* if it is ignored, no child can be waited for */
    pid_t pid;

    if (pipe2(failed, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        signal(SIGCHLD, on_end);
        become_command(command, mask, failed[1]);
    }
    error = pid < 0 ? errno : 0;
    close(failed[1]);
    if (pid > 0 && read(failed[0], &error, sizeof(error)) != (ssize_t)sizeof(error))
        error = 0;
    close(failed[0]);
    return error != 0 ? -error : pid;
}

/* Leaves the standard streams to the command, but for messages. */
static void leave_streams(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}

/* Passes signals on, but for those that a terminal has sent to all processes in its foreground. */
static void pass_signals(int signals, pid_t command)
{
    struct signalfd_siginfo came;

    while (read(signals, &came, sizeof(came)) == (ssize_t)sizeof(came))
        if (came.ssi_signo != SIGCHLD && came.ssi_code != SI_KERNEL)
            kill(command, (int)came.ssi_signo);
}

/* Reaps children that have ended: all orphans become those of this process. Returns the exit status
 * of the command, or -1: it has not ended. */
static int reap(pid_t command)
{
    int status, ret = -1;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == command)
            ret = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ret;
}

static int attend(const struct grant *grant, int signals, pid_t command)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                           {.fd = weir_acquisition_lost_fd(grant->acquisition), .events = POLLIN}};
    int status;

    while ((status = reap(command)) < 0) {
        if (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0 && errno != EINTR)
            return EXEC_FAILED;
        if (fds[1].revents != 0) {
            engine_grant_report_loss(grant);
            fds[1].fd = -1;
        }
        pass_signals(signals, command);
    }
    return status;
}

int first_process_run(const struct grant *grant, char **command, const sigset_t *mask)
{
    int signals = block_signals(), r;

    if (signals < 0)
        return signals;
    r = start_command(command, mask);
    if (r > 0) {
        leave_streams();
        r = attend(grant, signals, r);
    }
    close(signals);
    return r;
}

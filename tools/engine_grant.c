/* SPDX-License-Identifier: MIT */
/* Grants of sets that engines keep, in a process that holds them for another one. */
#include "engine_grant.h"
#include "ahead.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int ending_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
#define ENDING_SIGNALS_N (sizeof(ending_signals) / sizeof(ending_signals[0]))

int engine_grant_begin(struct grant *grant)
{
    struct sigaction found;
    sigset_t ending;

    sigemptyset(&ending);
    for (size_t i = 0; i < ENDING_SIGNALS_N; i++)
        if (sigaction(ending_signals[i], NULL, &found) == 0 && found.sa_handler == SIG_DFL)
            sigaddset(&ending, ending_signals[i]);
    pthread_sigmask(SIG_BLOCK, &ending, NULL);
    grant->ends.signals = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
    return grant->ends.signals < 0 ? -errno : 0;
}

/* Waits until the grant is not wanted any more, or a descriptor is readable; -1: none. Returns
 * whether it is not wanted. */
static bool wait_for_end(const struct grant *grant, int fd)
{
    struct pollfd fds[] = {{.fd = grant->ends.signals, .events = POLLIN},
                           {.fd = grant->ends.process, .events = POLLIN},
                           {.fd = grant->ends.event, .events = POLLIN},
                           {.fd = fd, .events = POLLIN}};

    while (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0)
        if (errno != EINTR)
            return true;
    return fds[0].revents != 0 || fds[1].revents != 0 || fds[2].revents != 0;
}

/* Waits until the acquisition is decided. */
static int wait_until_decided(const struct grant *grant, weir_acquisition *acquisition)
{
    int fd = weir_acquisition_fd(acquisition), r;

    if (fd < 0)
        return fd;
    while ((r = weir_acquisition_result(acquisition)) == -EINPROGRESS)
        if (wait_for_end(grant, fd))
            return -ECANCELED;
    return r;
}

int engine_grant_wait(struct grant *grant, const struct weir_request *request,
                      struct weir_refusal *refusal)
{
    weir_acquisition *acquisition = NULL;
    struct ahead ahead;
    int r = weir_submit(grant->pool, request, &acquisition, refusal);

    if (r < 0)
        return r;
    if (r > 0) {
        ahead_begin(&ahead, grant->pool, grant->title);
        r = wait_until_decided(grant, acquisition);
        ahead_end(&ahead);
    }
    if (r == 0) {
        grant->acquisition = acquisition;
        return 0;
    }
    weir_acquisition_refusal(acquisition, refusal); /* of other results there is none */
    weir_release(&acquisition);
    return r;
}

/* A grant without an engine (`on_failure: open`) has no such descriptor, and cannot be lost. */
int engine_grant_hold(struct grant *grant)
{
    int fd = weir_acquisition_lost_fd(grant->acquisition);

    return wait_for_end(grant, fd >= 0 ? fd : -1) ? 0 : -EOWNERDEAD;
}

void engine_grant_report_loss(const struct grant *grant)
{
    fprintf(stderr, "%s: `%s`: the session has ended: the command goes on without its grant\n",
            grant->title, grant->name);
}

/* All that was granted counts as used, as it does when a process ends that holds a shared set. */
static void give_back(struct grant *grant)
{
    for (size_t i = 0; i < grant->amounts.n; i++)
        if (grant->amounts.items[i].amount != 0)
            weir_update(grant->acquisition, grant->amounts.items[i].key,
                        grant->amounts.items[i].amount); /* fails without updates */
    weir_release(&grant->acquisition);
}

void engine_grant_end(struct grant *grant, int status)
{
    struct signalfd_siginfo came;
    bool has_come = read(grant->ends.signals, &came, sizeof(came)) == (ssize_t)sizeof(came);

    if (grant->acquisition)
        give_back(grant);
    grant_free(grant); /* waits until the engine has been told */
    if (has_come) {
        sigset_t one;

        sigemptyset(&one);
        sigaddset(&one, (int)came.ssi_signo);
        raise((int)came.ssi_signo);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
        status = 128 + (int)came.ssi_signo; /* the first process of a namespace has survived it */
    }
    _exit(status);
}

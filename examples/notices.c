/* SPDX-License-Identifier: MIT */
/*
 * Gathers signals and changes of a file in one epoll descriptor. The file's directory is watched,
 * and not the file: an editor, and a careful script, write another file and rename it.
 */
#include "notices.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int watch_signals(struct notices *notices)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
        return -errno;
    notices->signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    return notices->signals < 0 ? -errno : 0;
}

static int watch_file(struct notices *notices, const char *file)
{
    const char *slash = strrchr(file, '/');
    char *directory = slash ? strndup(file, (size_t)(slash + 1 - file)) : strdup("./");
    int e = directory ? 0 : -ENOMEM;

    notices->file_name = slash ? slash + 1 : file;
    notices->changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (e == 0 && (notices->changes < 0 || inotify_add_watch(notices->changes, directory,
                                                             IN_CLOSE_WRITE | IN_MOVED_TO) < 0))
        e = -errno;
    free(directory);
    return e;
}

static int gather(const struct notices *notices, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(notices->fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

int notices_open(struct notices *notices, const char *file)
{
    int e;

    *notices = (struct notices){.signals = -1, .changes = -1};
    notices->fd = epoll_create1(EPOLL_CLOEXEC);
    e = notices->fd < 0 ? -errno : watch_signals(notices);
    if (e == 0)
        e = watch_file(notices, file);
    if (e == 0)
        e = gather(notices, notices->signals);
    if (e == 0)
        e = gather(notices, notices->changes);
    if (e < 0)
        notices_close(notices);
    return e;
}

static unsigned read_signals(const struct notices *notices)
{
    struct signalfd_siginfo info;
    unsigned found = 0;

    while (read(notices->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        found |= info.ssi_signo == SIGHUP ? NOTICE_RELOAD : NOTICE_STOP;
    return found;
}

/* If events were lost, the file may have been among them. */
static unsigned read_changes(const struct notices *notices)
{
    _Alignas(struct inotify_event) char bytes[4096];
    unsigned found = 0;
    ssize_t n;

    while ((n = read(notices->changes, bytes, sizeof(bytes))) > 0)
        for (const char *at = bytes; at < bytes + n;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;

            if (event->mask & IN_Q_OVERFLOW ||
                (event->len > 0 && strcmp(event->name, notices->file_name) == 0))
                found = NOTICE_RELOAD;
            at += sizeof(*event) + event->len;
        }
    return found;
}

unsigned notices_read(const struct notices *notices)
{
    return read_signals(notices) | read_changes(notices);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void notices_close(struct notices *notices)
{
    close_fd(notices->fd);
    close_fd(notices->changes);
    close_fd(notices->signals);
    notices->fd = notices->changes = notices->signals = -1;
}

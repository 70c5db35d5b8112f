/* SPDX-License-Identifier: MIT */
/* The line on the terminal of a process that waits. It ends with a carriage return: whatever is
 * written next begins in the first column. */
#include "ahead.h"
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PAUSE_NS UINT64_C(200000000) /* a wait of less shows nothing */
#define PAUSE_NS       UINT64_C(500000000)
#define PAUSE_MS_MAX   3600000
#define SHARE          UINT64_C(100) /* looking takes less than this part of the time */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Returns the position of this process in the wait queue of a set, from 1, or 0. */
static uint32_t position_in(weir_set *set)
{
    int n = weir_set_holders(set, NULL, 0), found;
    struct weir_holder *all = n > 0 ? calloc((size_t)n, sizeof(*all)) : NULL;
    uint32_t position = 0;

    if (!all)
        return 0;
    found = weir_set_holders(set, all, (size_t)n);
    for (int i = 0; i < found && i < n; i++)
        if (all[i].waiting && all[i].process == (uint32_t)getpid())
            position = all[i].position;
    free(all);
    return position;
}

static uint32_t find_position(const struct ahead *ahead)
{
    uint32_t position = 0;

    for (size_t i = 0; i < weir_pool_sets(ahead->pool) && position == 0; i++)
        position = position_in(weir_pool_set(ahead->pool, i));
    return position;
}

/* Returns whether the line may be written: in the foreground of the terminal that controls this
 * process, and without blocking in one that is stopped. */
static bool may_write(void)
{
    struct pollfd terminal = {.fd = STDERR_FILENO, .events = POLLOUT};

    return tcgetpgrp(STDERR_FILENO) == getpgrp() && poll(&terminal, 1, 0) == 1 &&
           (terminal.revents & POLLOUT) != 0;
}

/* Writes the line over the one before, which may have been longer. */
static void show_line(struct ahead *ahead, const char *text)
{
    char line[160];
    int n, width = (int)strlen(text);

    n = snprintf(line, sizeof(line), "%-*s\r", width > ahead->width ? width : ahead->width, text);
    if (!may_write() || n >= (int)sizeof(line) || write(STDERR_FILENO, line, (size_t)n) != n)
        return;
    ahead->width = width;
}

static void erase_line(struct ahead *ahead)
{
    if (ahead->width > 0)
        show_line(ahead, "");
}

/* Returns how many wait in the set of the pool that an engine keeps and in which this process
 * waits, or 0. An engine does not say in which order. */
static uint64_t find_waiting(const struct ahead *ahead)
{
    for (size_t i = 0; i < weir_pool_sets(ahead->pool); i++) {
        weir_set *set = weir_pool_set(ahead->pool, i);
        struct weir_set_stats stats = {.size = sizeof(stats)};
        struct weir_holder own;

        if (weir_set_holders(set, &own, 1) > 0 && own.process == 0 &&
            weir_set_stats(set, &stats, NULL, 0) >= 0 && stats.waiting > 0)
            return stats.waiting;
    }
    return 0;
}

/* Shows nothing if it is granted just now, or not yet in the wait queue. */
static void show_position(struct ahead *ahead, uint32_t position)
{
    uint64_t waiting = position == 0 ? find_waiting(ahead) : 0;
    char text[128];

    if (position != 0)
        snprintf(text, sizeof(text), "%s: waiting, %" PRIu32 " ahead", ahead->title, position - 1);
    else if (waiting != 0)
        snprintf(text, sizeof(text), "%s: waiting, one of %" PRIu64, ahead->title, waiting);
    else
        return;
    show_line(ahead, text);
}

/* Erases the line, and ends the process by the signal that came. */
static void end_by_signal(struct ahead *ahead)
{
    struct signalfd_siginfo came;
    sigset_t one;

    if (read(ahead->signal_fd, &came, sizeof(came)) != (ssize_t)sizeof(came))
        return;
    erase_line(ahead);
    sigemptyset(&one);
    sigaddset(&one, (int)came.ssi_signo);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise((int)came.ssi_signo);
}

/* Waits until the thread has to end, or for so long. Returns whether it has to. */
static bool pause_or_end(struct ahead *ahead, uint64_t ns)
{
    struct pollfd fds[] = {{.fd = ahead->end_fd, .events = POLLIN},
                           {.fd = ahead->signal_fd, .events = POLLIN}};
    uint64_t ms = ns / 1000000;
    int n = poll(fds, 2, ms < PAUSE_MS_MAX ? (int)ms : PAUSE_MS_MAX);

    if (n > 0 && fds[1].revents != 0)
        end_by_signal(ahead);
    return n > 0 && fds[0].revents != 0;
}

static void *run_thread(void *argument)
{
    struct ahead *ahead = argument;
    uint64_t pause_ns = FIRST_PAUSE_NS;

    while (!pause_or_end(ahead, pause_ns)) {
        uint64_t begun_ns = now_ns(), took_ns;

        show_position(ahead, find_position(ahead));
        took_ns = now_ns() - begun_ns;
        pause_ns = took_ns * SHARE > PAUSE_NS ? took_ns * SHARE : PAUSE_NS;
    }
    return NULL;
}

/* Writes the signals that would end the process: the thread takes them, so that no line stays. */
static void find_ending_signals(const sigset_t *blocked, sigset_t *ret)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction found;

    sigemptyset(ret);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &found) == 0 && found.sa_handler == SIG_DFL &&
            sigismember(blocked, numbers[i]) == 0)
            sigaddset(ret, numbers[i]);
}

/* Other signals are for the thread that waits. */
static bool start_thread(struct ahead *ahead)
{
    sigset_t all, ending;
    bool is_started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &ahead->mask);
    find_ending_signals(&ahead->mask, &ending);
    ahead->end_fd = eventfd(0, EFD_CLOEXEC);
    ahead->signal_fd = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
    is_started = ahead->end_fd >= 0 && ahead->signal_fd >= 0 &&
                 pthread_create(&ahead->thread, NULL, run_thread, ahead) == 0;
    pthread_sigmask(SIG_SETMASK, &ahead->mask, NULL);
    if (is_started)
        pthread_sigmask(SIG_BLOCK, &ending, NULL);
    return is_started;
}

static void close_fds(const struct ahead *ahead)
{
    if (ahead->end_fd >= 0)
        close(ahead->end_fd);
    if (ahead->signal_fd >= 0)
        close(ahead->signal_fd);
}

void ahead_begin(struct ahead *ahead, weir_pool *pool, const char *title)
{
    *ahead = (struct ahead){.pool = pool, .title = title};
    if (!isatty(STDERR_FILENO))
        return;
    ahead->is_running = start_thread(ahead);
    if (!ahead->is_running)
        close_fds(ahead);
}

void ahead_end(struct ahead *ahead)
{
    if (!ahead->is_running)
        return;
    eventfd_write(ahead->end_fd, 1);
    pthread_join(ahead->thread, NULL);
    close_fds(ahead);
    erase_line(ahead);
    pthread_sigmask(SIG_SETMASK, &ahead->mask, NULL);
}

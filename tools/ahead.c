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
#include <time.h>
#include <unistd.h>

#define FIRST_PAUSE_NS UINT64_C(200000000) /* a wait of less shows nothing */
#define PAUSE_NS       UINT64_C(500000000)
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

/* Returns whether the line may be written: in the foreground, and without blocking in a terminal
 * that is stopped. */
static bool may_write(void)
{
    struct pollfd terminal = {.fd = STDERR_FILENO, .events = POLLOUT};
    pid_t foreground = tcgetpgrp(STDERR_FILENO);

    if (foreground > 0 && foreground != getpgrp())
        return false;
    return poll(&terminal, 1, 0) == 1 && (terminal.revents & POLLOUT) != 0;
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

static void show_position(struct ahead *ahead, uint32_t position)
{
    char text[128];

    if (position == 0) /* granted just now, or not yet in the wait queue */
        return;
    snprintf(text, sizeof(text), "%s: waiting, %" PRIu32 " ahead", ahead->title, position - 1);
    show_line(ahead, text);
}

/* Waits until the thread has to end, or for so long. Returns whether it has to. */
static bool pause_or_end(struct ahead *ahead, uint64_t ns)
{
    uint64_t until_ns = now_ns() + ns;
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    bool is_ended;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_ended && now_ns() < until_ns)
        pthread_cond_timedwait(&ahead->ended, &ahead->lock, &until);
    is_ended = ahead->is_ended;
    pthread_mutex_unlock(&ahead->lock);
    return is_ended;
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

/* Signals are for the thread that waits. */
static bool start_thread(struct ahead *ahead)
{
    sigset_t all, before;
    bool is_started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = pthread_create(&ahead->thread, NULL, run_thread, ahead) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

void ahead_begin(struct ahead *ahead, weir_pool *pool, const char *title)
{
    pthread_condattr_t monotonic;

    *ahead = (struct ahead){.pool = pool, .title = title};
    if (!isatty(STDERR_FILENO))
        return;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ahead->is_running = start_thread(ahead);
}

void ahead_end(struct ahead *ahead)
{
    if (!ahead->is_running)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->is_ended = true;
    pthread_cond_signal(&ahead->ended);
    pthread_mutex_unlock(&ahead->lock);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->ended);
    pthread_mutex_destroy(&ahead->lock);
    if (ahead->width > 0)
        show_line(ahead, "");
}

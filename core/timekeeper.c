/* SPDX-License-Identifier: MIT */
/* The timekeeper thread. */
#include "timekeeper.h"

#include "instance.h"
#include "sys.h"
#include <errno.h>

/* How long the thread rests when the kernel refuses what it has no reason to refuse. */
#define RETRY_NS UINT64_C(10000000)

/* Once around. False: the timer could not be set. */
static bool turn(weir *w)
{
    struct keeper *keeper = &w->keeper;
    bool failing;

    pthread_mutex_lock(&keeper->lock);
    keeper_unsignal(keeper);
    pthread_mutex_unlock(&keeper->lock);
    keeper_run(keeper);
    pthread_mutex_lock(&keeper->lock);
    failing = keeper->failing;
    pthread_mutex_unlock(&keeper->lock);
    return !failing;
}

static void run_thread(void *argument)
{
    weir *w = argument;
    const uint32_t *closed = (const uint32_t *)(uintptr_t)&w->closed;
    uint64_t events[2];

    /* Looked at after each turn, which may have drained the signal to stop. */
    while (!instance_closed(w)) {
        int n = sys_epoll_wait(w->keeper.epoll_fd, events, 2);

        if (!turn(w) || n < 0)
            sys_futex_wait(closed, 0, instance_now(w) + RETRY_NS);
    }
}

static int start(weir *w)
{
    int r = keeper_open_fds(&w->keeper);

    if (r < 0)
        return r;
    r = sys_thread_start(&w->timekeeper, run_thread, w, "weir-keeper");
    if (r < 0)
        keeper_close_fds(&w->keeper);
    return r;
}

int timekeeper_expect(weir *w)
{
    struct keeper *keeper = &w->keeper;
    int r = 0;

    pthread_mutex_lock(&keeper->lock);
    if (instance_closed(w))
        r = -ESHUTDOWN;
    else if (heap_reserve(&keeper->heap, w->kept + 1) < 0)
        r = -ENOMEM;
    else if (!w->timekeeper && !w->clock.now_ns)
        r = start(w);
    if (r == 0)
        w->kept++;
    pthread_mutex_unlock(&keeper->lock);
    return r;
}

void timekeeper_forget(weir *w, uint32_t record)
{
    pthread_mutex_lock(&w->keeper.lock);
    heap_remove(&w->keeper.heap, record);
    w->kept--;
    pthread_mutex_unlock(&w->keeper.lock);
}

void timekeeper_stop(weir *w)
{
    struct keeper *keeper = &w->keeper;
    struct sys_thread *thread;

    pthread_mutex_lock(&keeper->lock);
    thread = w->timekeeper;
    pthread_mutex_unlock(&keeper->lock);
    if (!thread)
        return;
    if (sys_signal_fd(keeper->event_fd) < 0)
        sys_timerfd_set(keeper->timer_fd, 0);
    sys_thread_join(thread);
    pthread_mutex_lock(&keeper->lock);
    w->timekeeper = NULL;
    keeper_close_fds(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

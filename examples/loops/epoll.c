/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a completion queue and for an acquisition in a loop over epoll, level- or
 * edge-triggered.
 *
 * usage: epoll level|edge
 */
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { BATCH = 4, EVENTS = 8 };

/* Sources of events: the timer of a slot by its number, and these. */
enum { QUEUE = WORK_SLOTS, ALONE };

static struct work work;
static bool edge;
static int epoll_fd;
static struct hold {
    int timer_fd;
    weir_acquisition *acquisition; /* NULL: this slot is free */
} holds[WORK_SLOTS];

static void watch(int fd, uint32_t what)
{
    struct epoll_event event = {.events = edge ? EPOLLIN | EPOLLET : EPOLLIN, .data.u32 = what};

    if (fd < 0)
        work_fail("a descriptor", fd);
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        work_fail("epoll_ctl", -errno);
}

static void open_timers(void)
{
    for (uint32_t i = 0; i < WORK_SLOTS; i++) {
        holds[i].timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (holds[i].timer_fd < 0)
            work_fail("timerfd_create", -errno);
        watch(holds[i].timer_fd, i);
    }
}

static void hold(weir_acquisition *acquisition)
{
    const struct itimerspec once = {.it_value.tv_nsec = WORK_HOLD_NS};
    int i = 0;

    while (holds[i].acquisition)
        i++;
    holds[i].acquisition = acquisition;
    if (timerfd_settime(holds[i].timer_fd, 0, &once, NULL) < 0)
        work_fail("timerfd_settime", -errno);
}

static void on_timer(struct hold *hold)
{
    uint64_t count;

    if (read(hold->timer_fd, &count, sizeof(count)) != sizeof(count))
        return; /* nothing has expired */
    work_hold_over(&work, hold->acquisition);
    hold->acquisition = NULL;
}

/*
 * Level-triggered, one reap per event is enough: remaining completions make another event.
 * Edge-triggered, all must be reaped: the next event comes when the empty list becomes non-empty.
 */
static void on_queue(void)
{
    struct weir_completion done[BATCH];
    int n;

    do {
        n = weir_queue_reap(work.queue, done, BATCH);
        if (n < 0)
            work_fail("weir_queue_reap", n);
        for (int i = 0; i < n; i++) {
            weir_acquisition *acquisition = work_completed(&work, &done[i]);

            if (acquisition)
                hold(acquisition);
        }
    } while (edge && n == BATCH);
    work_submit(&work);
}

static void on_event(uint32_t what)
{
    if (what == QUEUE)
        on_queue();
    else if (what == ALONE)
        work_alone_decided(&work); /* closes its descriptor, which leaves the epoll set */
    else
        on_timer(&holds[what]);
}

static void run(void)
{
    struct epoll_event events[EVENTS];

    while (!work_is_over(&work)) {
        int n = epoll_wait(epoll_fd, events, EVENTS, -1);

        if (n < 0 && errno != EINTR)
            work_fail("epoll_wait", -errno);
        for (int i = 0; i < n; i++)
            on_event(events[i].data.u32);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "level") != 0 && strcmp(argv[1], "edge") != 0)) {
        fprintf(stderr, "usage: epoll level|edge\n");
        return 2;
    }
    edge = strcmp(argv[1], "edge") == 0;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        work_fail("epoll_create1", -errno);
    open_timers();
    work_begin(&work);
    watch(weir_queue_fd(work.queue), QUEUE);
    watch(weir_acquisition_fd(work.alone), ALONE);
    run();
    for (int i = 0; i < WORK_SLOTS; i++)
        close(holds[i].timer_fd);
    close(epoll_fd);
    return work_finish(&work);
}

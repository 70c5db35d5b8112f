/* SPDX-License-Identifier: MIT */
/* Implements the ways of waiting without io_uring: blocked, poll, epoll. */
#include "wake.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, uint64_t)
#endif

void nothing(struct hand *hand)
{
    (void)hand;
}

static int open_nothing(struct hand *hand)
{
    (void)hand;
    return 0;
}

/* ---- a futex ---- */

static void futex_ask(struct hand *hand)
{
    __atomic_store_n(&hand->word, 0, __ATOMIC_RELEASE);
}

static void futex_wait(struct hand *hand)
{
    while (__atomic_load_n(&hand->word, __ATOMIC_ACQUIRE) == 0)
        syscall(SYS_futex, &hand->word, FUTEX_WAIT_PRIVATE, 0, NULL);
}

static void futex_give(struct hand *hand)
{
    __atomic_store_n(&hand->word, 1, __ATOMIC_RELEASE);
    require(syscall(SYS_futex, &hand->word, FUTEX_WAKE_PRIVATE, 1) >= 0);
}

static const struct way raw_futex = {
    .name = "raw futex",
    .open = open_nothing,
    .ask = futex_ask,
    .wait = futex_wait,
    .settle = nothing,
    .close = nothing,
    .hold = nothing,
    .give = futex_give,
};

/* ---- an eventfd ---- */

int event_open(struct hand *hand)
{
    hand->event_fd = eventfd(0, EFD_CLOEXEC);
    return hand->event_fd < 0 ? -errno : 0;
}

void event_give(struct hand *hand)
{
    uint64_t one = 1;

    require(write(hand->event_fd, &one, sizeof(one)) == sizeof(one));
}

void event_drain(struct hand *hand)
{
    uint64_t count;

    require(read(hand->event_fd, &count, sizeof(count)) == sizeof(count) && count == 1);
}

void fds_close(struct hand *hand)
{
    if (hand->event_fd >= 0)
        close(hand->event_fd);
    if (hand->epoll_fd >= 0)
        close(hand->epoll_fd);
    if (hand->inner_fd >= 0)
        close(hand->inner_fd);
}

static void poll_for(int fd)
{
    struct pollfd pollfd = {fd, POLLIN, 0};
    int n;

    do
        n = poll(&pollfd, 1, -1);
    while (n < 0 && errno == EINTR);
    require(n == 1 && pollfd.revents == POLLIN);
}

static int epoll_open(struct hand *hand)
{
    hand->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return hand->epoll_fd < 0 ? -errno : 0;
}

static void add_to(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    require(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void epoll_add(struct hand *hand, int fd)
{
    add_to(hand->epoll_fd, fd);
}

int event_watch(struct hand *hand)
{
    int r = epoll_open(hand);

    if (r == 0)
        epoll_add(hand, hand->event_fd);
    return r;
}

int event_watch_nested(struct hand *hand)
{
    int r = epoll_open(hand);

    if (r < 0)
        return r;
    hand->inner_fd = epoll_create1(EPOLL_CLOEXEC);
    if (hand->inner_fd < 0)
        return -errno;
    add_to(hand->inner_fd, hand->event_fd);
    epoll_add(hand, hand->inner_fd);
    return 0;
}

static int event_epoll_open(struct hand *hand)
{
    int r = event_open(hand);

    return r < 0 ? r : event_watch(hand);
}

static int event_nested_open(struct hand *hand)
{
    int r = event_open(hand);

    return r < 0 ? r : event_watch_nested(hand);
}

void event_epoll(struct hand *hand)
{
    struct epoll_event event;
    int n;

    do
        n = epoll_wait(hand->epoll_fd, &event, 1, -1);
    while (n < 0 && errno == EINTR);
    require(n == 1 && event.events == EPOLLIN);
}

/* Polls until the eventfd is readable, without sleep. */
static void event_look(struct hand *hand)
{
    struct epoll_event event;
    int n;

    do
        n = epoll_wait(hand->epoll_fd, &event, 1, 0);
    while (n == 0 || (n < 0 && errno == EINTR));
    require(n == 1 && event.events == EPOLLIN);
}

static void event_poll(struct hand *hand)
{
    poll_for(hand->event_fd);
}

static void event_epoll_drain(struct hand *hand)
{
    event_epoll(hand);
    event_drain(hand);
}

static const struct way raw_read = {
    .name = "raw eventfd, read",
    .open = event_open,
    .ask = nothing,
    .wait = event_drain,
    .settle = nothing,
    .close = fds_close,
    .hold = nothing,
    .give = event_give,
};

static const struct way raw_poll = {
    .name = "raw eventfd, poll",
    .open = event_open,
    .ask = nothing,
    .wait = event_poll,
    .settle = event_drain,
    .close = fds_close,
    .hold = nothing,
    .give = event_give,
};

static const struct way raw_epoll = {
    .name = "raw eventfd, epoll",
    .open = event_epoll_open,
    .ask = nothing,
    .wait = event_epoll,
    .settle = event_drain,
    .close = fds_close,
    .hold = nothing,
    .give = event_give,
};

static const struct way raw_epoll_drain = {
    .name = "raw eventfd, epoll, then read",
    .open = event_epoll_open,
    .ask = nothing,
    .wait = event_epoll_drain,
    .settle = nothing,
    .close = fds_close,
    .hold = nothing,
    .give = event_give,
};

/*
 * An eventfd, after both threads have done their work before a hand-over of weir: the waiter is in
 * the wait queue of another set, and the giver holds its units. A thread with that history wakes up
 * otherwise than one that has only waited, whatever wakes it.
 */

static void aside_hold(struct hand *hand)
{
    require(weir_release(&hand->held) == 0);
    require(weir_try_acquire(hand->aside, NULL, &hand->held, NULL) == 0);
}

static void aside_ask(struct hand *hand)
{
    require(weir_submit(hand->aside, NULL, &hand->got, NULL) == 1);
}

static void aside_settle(struct hand *hand)
{
    event_drain(hand);
    require(weir_release(&hand->got) == 0);
}

static void aside_close(struct hand *hand)
{
    require(weir_release(&hand->held) == 0);
    fds_close(hand);
}

static const struct way raw_aside = {
    .name = "raw eventfd, in line, epoll",
    .baseline = &raw_epoll,
    .open = event_epoll_open,
    .ask = aside_ask,
    .wait = event_epoll,
    .settle = aside_settle,
    .close = aside_close,
    .hold = aside_hold,
    .give = event_give,
};

/* An eventfd made anew for each wait, as for an acquisition. */

static void fresh_ask(struct hand *hand)
{
    aside_ask(hand);
    require(event_open(hand) == 0);
}

static void fresh_ask_watched(struct hand *hand)
{
    fresh_ask(hand);
    epoll_add(hand, hand->event_fd);
}

static void fresh_settle(struct hand *hand)
{
    close(hand->event_fd);
    hand->event_fd = -1;
    require(weir_release(&hand->got) == 0);
}

static const struct way raw_fresh_poll = {
    .name = "raw eventfd, in line, made anew, poll",
    .baseline = &raw_poll,
    .open = open_nothing,
    .ask = fresh_ask,
    .wait = event_poll,
    .settle = fresh_settle,
    .close = aside_close,
    .hold = aside_hold,
    .give = event_give,
};

static const struct way raw_fresh = {
    .name = "raw eventfd, in line, made anew, epoll",
    .baseline = &raw_aside,
    .open = epoll_open,
    .ask = fresh_ask_watched,
    .wait = event_epoll,
    .settle = fresh_settle,
    .close = aside_close,
    .hold = aside_hold,
    .give = event_give,
};

/*
 * A waiter that polls: measures the time until the descriptor is readable, without the cost of a
 * wake-up.
 */

static const struct way raw_looked_at = {
    .name = "raw eventfd, in line, looked at",
    .open = event_epoll_open,
    .ask = aside_ask,
    .wait = event_look,
    .settle = aside_settle,
    .close = aside_close,
    .hold = aside_hold,
    .give = event_give,
    .looks = true,
};

static const struct way raw_fresh_looked_at = {
    .name = "raw eventfd, in line, made anew, looked at",
    .baseline = &raw_looked_at,
    .open = epoll_open,
    .ask = fresh_ask_watched,
    .wait = event_look,
    .settle = fresh_settle,
    .close = aside_close,
    .hold = aside_hold,
    .give = event_give,
    .looks = true,
};

/* An epoll in an epoll: a queue where a timerfd cannot be signaled, or with shared sets. */
static const struct way raw_nested = {
    .name = "raw eventfd, epoll in epoll, then read",
    .baseline = &raw_epoll_drain,
    .open = event_nested_open,
    .ask = nothing,
    .wait = event_epoll_drain,
    .settle = nothing,
    .close = fds_close,
    .hold = nothing,
    .give = event_give,
};

/* ---- a timerfd that others make readable ---- */

static int ticks_open(struct hand *hand)
{
    const uint64_t one = 1;

    hand->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (hand->event_fd < 0 || ioctl(hand->event_fd, TFD_IOC_SET_TICKS, &one) < 0)
        return -errno;
    event_drain(hand);
    return event_watch(hand);
}

static void ticks_give(struct hand *hand)
{
    const uint64_t one = 1;

    require(ioctl(hand->event_fd, TFD_IOC_SET_TICKS, &one) == 0);
}

/* A signaled timerfd: the descriptor of all other queues. */
static const struct way raw_ticks = {
    .name = "raw timerfd, epoll, then read",
    .baseline = &raw_epoll_drain,
    .open = ticks_open,
    .ask = nothing,
    .wait = event_epoll_drain,
    .settle = nothing,
    .close = fds_close,
    .hold = nothing,
    .give = ticks_give,
};

/* ---- weir, blocked ---- */

void weir_hold(struct hand *hand)
{
    require(weir_try_acquire(hand->pool, NULL, &hand->held, NULL) == 0);
}

void weir_give(struct hand *hand)
{
    require(weir_release(&hand->held) == 0);
}

void weir_settle(struct hand *hand)
{
    require(weir_release(&hand->got) == 0);
}

static void acquire_wait(struct hand *hand)
{
    require(weir_acquire(hand->pool, NULL, &hand->got, NULL) == 0);
}

const struct way way_blocked = {
    .name = "weir_acquire",
    .baseline = &raw_futex,
    .open = open_nothing,
    .ask = nothing,
    .wait = acquire_wait,
    .settle = weir_settle,
    .close = nothing,
    .hold = weir_hold,
    .give = weir_give,
};

/* ---- weir, the fd of an acquisition ---- */

void weir_ask(struct hand *hand)
{
    require(weir_submit(hand->pool, NULL, &hand->got, NULL) >= 0);
    hand->event_fd = weir_acquisition_fd(hand->got);
    require(hand->event_fd >= 0);
}

void weir_know(struct hand *hand)
{
    require(weir_acquisition_result(hand->got) == 0);
    hand->event_fd = -1; /* the release closes it */
}

static void submit_and_watch(struct hand *hand)
{
    weir_ask(hand);
    epoll_add(hand, hand->event_fd);
}

static void acquisition_poll(struct hand *hand)
{
    poll_for(hand->event_fd);
    weir_know(hand);
}

static void acquisition_epoll(struct hand *hand)
{
    event_epoll(hand);
    weir_know(hand);
}

static const struct way fd_poll = {
    .name = "acquisition fd, poll",
    .baseline = &raw_fresh_poll,
    .open = open_nothing,
    .ask = weir_ask,
    .wait = acquisition_poll,
    .settle = weir_settle,
    .close = nothing,
    .hold = weir_hold,
    .give = weir_give,
};

const struct way way_fd_epoll = {
    .name = "acquisition fd, epoll",
    .baseline = &raw_fresh,
    .open = epoll_open,
    .ask = submit_and_watch,
    .wait = acquisition_epoll,
    .settle = weir_settle,
    .close = fds_close,
    .hold = weir_hold,
    .give = weir_give,
};

static void fd_settle(struct hand *hand)
{
    weir_know(hand);
    weir_settle(hand);
}

static const struct way fd_looked_at = {
    .name = "acquisition fd, looked at",
    .baseline = &raw_fresh_looked_at,
    .open = epoll_open,
    .ask = submit_and_watch,
    .wait = event_look,
    .settle = fd_settle,
    .close = fds_close,
    .hold = weir_hold,
    .give = weir_give,
    .looks = true,
};

/* ---- weir, an eventfd attached to one acquisition after the other ---- */

static void submit_and_attach(struct hand *hand)
{
    require(weir_submit(hand->pool, NULL, &hand->got, NULL) >= 0);
    require(weir_acquisition_attach(hand->got, hand->event_fd) == 0);
}

static void attached_epoll(struct hand *hand)
{
    event_epoll(hand);
    require(weir_acquisition_result(hand->got) == 0);
}

static void attached_settle(struct hand *hand)
{
    event_drain(hand);
    weir_settle(hand);
}

static const struct way attached_eventfd = {
    .name = "acquisition, attached, epoll",
    .baseline = &raw_aside,
    .open = event_epoll_open,
    .ask = submit_and_attach,
    .wait = attached_epoll,
    .settle = attached_settle,
    .close = fds_close,
    .hold = weir_hold,
    .give = weir_give,
};

static const struct way attached_looked_at = {
    .name = "acquisition, attached, looked at",
    .baseline = &raw_looked_at,
    .open = event_epoll_open,
    .ask = submit_and_attach,
    .wait = event_look,
    .settle = attached_settle,
    .close = fds_close,
    .hold = weir_hold,
    .give = weir_give,
    .looks = true,
};

/* ---- weir, a queue ---- */

enum { NUMBER = 77, EXCERPT_MAX = 4 };

int queue_open(struct hand *hand)
{
    return weir_queue_open(&hand->queue, hand->w, EXCERPT_MAX);
}

void queue_close(struct hand *hand)
{
    hand->queue = weir_queue_close(hand->queue);
    hand->event_fd = -1; /* the queue has closed it */
    fds_close(hand);
}

static int queue_epoll_open(struct hand *hand)
{
    int r = queue_open(hand);

    if (r < 0)
        return r;
    r = hand->event_fd = weir_queue_fd(hand->queue);
    return r < 0 ? r : event_watch(hand);
}

void queue_ask(struct hand *hand)
{
    require(weir_queue_submit(hand->queue, hand->pool, NULL, NUMBER, NULL, NULL) == 0);
}

/* Reaps one completion. Returns false if there is none yet. */
bool queue_reap(struct hand *hand)
{
    struct weir_completion done[EXCERPT_MAX];
    int n = weir_queue_reap(hand->queue, done, EXCERPT_MAX);

    require(n == 0 || n == 1);
    if (n == 0)
        return false;
    require(done[0].result == 0 && done[0].user_data == NUMBER && done[0].acquisition);
    hand->got = done[0].acquisition;
    return true;
}

static void queue_epoll(struct hand *hand)
{
    do
        event_epoll(hand);
    while (!queue_reap(hand));
}

const struct way way_queue_epoll = {
    .name = "completion queue, epoll",
    .baseline = &raw_epoll_drain,
    .open = queue_epoll_open,
    .ask = queue_ask,
    .wait = queue_epoll,
    .settle = weir_settle,
    .close = queue_close,
    .hold = weir_hold,
    .give = weir_give,
};

/* A queue until its descriptor is readable, which is never in vain here. */

static void queue_settle(struct hand *hand)
{
    require(queue_reap(hand));
    weir_settle(hand);
}

static const struct way queue_readable = {
    .name = "completion queue, epoll, readable",
    .baseline = &raw_aside,
    .open = queue_epoll_open,
    .ask = queue_ask,
    .wait = event_epoll,
    .settle = queue_settle,
    .close = queue_close,
    .hold = weir_hold,
    .give = weir_give,
};

static const struct way queue_looked_at = {
    .name = "completion queue, looked at",
    .baseline = &raw_looked_at,
    .open = queue_epoll_open,
    .ask = queue_ask,
    .wait = event_look,
    .settle = queue_settle,
    .close = queue_close,
    .hold = weir_hold,
    .give = weir_give,
    .looks = true,
};

const struct way *const plain_ways[] = {
    &raw_futex,        &way_blocked,
    &raw_read,         &raw_poll,
    &raw_fresh_poll,   &fd_poll,
    &raw_epoll,        &raw_aside,
    &raw_fresh,        &way_fd_epoll,
    &attached_eventfd, &queue_readable,
    &raw_looked_at,    &raw_fresh_looked_at,
    &fd_looked_at,     &attached_looked_at,
    &queue_looked_at,  &raw_epoll_drain,
    &raw_nested,       &raw_ticks,
    &way_queue_epoll,  NULL,
};

/* SPDX-License-Identifier: MIT */
/* Descriptors that tell of something, and waiting for those. */
#include "os/os_internal.h"
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <weir/error.h>

/* <linux/timerfd.h> has it, which cannot be had beside <sys/timerfd.h>. */
#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, uint64_t)
#endif

int sys_eventfd(void)
{
    return or_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

int sys_timerfd(void)
{
    return or_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

/* From a timer's interrupt to the first instruction of the thread that it wakes it takes always more
 * than the first, be it only for two switches of context; and on most machines more than the second,
 * if the processor slept. */
#define LEAD_LEAST_NS 2000
#define LEAD_MOST_NS  8000

void sys_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns)
{
    *ret_least_ns = LEAD_LEAST_NS;
    *ret_most_ns = LEAD_MOST_NS;
}

int sys_timerfd_set(int fd, uint64_t at_ns)
{
    struct itimerspec timer = {0};

    if (at_ns != WEIR_FOREVER) /* all zero disarms, so instant 0 is the next one */
        timer.it_value = timespec_of(at_ns == 0 ? 1 : at_ns);
    return or_errno(timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL));
}

int sys_timerfd_ring(int fd)
{
    const uint64_t one = 1;
    long r;

    do {
        r = syscall(SYS_ioctl, fd, TFD_IOC_SET_TICKS, &one);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int sys_epoll_create(void)
{
    return or_errno(epoll_create1(EPOLL_CLOEXEC));
}

/* The memory that the user may have in epolls is memory: of a queue, -ENOSPC says that it is full. */
static int add(int epoll_fd, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    int r = or_errno(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event));

    return r == -ENOSPC ? -ENOMEM : r;
}

int sys_epoll_add(int epoll_fd, int fd, uint64_t data)
{
    return add(epoll_fd, fd, EPOLLIN, data);
}

int sys_epoll_add_edge(int epoll_fd, int fd, uint64_t data)
{
    return add(epoll_fd, fd, EPOLLIN | EPOLLET, data);
}

void sys_epoll_remove(int epoll_fd, int fd)
{
    struct epoll_event unused = {0};

    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, &unused);
}

static int events_within(int epoll_fd, uint64_t *ret_data, int n, int timeout_ms)
{
    enum { AT_ONCE = 16 };
    struct epoll_event events[AT_ONCE];
    int ready;

    do {
        ready = epoll_wait(epoll_fd, events, n < AT_ONCE ? n : AT_ONCE, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    for (int i = 0; i < ready; i++)
        ret_data[i] = events[i].data.u64;
    return or_errno(ready);
}

int sys_epoll_wait(int epoll_fd, uint64_t *ret_data, int n)
{
    return events_within(epoll_fd, ret_data, n, -1);
}

int sys_epoll_look(int epoll_fd, uint64_t *ret_data, int n)
{
    return events_within(epoll_fd, ret_data, n, 0);
}

static int add_to_eventfd(int fd, uint64_t n)
{
    long r;

    do {
        r = syscall(SYS_write, fd, &n, sizeof n);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int sys_signal_fd(int fd)
{
    return add_to_eventfd(fd, 1);
}

int sys_probe_fd(int fd)
{
    return add_to_eventfd(fd, 0);
}

int sys_drain_fd(int fd)
{
    uint64_t count;
    long r;

    do {
        r = syscall(SYS_read, fd, &count, sizeof count);
    } while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? 0 : -errno;
    return count < INT_MAX ? (int)count : INT_MAX;
}

void sys_close(int fd)
{
    if (fd >= 0)
        syscall(SYS_close, fd); /* Linux frees the number even when a signal interrupts */
}

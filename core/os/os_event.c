/* SPDX-License-Identifier: MIT */
/* Event descriptors (eventfd, timerfd) and epoll. */
#include "os/os_internal.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <weir/error.h>

/* Defined by <linux/timerfd.h>, which conflicts with <sys/timerfd.h>. */
#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, uint64_t)
#endif

int os_eventfd(void)
{
    return os_result(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

int os_timerfd(void)
{
    return os_result(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

/* Latency from a timer's interrupt to the first instruction of the thread that it wakes. It always
 * exceeds the first value, the cost of two context switches. On most machines it exceeds the second
 * if the processor slept. */
#define TIMER_LEAD_MIN_NS 2000
#define TIMER_LEAD_MAX_NS 8000

void os_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns)
{
    *ret_least_ns = TIMER_LEAD_MIN_NS;
    *ret_most_ns = TIMER_LEAD_MAX_NS;
}

int os_timerfd_set(int fd, uint64_t at_ns)
{
    struct itimerspec timer = {0};

    if (at_ns != WEIR_FOREVER) /* all zero disarms, so time 0 becomes 1 */
        timer.it_value = os_timespec(at_ns == 0 ? 1 : at_ns);
    return os_result(timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL));
}

int os_timerfd_expire(int fd)
{
    const uint64_t one = 1;
    int r;

    OS_RETRY(r, syscall(SYS_ioctl, fd, TFD_IOC_SET_TICKS, &one));
    return r;
}

int os_wall_timerfd(void)
{
    return os_result(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
}

/* A timer that is set to the end of time and is canceled by every discontinuous change of the
 * clock, among them the end of a suspension. Arming it again reports a change since, as an error
 * that the caller has heard of already. */
int os_wall_timerfd_arm(int fd)
{
    const struct itimerspec never = {.it_value = os_timespec(INT64_MAX)};
    int r =
        os_result(timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL));

    return r == -ECANCELED ? 0 : r;
}

int os_epoll_create(void)
{
    return os_result(epoll_create1(EPOLL_CLOEXEC));
}

/* Maps -ENOSPC (the user's epoll memory is used up) to -ENOMEM. Of a completion queue, -ENOSPC says
 * that the queue is full. */
static int os_epoll_ctl_add(int epoll_fd, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    int r = os_result(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event));

    return r == -ENOSPC ? -ENOMEM : r;
}

int os_epoll_add(int epoll_fd, int fd, uint64_t data)
{
    return os_epoll_ctl_add(epoll_fd, fd, EPOLLIN, data);
}

int os_epoll_add_edge(int epoll_fd, int fd, uint64_t data)
{
    return os_epoll_ctl_add(epoll_fd, fd, EPOLLIN | EPOLLET, data);
}

void os_epoll_remove(int epoll_fd, int fd)
{
    struct epoll_event unused = {0};

    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, &unused);
}

int os_epoll_wait(int epoll_fd, uint64_t *ret_data, int n, bool blocks)
{
    enum { BATCH_SIZE = 16 };
    struct epoll_event events[BATCH_SIZE];
    int ready;

    OS_RETRY(ready, epoll_wait(epoll_fd, events, n < BATCH_SIZE ? n : BATCH_SIZE, blocks ? -1 : 0));
    for (int i = 0; i < ready; i++)
        ret_data[i] = events[i].data.u64;
    return ready;
}

int os_eventfd_add(int fd, uint64_t n)
{
    return os_write(fd, &n, sizeof(n));
}

int os_read(int fd, void *buffer, size_t size)
{
    int r;

    OS_RETRY(r, syscall(SYS_read, fd, buffer, size));
    return r == -EAGAIN ? 0 : r;
}

int os_write(int fd, const void *data, size_t size)
{
    int r;

    OS_RETRY(r, syscall(SYS_write, fd, data, size));
    return r < 0 ? r : 0;
}

void os_close(int fd)
{
    if (fd >= 0)
        syscall(SYS_close, fd); /* Linux frees the number even if a signal interrupts */
}

uint32_t os_descriptors_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    return limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
}

/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a completion queue, and for an acquisition by an eventfd of our own, in a loop over
 * ppoll.
 */
#include "work.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 8 };

static struct work work;
static struct hold {
    uint64_t until_ns;
    weir_acquisition *acquisition; /* NULL: this slot is free */
} holds[WORK_SLOTS];

static void hold(weir_acquisition *acquisition)
{
    int i = 0;

    while (holds[i].acquisition)
        i++;
    holds[i] = (struct hold){weir_now(work.w) + WORK_HOLD_NS, acquisition};
}

static void release_what_is_due(void)
{
    for (int i = 0; i < WORK_SLOTS; i++) {
        if (!holds[i].acquisition || weir_now(work.w) < holds[i].until_ns)
            continue;
        work_hold_over(&work, holds[i].acquisition);
        holds[i].acquisition = NULL;
    }
}

/* Returns the time to the next timer of the program, or NULL if there is none. weir's own timers
 * are in the descriptor of the completion queue. */
static struct timespec *until_next(struct timespec *buffer)
{
    uint64_t now = weir_now(work.w), next = WEIR_FOREVER;

    for (int i = 0; i < WORK_SLOTS; i++)
        if (holds[i].acquisition && holds[i].until_ns < next)
            next = holds[i].until_ns;
    if (next == WEIR_FOREVER)
        return NULL;
    next = next > now ? next - now : 0;
    *buffer = (struct timespec){(time_t)(next / 1000000000), (long)(next % 1000000000)};
    return buffer;
}

/* Reaps. poll is level-triggered: if completions do not fit in `done`, poll returns again. */
static void reap(void)
{
    struct weir_completion done[BATCH];
    int n = weir_queue_reap(work.queue, done, BATCH);

    if (n < 0)
        work_fail("weir_queue_reap", n);
    for (int i = 0; i < n; i++) {
        weir_acquisition *acquisition = work_completed(&work, &done[i]);

        if (acquisition)
            hold(acquisition);
    }
    work_submit(&work);
}

/* Attaches an eventfd. It stays in the loop: the next acquisition could be attached to it. */
static int attach_alone(void)
{
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), r;

    if (event_fd < 0)
        work_fail("eventfd", -errno);
    r = weir_acquisition_attach(work.alone, event_fd);
    if (r < 0)
        work_fail("weir_acquisition_attach", r);
    return event_fd;
}

static void alone_decided(int event_fd)
{
    uint64_t decided;

    if (read(event_fd, &decided, sizeof(decided)) == sizeof(decided))
        work_alone_decided(&work);
}

int main(void)
{
    struct pollfd fds[2];
    struct timespec buffer;

    work_begin(&work);
    fds[0] = (struct pollfd){weir_queue_fd(work.queue), POLLIN, 0};
    fds[1] = (struct pollfd){attach_alone(), POLLIN, 0};
    if (fds[0].fd < 0)
        work_fail("weir_queue_fd", fds[0].fd);
    while (!work_is_over(&work)) {
        if (ppoll(fds, 2, until_next(&buffer), NULL) < 0) {
            if (errno == EINTR)
                continue;
            work_fail("ppoll", -errno);
        }
        if (fds[0].revents)
            reap();
        if (fds[1].revents)
            alone_decided(fds[1].fd);
        release_what_is_due();
    }
    close(fds[1].fd);
    return work_finish(&work);
}

/* SPDX-License-Identifier: MIT */
/*
 * An alarm: a descriptor that becomes readable at an instant, and when it is rung, which any thread
 * may do, until whoever it is for silences it.
 *
 * Where the kernel lets others make a timerfd readable (TFD_IOC_SET_TICKS, which kernels have that
 * can checkpoint processes: those of the distributions do), that is all: one timerfd, and who is
 * woken by it waits for no epoll behind his own. Elsewhere an eventfd is rung. There, and if the
 * descriptor is to gather others as well, it is an epoll over what there is.
 *
 * Everything is under the lock of whom the alarm belongs to, but where it says without.
 */
#ifndef WEIR_CORE_WAIT_WAKE_FD_H
#define WEIR_CORE_WAIT_WAKE_FD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* First what whoever rings writes and whoever is woken reads. */
struct wake_fd {
    int timer_fd;
    int event_fd;           /* what is rung; -1: the timerfd */
    _Atomic uint32_t users; /* without the lock: rings under way, and others; a futex */
    bool signaled;          /* since it was silenced: it is readable, or is about to be */
    bool maybe_readable;    /* it may be readable because of a ring, even if silenced */
    bool reader_active;     /* somebody is about to look for himself: it need not be rung */
    bool failing;           /* the instant could not be set */
    uint64_t at_ns;         /* the instant; WEIR_FOREVER: none */
    int epoll_fd;           /* over these and others; -1: there is no need */
    uint32_t set_ahead_ns;  /* so much before at_ns the timer was set */
    uint32_t lead_ns;       /* and is to be set the next time */
    _Atomic bool closing;   /* somebody waits for the last user */
};

/* No descriptors yet. */
void wake_fd_init(struct wake_fd *wake_fd);

/* `gathers`: others are to be added to wake_fd_pollable. Returns 0 or a negative errno. */
int wake_fd_open(struct wake_fd *wake_fd, bool gathers);
void wake_fd_close(struct wake_fd *wake_fd);

static inline bool wake_fd_is_open(const struct wake_fd *wake_fd)
{
    return wake_fd->timer_fd >= 0;
}

/* What to wait for. */
static inline int wake_fd_pollable(const struct wake_fd *wake_fd)
{
    return wake_fd->epoll_fd >= 0 ? wake_fd->epoll_fd : wake_fd->timer_fd;
}

/* Rings it, unless it was. */
void wake_fd_signal(struct wake_fd *wake_fd);

/*
 * The same in two steps, so that who is woken does not meet the lock. wake_fd_claim: whether there is
 * anything to be done, and then whoever claimed is a user. wake_fd_write, without the lock: the system
 * call; if it fails, wake_fd_fall_back, under the lock again. Then wake_fd_leave.
 */
bool wake_fd_claim(struct wake_fd *wake_fd);
int wake_fd_write(const struct wake_fd *wake_fd);
void wake_fd_fall_back(struct wake_fd *wake_fd);

/*
 * Without the lock: users, who use what goes when the alarm is closed. wake_fd_enter: false, and no
 * user, if that is about to be. wake_fd_await_users: there is none any more, nor will there be.
 */
bool wake_fd_enter(struct wake_fd *wake_fd);
void wake_fd_leave(struct wake_fd *wake_fd);
void wake_fd_await_users(struct wake_fd *wake_fd);

/* A ring that was claimed may sound only now: then it is heard the next time. */
void wake_fd_clear(struct wake_fd *wake_fd);

/* Also wakes an edge-triggered loop to which it was readable before. */
void wake_fd_signal_again(struct wake_fd *wake_fd);

/*
 * Sets the instant; that an earlier one has come is taken back. If it cannot be set it is none, and
 * rings. The descriptor becomes readable a moment before, by as much as it has lately taken at least
 * to wake up: 2 to 8 us.
 */
void wake_fd_set_timer(struct wake_fd *wake_fd, uint64_t at_ns);

/* By then somebody runs whom it may have woken. */
void wake_fd_adapt_lead(struct wake_fd *wake_fd, uint64_t now_ns);

/* Whether its instant stands for a ring that failed, as far as it can be told. */
static inline bool wake_fd_fell_back(const struct wake_fd *wake_fd)
{
    return wake_fd->at_ns == 0;
}

/* Whether the instant is to come, but the descriptor may be readable for it. */
static inline bool wake_fd_is_ahead(const struct wake_fd *wake_fd, uint64_t now_ns)
{
    return now_ns < wake_fd->at_ns && wake_fd->at_ns - now_ns <= wake_fd->set_ahead_ns;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A descriptor that becomes readable when a time has come, or when any thread signals it. It stays
 * readable until its reader clears it. Signals begin with wake_fd_watch(): a program that only asks
 * pays for none.
 *
 * Some kernels let a process expire a timerfd (TFD_IOC_SET_TICKS, in kernels that can checkpoint
 * processes, as those of the distributions). There one timerfd is all, and a reader is woken
 * through no epoll instance. Elsewhere an eventfd is signaled. In that case, and if the descriptor
 * has to gather others, it is an epoll instance over its parts.
 *
 * The lock of the owner (`wait_timer.lock`) protects everything, except where a comment says "no
 * lock".
 */
#ifndef WEIR_CORE_WAIT_WAKE_FD_H
#define WEIR_CORE_WAIT_WAKE_FD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* First the fields that a signaling thread writes and a woken thread reads. */
struct wake_fd {
    int timer_fd;
    int event_fd;           /* signaled; -1: timer_fd is signaled */
    _Atomic uint32_t users; /* threads that use the descriptors; futex; no lock */
    bool signaled;          /* since the last clear: readable, or about to be */
    bool maybe_readable;    /* perhaps readable by a signal, even if cleared */
    bool reader_active;     /* a thread is about to read the state: no signal needed */
    _Atomic bool watched;   /* a thread may wait for it; set under the lock */
    bool failing;           /* the expiry could not be set */
    uint64_t at_ns;         /* expiry, ns; WEIR_FOREVER: none */
    int epoll_fd;           /* over all descriptors; -1: not needed */
    uint32_t set_ahead_ns;  /* how long before at_ns the timer was armed, ns */
    uint32_t lead_ns;       /* the next value of set_ahead_ns */
    _Atomic bool closing;   /* a thread waits for the last user; no lock */
};

/* Initializes the fields; opens no descriptors. */
void wake_fd_init(struct wake_fd *wake_fd);

/* Opens the descriptors. `gathers`: the caller will add others to wake_fd_pollable(). Returns 0 or
 * a negative errno. */
int wake_fd_open(struct wake_fd *wake_fd, bool gathers);
void wake_fd_close(struct wake_fd *wake_fd);

/* Signals from now on. The caller looks for what was due before. */
static inline void wake_fd_watch(struct wake_fd *wake_fd)
{
    atomic_store_explicit(&wake_fd->watched, true, memory_order_release);
}

/* No lock: once it is true it stays so while the descriptor is open. */
static inline bool wake_fd_is_watched(const struct wake_fd *wake_fd)
{
    return atomic_load_explicit(&wake_fd->watched, memory_order_acquire);
}

static inline bool wake_fd_is_open(const struct wake_fd *wake_fd)
{
    return wake_fd->timer_fd >= 0;
}

/* Returns the descriptor to wait for. */
static inline int wake_fd_pollable(const struct wake_fd *wake_fd)
{
    return wake_fd->epoll_fd >= 0 ? wake_fd->epoll_fd : wake_fd->timer_fd;
}

/* Makes the descriptor readable, unless it is signaled already or not watched. */
void wake_fd_signal(struct wake_fd *wake_fd);

/*
 * Signal in steps, so that a woken thread does not meet the lock:
 * 1. wake_fd_claim(), lock held: returns whether a signal is needed. The caller is then a user.
 * 2. wake_fd_write(), lock released: makes the system call.
 * 3. wake_fd_fall_back(), lock held again: only if the system call failed.
 * 4. wake_fd_leave().
 */
bool wake_fd_claim(struct wake_fd *wake_fd);
int wake_fd_write(const struct wake_fd *wake_fd);
void wake_fd_fall_back(struct wake_fd *wake_fd);

/*
 * Count the users of what goes when the descriptor is closed. No lock. wake_fd_enter() returns
 * false, and counts no user, if the descriptor is about to be closed. wake_fd_await_users() returns
 * when there are no users, and allows no new ones.
 */
bool wake_fd_enter(struct wake_fd *wake_fd);
void wake_fd_leave(struct wake_fd *wake_fd);
void wake_fd_await_users(struct wake_fd *wake_fd);

/* Makes the descriptor unreadable. A signal that was claimed but not yet written may arrive later;
 * then the next clear consumes it. */
void wake_fd_clear(struct wake_fd *wake_fd);

/* Clears and signals, which wakes an edge-triggered loop even if the descriptor was readable
 * before. */
void wake_fd_signal_again(struct wake_fd *wake_fd);

/*
 * Sets the expiry, and takes back an earlier expiry that has come. If that fails, no expiry is set
 * and the descriptor is signaled. The timer is armed ahead by `lead_ns`, the least latency of a
 * wake-up seen lately: 2 to 8 us.
 */
void wake_fd_set_timer(struct wake_fd *wake_fd, uint64_t at_ns);

/* Adapts `lead_ns`. At `now_ns` a thread was running that the timer may have woken. */
void wake_fd_adapt_lead(struct wake_fd *wake_fd, uint64_t now_ns);

/* Returns whether the expiry stands for a signal that failed, as far as that can be told. */
static inline bool wake_fd_fell_back(const struct wake_fd *wake_fd)
{
    return wake_fd->at_ns == 0;
}

/* Returns whether the expiry is still to come, but the descriptor may be readable for it. */
static inline bool wake_fd_is_ahead(const struct wake_fd *wake_fd, uint64_t now_ns)
{
    return now_ns < wake_fd->at_ns && wake_fd->at_ns - now_ns <= wake_fd->set_ahead_ns;
}

#endif

/* SPDX-License-Identifier: MIT */
/* A timerfd that is signaled as well, or an eventfd and an epoll instance in its place. */
#include "wait/wake_fd.h"

#include "base/invariant.h"
#include "os/os.h"
#include <weir/error.h>

void wake_fd_init(struct wake_fd *wake_fd)
{
    uint32_t unused;

    wake_fd->timer_fd = wake_fd->event_fd = wake_fd->epoll_fd = -1;
    wake_fd->signaled = wake_fd->maybe_readable = wake_fd->reader_active = wake_fd->failing = false;
    atomic_store_explicit(&wake_fd->watched, false, memory_order_relaxed);
    wake_fd->at_ns = WEIR_FOREVER;
    wake_fd->set_ahead_ns = 0;
    os_timer_lead(&wake_fd->lead_ns, &unused);
}

void wake_fd_close(struct wake_fd *wake_fd)
{
    os_close(wake_fd->epoll_fd);
    os_close(wake_fd->event_fd);
    os_close(wake_fd->timer_fd);
    wake_fd_init(wake_fd);
}

/* Returns whether the timerfd can be expired on demand, and takes that expiry back; or a negative
 * errno. */
static int wake_fd_probe_timerfd(int timer_fd)
{
    int r;

    if (os_timerfd_expire(timer_fd) < 0)
        return 0;
    r = os_timerfd_set(timer_fd, WEIR_FOREVER);
    return r < 0 ? r : 1;
}

static int wake_fd_open_epoll(struct wake_fd *wake_fd)
{
    int r = wake_fd->epoll_fd = os_epoll_create();

    if (r >= 0)
        r = os_epoll_add(wake_fd->epoll_fd, wake_fd->timer_fd, 0);
    if (r >= 0 && wake_fd->event_fd >= 0)
        r = os_epoll_add(wake_fd->epoll_fd, wake_fd->event_fd, 0);
    return r;
}

int wake_fd_open(struct wake_fd *wake_fd, bool gathers)
{
    int r;

    WEIR_INVARIANT(!wake_fd_is_open(wake_fd));
    wake_fd_init(wake_fd);
    atomic_store_explicit(&wake_fd->closing, false, memory_order_seq_cst);
    r = wake_fd->timer_fd = os_timerfd();
    if (r >= 0)
        r = wake_fd_probe_timerfd(wake_fd->timer_fd);
    if (r == 0) {
        gathers = true;
        r = wake_fd->event_fd = os_eventfd();
    }
    if (r >= 0 && gathers)
        r = wake_fd_open_epoll(wake_fd);
    if (r < 0)
        wake_fd_close(wake_fd);
    return r < 0 ? r : 0;
}

/* ---- users ---- */

bool wake_fd_enter(struct wake_fd *wake_fd)
{
    atomic_fetch_add_explicit(&wake_fd->users, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&wake_fd->closing, memory_order_seq_cst))
        return true;
    wake_fd_leave(wake_fd);
    return false;
}

void wake_fd_leave(struct wake_fd *wake_fd)
{
    WEIR_INVARIANT(atomic_load_explicit(&wake_fd->users, memory_order_relaxed) > 0);
    if (atomic_fetch_sub_explicit(&wake_fd->users, 1, memory_order_seq_cst) == 1 &&
        atomic_load_explicit(&wake_fd->closing, memory_order_seq_cst))
        os_futex_wake((const uint32_t *)(uintptr_t)&wake_fd->users, false);
}

void wake_fd_await_users(struct wake_fd *wake_fd)
{
    const uint32_t *futex = (const uint32_t *)(uintptr_t)&wake_fd->users;
    uint32_t users;

    atomic_store_explicit(&wake_fd->closing, true, memory_order_seq_cst);
    while ((users = atomic_load_explicit(&wake_fd->users, memory_order_seq_cst)) != 0)
        os_futex_wait(futex, false, users, WEIR_FOREVER);
}

/* ---- signals ---- */

bool wake_fd_claim(struct wake_fd *wake_fd)
{
    if (wake_fd->reader_active || wake_fd->signaled || !wake_fd_is_watched(wake_fd))
        return false;
    wake_fd->signaled = wake_fd->maybe_readable = true;
    atomic_fetch_add_explicit(&wake_fd->users, 1, memory_order_seq_cst);
    return true;
}

int wake_fd_write(const struct wake_fd *wake_fd)
{
    WEIR_INVARIANT(wake_fd_is_open(wake_fd));
    return wake_fd->event_fd >= 0 ? os_eventfd_add(wake_fd->event_fd, 1)
                                  : os_timerfd_expire(wake_fd->timer_fd);
}

/* Signals by an expiry that has passed, when the descriptor can no longer be signaled. A sandbox
 * may have been entered, or the program may have closed a descriptor that is not its own. */
void wake_fd_fall_back(struct wake_fd *wake_fd)
{
    WEIR_INVARIANT(wake_fd_is_open(wake_fd));
    wake_fd->signaled = false;
    wake_fd->at_ns = 0;
    os_timerfd_set(wake_fd->timer_fd, 0);
}

void wake_fd_signal(struct wake_fd *wake_fd)
{
    if (!wake_fd_claim(wake_fd))
        return;
    if (wake_fd_write(wake_fd) < 0)
        wake_fd_fall_back(wake_fd);
    wake_fd_leave(wake_fd);
}

/* Returns whether a claimed signal may be unwritten. Call before the descriptor is drained: if
 * there are no users then, the drain consumes every signal that was claimed. */
static bool wake_fd_has_late_signal(const struct wake_fd *wake_fd)
{
    return atomic_load_explicit(&wake_fd->users, memory_order_seq_cst) != 0;
}

/* Arms the timer again after a read, which consumes its expiry too. If the armed time is still
 * ahead, the timer needs nothing. */
static void wake_fd_restore_timer(struct wake_fd *wake_fd)
{
    uint64_t now_ns;

    if (wake_fd->event_fd >= 0 || wake_fd->at_ns == WEIR_FOREVER)
        return;
    now_ns = os_now_ns();
    if (now_ns >= wake_fd->at_ns || wake_fd_is_ahead(wake_fd, now_ns))
        wake_fd_set_timer(wake_fd, wake_fd->at_ns);
}

void wake_fd_clear(struct wake_fd *wake_fd)
{
    int fd = wake_fd->event_fd >= 0 ? wake_fd->event_fd : wake_fd->timer_fd;
    bool late = wake_fd_has_late_signal(wake_fd);
    uint64_t count;

    wake_fd->signaled = false;
    if (!wake_fd->maybe_readable)
        return;
    if (os_read(fd, &count, sizeof(count)) >= 0) {
        wake_fd->maybe_readable = late;
        wake_fd_restore_timer(wake_fd);
    }
}

void wake_fd_signal_again(struct wake_fd *wake_fd)
{
    wake_fd_clear(wake_fd);
    wake_fd_signal(wake_fd);
}

/* ---- expiry ---- */

void wake_fd_set_timer(struct wake_fd *wake_fd, uint64_t at_ns)
{
    bool signaled = wake_fd->signaled, late = wake_fd_has_late_signal(wake_fd);
    uint32_t ahead_ns = at_ns != WEIR_FOREVER && at_ns > wake_fd->lead_ns ? wake_fd->lead_ns : 0;

    WEIR_INVARIANT(wake_fd_is_open(wake_fd));
    wake_fd->failing = os_timerfd_set(wake_fd->timer_fd, at_ns - ahead_ns) < 0;
    wake_fd->at_ns = wake_fd->failing ? WEIR_FOREVER : at_ns;
    wake_fd->set_ahead_ns = ahead_ns;
    if (wake_fd->failing) {
        wake_fd_signal_again(wake_fd); /* the thread that handles it tries again */
    } else if (wake_fd->event_fd < 0) {
        wake_fd->signaled = false; /* arming the timer cleared the signal as well */
        wake_fd->maybe_readable = late;
        if (signaled)
            wake_fd_signal(wake_fd);
    }
}

/* Takes a shorter lead immediately, since a thread that comes before the expiry has to wait for it.
 * Approaches a longer lead by 1/16 of the difference. */
void wake_fd_adapt_lead(struct wake_fd *wake_fd, uint64_t now_ns)
{
    uint64_t expired_ns = wake_fd->at_ns - wake_fd->set_ahead_ns, took_ns;
    uint32_t least_ns, most_ns;

    if (wake_fd->at_ns == WEIR_FOREVER || now_ns < expired_ns)
        return;
    os_timer_lead(&least_ns, &most_ns);
    WEIR_INVARIANT(wake_fd->lead_ns >= least_ns && wake_fd->lead_ns <= most_ns);
    took_ns = now_ns - expired_ns;
    if (took_ns > most_ns)
        took_ns = most_ns;
    if (took_ns < least_ns)
        took_ns = least_ns;
    if (took_ns < wake_fd->lead_ns)
        wake_fd->lead_ns = (uint32_t)took_ns;
    else
        wake_fd->lead_ns += (uint32_t)(took_ns - wake_fd->lead_ns + 15) / 16;
}

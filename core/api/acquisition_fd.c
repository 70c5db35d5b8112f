/* SPDX-License-Identifier: MIT */
/* The descriptor of an acquisition, made by weir or the program's own, and its signal. */
#include "api/acquisition.h"

#include "os/os.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include "wait/cq.h"
#include "wait/direct_wait.h"
#include <errno.h>
#include <sys/stat.h>

static void acquisition_wake_blocked(const weir_acquisition *acquisition)
{
    const uint32_t *futex = record_futex(set_record(acquisition->set, acquisition->record));

    WEIR_INVARIANT(acquisition->record);
    os_futex_wake(futex, set_is_shared(acquisition->set));
}

int acquisition_signal(weir_acquisition *acquisition)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (acquisition->has_blocked_thread)
        acquisition_wake_blocked(acquisition);
    if (acquisition->fd < 0 || acquisition->signaled)
        return 0;
    if (acquisition->grants_only && acquisition_state(acquisition) != RECORD_HELD)
        return 0;
    /* Adding 1 to an eventfd fails only if the program closed the descriptor. */
    r = acquisition->direct ? direct_wait_signal(acquisition) : os_eventfd_add(acquisition->fd, 1);
    acquisition->signaled = r == 0;
    return r;
}

void acquisition_look_direct(weir_acquisition *acquisition)
{
    weir *w = acquisition->set->w;

    lock_take(&instance_wait(w)->timer.lock);
    direct_wait_check(acquisition);
    lock_release(&instance_wait(w)->timer.lock);
    if (acquisition_state(acquisition) != RECORD_WAITING)
        timer_notify(w, acquisition->waiter, waiter_word(w, acquisition->waiter));
}

/* Checks that `fd` is an eventfd. An anonymous inode has no file type bits; a write of 0 to it is
 * harmless, fails if it is no eventfd, and wakes no reader. */
static int acquisition_check_eventfd(int fd)
{
    struct stat found;
    int r = os_fstat(fd, &found);

    if (r < 0)
        return r;
    if (found.st_mode & S_IFMT)
        return -EINVAL;
    return os_eventfd_add(fd, 0);
}

/* Gives the acquisition a descriptor, unless it has one of this kind, and signals it if the
 * acquisition is already decided. Later decisions signal it themselves. The caller holds the wait
 * timer's lock. Returns the descriptor. */
static int acquisition_set_fd(weir_acquisition *acquisition, int fd, bool attached,
                              bool grants_only)
{
    int r = 0;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (acquisition->fd >= 0 && (attached || acquisition->grants_only != grants_only))
        return -EINVAL;
    if (acquisition->fd < 0) {
        if (!attached)
            fd = grants_only ? -1 : direct_wait_begin(acquisition);
        if (fd < 0)
            fd = os_eventfd();
        if (fd < 0)
            return fd;
        acquisition->fd = fd;
        acquisition->attached = attached;
        acquisition->grants_only = grants_only;
    }
    acquisition->fast_ctx = NULL; /* the fast path would not close the descriptor */
    if (acquisition_state(acquisition) != RECORD_WAITING)
        r = acquisition_signal(acquisition);
    if (r < 0 && attached) {
        acquisition->fd = -1;
        acquisition->attached = false;
    }
    return r < 0 ? r : acquisition->fd;
}

/* Returns the descriptor: the program's `fd` if `attached`, else made if there is none yet. */
static int acquisition_get_fd(weir_acquisition *acquisition, int fd, bool attached,
                              bool grants_only)
{
    weir *w;
    int r = 0;

    if (!acquisition)
        return -EINVAL;
    w = acquisition->set->w;
    if (instance_is_forked(w))
        return -ECHILD;
    if (cq_has_acquisition(acquisition))
        return -EBUSY;
    if (attached)
        r = acquisition_check_eventfd(fd);
    if (r < 0)
        return r;
    lock_take(&instance_wait(w)->timer.lock);
    r = acquisition_set_fd(acquisition, fd, attached, grants_only);
    lock_release(&instance_wait(w)->timer.lock);
    return r;
}

int weir_acquisition_fd(weir_acquisition *acquisition)
{
    return acquisition_get_fd(acquisition, -1, false, false);
}

int weir_acquisition_grant_fd(weir_acquisition *acquisition)
{
    return acquisition_get_fd(acquisition, -1, false, true);
}

int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd)
{
    int r = acquisition_get_fd(acquisition, event_fd, true, false);

    return r < 0 ? r : 0;
}

/* Makes the descriptor of a loss. Returns it, or a negative errno. */
static int acquisition_new_lost_fd(weir_acquisition *acquisition)
{
    const weir_set *set = acquisition->set;
    int fd = os_eventfd(), r;

    if (fd < 0)
        return fd;
    r = set->ops->watch_loss(set, acquisition->record, fd);
    if (r < 0) {
        os_close(fd);
        return r;
    }
    acquisition->lost_fd = fd;
    return fd;
}

int weir_acquisition_lost_fd(weir_acquisition *acquisition)
{
    if (!acquisition)
        return -EINVAL;
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    acquisition = acquisition_granted(acquisition);
    if (acquisition->lost_fd >= 0)
        return acquisition->lost_fd;
    if (acquisition_state(acquisition) != RECORD_HELD)
        return acquisition_state(acquisition) == RECORD_REVOKED ? -EOWNERDEAD : -EINVAL;
    if (!acquisition->set->ops->watch_loss || !acquisition->record)
        return -EOPNOTSUPP;
    return acquisition_new_lost_fd(acquisition);
}

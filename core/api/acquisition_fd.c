/* SPDX-License-Identifier: MIT */
/* The descriptor of an acquisition, made by weir or the program's own, and its signal. */
#include "api/acquisition.h"

#include "os/os.h"
#include "wait/cq.h"
#include "wait/instance_wait.h"
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
    r = os_eventfd_add(acquisition->fd, 1);
    acquisition->signaled = r == 0;
    return r;
}

/* Returns the descriptor, made if there is none yet. The caller holds the wait timer's lock. */
static int acquisition_get_fd(weir_acquisition *acquisition, bool grants_only)
{
    int fd = acquisition->fd;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (fd >= 0)
        return acquisition->grants_only == grants_only ? fd : -EINVAL;
    fd = os_eventfd();
    if (fd >= 0) {
        acquisition->fd = fd;
        acquisition->grants_only = grants_only;
    }
    return fd;
}

/* Returns 0 if the acquisition may have a descriptor, else -ECHILD or -EBUSY. */
static int acquisition_check_fd(weir_acquisition *acquisition)
{
    if (instance_is_forked(acquisition->set->w))
        return -ECHILD;
    return cq_has_acquisition(acquisition) ? -EBUSY : 0;
}

/* Signals the new descriptor if the acquisition is already decided. Later decisions signal it
 * themselves. The caller holds the wait timer's lock. */
static int acquisition_signal_decided(weir_acquisition *acquisition)
{
    acquisition->fast_ctx = NULL; /* the fast path would not close the descriptor */
    return acquisition_state(acquisition) != RECORD_WAITING ? acquisition_signal(acquisition) : 0;
}

static int acquisition_open_fd(weir_acquisition *acquisition, bool grants_only)
{
    weir *w = acquisition->set->w;
    int fd, r = acquisition_check_fd(acquisition);

    if (r < 0)
        return r;
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    fd = acquisition_get_fd(acquisition, grants_only);
    if (fd >= 0)
        r = acquisition_signal_decided(acquisition);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return r < 0 ? r : fd;
}

int weir_acquisition_fd(weir_acquisition *acquisition)
{
    return acquisition_open_fd(acquisition, false);
}

int weir_acquisition_grant_fd(weir_acquisition *acquisition)
{
    return acquisition_open_fd(acquisition, true);
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

/* Attaches the program's eventfd. The caller holds the wait timer's lock. */
static int acquisition_attach_fd(weir_acquisition *acquisition, int event_fd)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&instance_wait(acquisition->set->w)->timer));
    if (acquisition->fd >= 0)
        return -EINVAL;
    acquisition->fd = event_fd;
    acquisition->attached = true;
    r = acquisition_signal_decided(acquisition);
    if (r < 0) {
        acquisition->fd = -1;
        acquisition->attached = false;
    }
    return r;
}

int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd)
{
    weir *w = acquisition->set->w;
    int r = acquisition_check_fd(acquisition);

    if (r == 0)
        r = acquisition_check_eventfd(event_fd);
    if (r < 0)
        return r;
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    r = acquisition_attach_fd(acquisition, event_fd);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return r;
}

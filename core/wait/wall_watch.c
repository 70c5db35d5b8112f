/* SPDX-License-Identifier: MIT */
/*
 * Steps of the wall clock.
 *
 * A waiter is noticed by the listener, or notices the step itself:
 * 1. The listener is armed.
 * 2. Thread A reads the clock, commits a version with a head, and schedules its recheck.
 * 3. A reads the offset of the wall clock again (wall_watch_confirm()).
 *
 * If the clock steps before 3, A finds another offset than in 2. If it steps later, the listener
 * looks at the head after that, so it finds the version of 2. A head that is blocked in
 * weir_acquire() reads the clock itself, and the look at it changes its word, so it does not fall
 * asleep, or wakes.
 */
#include "wait/wait_timer.h"

#include "base/invariant.h"
#include "os/os.h"
#include "set/try_now.h"
#include <errno.h>

/* In place of the number of a queue, which has 32 bits. */
#define WALL_WATCH_EVENT (UINT64_C(1) << 32)

void wall_watch_init(weir *w)
{
    struct instance_wait *iw = instance_wait(w);

    iw->wall_fd = -1;
    if (w->clock.injected.now_ns)
        atomic_store_explicit(&iw->wall_offset_ns, clock_wall_offset_ns(&w->clock),
                              memory_order_seq_cst);
}

void wall_watch_close(weir *w)
{
    os_close(instance_wait(w)->wall_fd);
    instance_wait(w)->wall_fd = -1;
}

/* Opens the descriptor and has the timer thread wait for it. Lock of the instance's timer held. */
static int wall_watch_open(struct instance_wait *iw)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&iw->timer));
    if (iw->wall_fd >= 0)
        return 0;
    if (!wake_fd_is_open(&iw->timer.wake_fd))
        return -ESHUTDOWN; /* the timer thread has ended since it was started */
    r = iw->wall_fd = os_wall_timerfd();
    if (r >= 0)
        r = os_wall_timerfd_arm(iw->wall_fd);
    if (r >= 0)
        r = os_epoll_add(wake_fd_pollable(&iw->timer.wake_fd), iw->wall_fd, WALL_WATCH_EVENT);
    if (r < 0)
        wall_watch_close(&iw->base);
    return r;
}

int wall_watch_start(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    int r = 0;

    if (atomic_load_explicit(&iw->wall_is_watched, memory_order_acquire))
        return 0;
    if (!w->clock.injected.now_ns) {
        r = timer_thread_start(w);
        lock_take(&iw->timer.lock);
        r = r < 0 ? r : wall_watch_open(iw);
        lock_release(&iw->timer.lock);
    }
    if (r == 0)
        atomic_store_explicit(&iw->wall_is_watched, true, memory_order_release);
    return r;
}

/* ---- noticing a step ---- */

static void wall_watch_set_stepped(weir *w)
{
    atomic_store_explicit(&instance_wait(w)->wall_has_stepped, true, memory_order_seq_cst);
}

void wall_watch_confirm(const weir_set *set, int64_t offset_ns)
{
    weir *w = set->w;
    struct instance_wait *iw = instance_wait(w);

    atomic_thread_fence(memory_order_seq_cst); /* the commit comes before the reading */
    if (w->clock.injected.now_ns) {
        if (atomic_load_explicit(&iw->wall_offset_ns, memory_order_seq_cst) != offset_ns)
            wall_watch_set_stepped(w); /* for the next tick, even if the clock is back by then */
    } else if (clock_wall_offset_from_ns(&w->clock, set->limits.clock_needs) != offset_ns) {
        wall_watch_set_stepped(w);
        timer_thread_signal(w);
    }
}

/* Arms the listener again, before the heads are looked at: a step from here on is another event. */
static bool wall_watch_rearm(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    int r;

    lock_take(&iw->timer.lock);
    r = os_wall_timerfd_arm(iw->wall_fd);
    lock_release(&iw->timer.lock);
    wall_watch_set_stepped(w);
    return r >= 0;
}

bool wall_watch_take_event(weir *w, uint64_t *events, int n)
{
    bool is_armed = true;

    for (int i = 0; i < n; i++) {
        if (events[i] != WALL_WATCH_EVENT)
            continue;
        events[i] = 0;
        is_armed = wall_watch_rearm(w);
    }
    return is_armed;
}

/* ---- looking at the heads ---- */

/* Returns the set with this id if it is one of which waiters may depend on a step, else NULL.
 * Without the lock it might be one that is removed again, because its pool cannot be made. */
static weir_set *wall_watch_find(weir *w, uint32_t id)
{
    bool is_key_set = (id & KEY_SET_ID_BIT) != 0;
    weir_set *set = NULL;
    uint32_t n;

    pthread_mutex_lock(&w->lock);
    n = is_key_set ? w->key_sets_n : atomic_load_explicit(&w->sets_n, memory_order_seq_cst);
    if ((id & ~KEY_SET_ID_BIT) < n)
        set = instance_set(w, id);
    if (set && set_is_shared(set)) /* its definitions have one id */
        set = set_newest(set);
    /* What this process has asked for nothing has no waiter of this process. */
    if (set && (!set->limits.clock_needs ||
                !atomic_load_explicit(&instance_set(w, set->number)->spare_prepared,
                                      memory_order_seq_cst)))
        set = NULL;
    pthread_mutex_unlock(&w->lock);
    return set;
}

/* Looks at the heads of `n` sets, from the one with the id `first` on. Returns how many waiters
 * were decided. */
static int wall_watch_look(weir *w, uint32_t first, uint32_t n)
{
    int decided = 0;

    for (uint32_t i = 0; i < n; i++) {
        weir_set *set = wall_watch_find(w, first + i);

        if (set && !set->is_keyed && try_now_has_queue(set_current(set)))
            decided += timer_look_at_head(set);
    }
    return decided;
}

static uint32_t wall_watch_key_sets_n(weir *w)
{
    uint32_t n;

    pthread_mutex_lock(&w->lock);
    n = w->key_sets_n;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Sets that are added meanwhile have no waiters yet, and theirs read the clock after this. */
int wall_watch_run(weir *w)
{
    if (!atomic_load_explicit(&instance_wait(w)->wall_has_stepped, memory_order_seq_cst) ||
        !atomic_exchange_explicit(&instance_wait(w)->wall_has_stepped, false, memory_order_seq_cst))
        return 0;
    return wall_watch_look(w, 0, atomic_load_explicit(&w->sets_n, memory_order_seq_cst)) +
           wall_watch_look(w, KEY_SET_ID_BIT, wall_watch_key_sets_n(w));
}

int wall_watch_tick(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    int64_t offset_ns;

    if (!w->clock.injected.now_ns ||
        !atomic_load_explicit(&iw->wall_is_watched, memory_order_seq_cst))
        return 0;
    offset_ns = clock_wall_offset_ns(&w->clock);
    /* Exchanged before the heads are looked at: a head that is committed after that finds the new
     * offset. */
    if (atomic_exchange_explicit(&iw->wall_offset_ns, offset_ns, memory_order_seq_cst) != offset_ns)
        wall_watch_set_stepped(w);
    return wall_watch_run(w);
}

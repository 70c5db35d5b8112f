/* SPDX-License-Identifier: MIT */
/* Doorbells and peer watches of a wait timer, and their relay through the timer thread. */
#include "wait/wait_timer.h"

#include "base/invariant.h"
#include "os/os.h"
#include "peer/peer.h"
#include "set/waiter.h"
#include "shm/doorbell.h"
#include "shm/participant.h"
#include <errno.h>

struct peer_events {
    struct peer_events *next;
    weir_set *set;
    int fd;
};

/* All definitions of a shared set have one participant, and so one doorbell. */
static struct peer_events *peer_events_find(const struct wait_timer *timer, const weir_set *set)
{
    struct peer_events *events = atomic_load_explicit(&timer->peer_events, memory_order_acquire);

    while (events && events->set->participant != set->participant)
        events = events->next;
    return events;
}

/* Adds doorbell and peer watch to the wake fd. With an injected clock only weir_tick() attends to
 * the timer of the instance, and it looks without being woken. */
static int peer_events_epoll_add(const struct wait_timer *timer, const struct peer_events *events)
{
    int epoll_fd = timer->wake_fd.epoll_fd, r;
    const weir *w = timer->w;

    if (epoll_fd < 0 || (!timer->number && w->clock.injected.now_ns))
        return 0;
    r = os_epoll_add(epoll_fd, events->fd, 0);
    if (r < 0)
        return r;
    r = os_epoll_add(epoll_fd, events->set->participant->peer_watch.epoll_fd, 0);
    if (r < 0)
        os_epoll_remove(epoll_fd, events->fd);
    return r;
}

/* Removes both descriptors explicitly: closing is not enough if a forked child has them as well. */
static void peer_events_epoll_remove(const struct wait_timer *timer,
                                     const struct peer_events *events)
{
    if (timer->wake_fd.epoll_fd < 0)
        return;
    os_epoll_remove(timer->wake_fd.epoll_fd, events->fd);
    os_epoll_remove(timer->wake_fd.epoll_fd, events->set->participant->peer_watch.epoll_fd);
}

/* Adds a doorbell to the timer thread's epoll set. The timer thread watches for dead peers with its
 * own timer, which outlives this one. */
static int peer_events_relay_one(const struct wait_timer *timer, const struct peer_events *events)
{
    struct wait_timer *own = timer_at(timer->w, 0);
    int r;

    if (!wake_fd_is_open(&own->wake_fd))
        return 0; /* the instance is closed */
    r = peer_events_subscribe(own, events->set);
    return r < 0 ? r : os_epoll_add(wake_fd_pollable(&own->wake_fd), events->fd, timer->number);
}

/* Ends the relay of all doorbells, unless the timer thread has ended. */
static void peer_events_unrelay_all(const struct wait_timer *timer)
{
    struct peer_events *events = atomic_load_explicit(&timer->peer_events, memory_order_seq_cst);
    struct wait_timer *own = timer_at(timer->w, 0);

    lock_take(&own->lock);
    for (; events && wake_fd_is_open(&own->wake_fd); events = events->next)
        os_epoll_remove(wake_fd_pollable(&own->wake_fd), events->fd);
    lock_release(&own->lock);
}

/* Returns whether events reach the timer only through the timer thread: its wake fd has no epoll
 * instance. */
static bool peer_events_needs_relay(const struct wait_timer *timer)
{
    return wake_fd_is_open(&timer->wake_fd) && timer->wake_fd.epoll_fd < 0;
}

int peer_events_relay(struct wait_timer *timer)
{
    struct peer_events *events = atomic_load_explicit(&timer->peer_events, memory_order_seq_cst);
    int r = 0;

    WEIR_INVARIANT(timer_is_locked(timer));
    WEIR_INVARIANT(!timer->is_relayed);
    if (peer_events_needs_relay(timer))
        return 0;
    for (; events && r == 0; events = events->next)
        r = peer_events_relay_one(timer, events);
    if (r < 0)
        peer_events_unrelay_all(timer);
    timer->is_relayed = r == 0;
    return r;
}

void peer_events_end_relay(struct wait_timer *timer)
{
    WEIR_INVARIANT(timer_is_locked(timer));
    if (timer->is_relayed)
        peer_events_unrelay_all(timer);
    timer->is_relayed = false;
}

/* Makes events wake the thread that runs the timer. */
static int peer_events_register(const struct wait_timer *timer, const struct peer_events *events)
{
    int r = peer_events_needs_relay(timer) ? timer_thread_start(timer->w)
                                           : peer_events_epoll_add(timer, events);

    if (r < 0 || !(timer->is_relayed || peer_events_needs_relay(timer)))
        return r;
    r = peer_events_relay_one(timer, events);
    if (r < 0)
        peer_events_epoll_remove(timer, events);
    return r;
}

static void peer_events_close_one(const struct wait_timer *timer, struct peer_events *events)
{
    if (events->fd >= 0)
        participant_close_doorbell(events->set->participant, timer->number, events->fd);
    os_free(events);
}

/* Opens the doorbell of a set. The timer's lock is held. */
static int peer_events_open(struct wait_timer *timer, weir_set *set)
{
    struct peer_events *events = os_alloc(1, sizeof(*events));
    int r;

    WEIR_INVARIANT(timer_is_locked(timer));
    WEIR_INVARIANT(set->w == timer->w);
    if (!events)
        return -ENOMEM;
    events->set = set;
    r = events->fd = participant_open_doorbell(set->participant, timer->number);
    if (r == -ENOSPC)
        r = -ENOMEM; /* as for all memory in a segment; -ENOSPC says that a queue is full */
    if (r >= 0)
        r = peer_events_register(timer, events);
    if (r < 0) {
        peer_events_close_one(timer, events);
        return r;
    }
    events->next = atomic_load_explicit(&timer->peer_events, memory_order_seq_cst);
    atomic_store_explicit(&timer->peer_events, events, memory_order_release);
    return 0;
}

int peer_events_subscribe(struct wait_timer *timer, weir_set *set)
{
    int r = 0;

    WEIR_INVARIANT(set->participant);
    if (peer_events_find(timer, set))
        return 0;
    lock_take(&timer->lock);
    if (!peer_events_find(timer, set))
        r = peer_events_open(timer, set);
    lock_release(&timer->lock);
    return r;
}

/*
 * Rechecks or notifies a waiter of this process, by what its word says. A FREE record needs
 * nothing: the event was for an earlier use, and the record is about to enter the set or was
 * returned. Waiters of a broken set find that out by themselves.
 */
static void peer_events_recheck(void *userdata, uint32_t record, uint32_t waiter)
{
    weir_set *set = userdata;
    uint64_t word = waiter_word(set->w, waiter);

    (void)record;
    if (record_state(word) == RECORD_FREE || set_is_broken(set))
        return;
    if (record_state(word) == RECORD_WAITING)
        timer_arm_recheck(set->w, waiter, word, clock_now_ns(&set->w->clock));
    else
        timer_notify(set->w, waiter, word);
}

static void peer_events_handle_one(const struct wait_timer *timer, const struct peer_events *events)
{
    weir_set *set = events->set;
    uint32_t records[DOORBELL_READ_MAX], waiter;
    bool overflowed = false;
    int n = doorbell_read(events->fd, records, DOORBELL_READ_MAX, &overflowed);

    WEIR_INVARIANT(set->participant);
    participant_beat(set->participant, timer->number, clock_now_ns(&set->w->clock));
    for (int i = 0; i < n; i++)
        if ((waiter = participant_waiter(set->participant, records[i])) != 0)
            peer_events_recheck(set, records[i], waiter);
    if (overflowed)
        participant_each_waiter(set->participant, peer_events_recheck, set);
    peer_reap(NULL, set);
}

/* Returns whether waiters of this process may depend on the timer: some that it keeps the time of
 * (each of a shared set is in its heap until it is notified), or threads that are blocked. */
static bool peer_events_have_waiters(struct wait_timer *timer)
{
    bool has_waiters;

    lock_take(&timer->lock);
    has_waiters = timer->heap.n > 0;
    lock_release(&timer->lock);
    return has_waiters ||
           (!timer->number &&
            atomic_load_explicit(&instance_wait(timer->w)->blocked_n, memory_order_seq_cst) > 0);
}

/*
 * Checks all shared sets of the timer, and schedules the next check. A waiter that comes meanwhile
 * schedules one itself: the last one was taken before the timer's waiters are counted. Returns how
 * many waiters were decided.
 */
static int peer_events_check_stalls(struct wait_timer *timer)
{
    const struct peer_events *events =
        atomic_load_explicit(&timer->peer_events, memory_order_acquire);
    uint64_t at_ns, next_ns = WEIR_FOREVER;
    int decided = 0;

    if (!peer_events_have_waiters(timer))
        return 0;
    for (; events; events = events->next) {
        decided += stall_check_set(events->set, &at_ns);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    if (next_ns != WEIR_FOREVER)
        timer_arm_stall_check(timer, next_ns);
    return decided;
}

int peer_events_handle_all(struct wait_timer *timer)
{
    struct peer_events *events;
    int decided = 0;

    if (!wake_fd_enter(&timer->wake_fd))
        return 0;
    events = atomic_load_explicit(&timer->peer_events, memory_order_acquire);
    for (; events; events = events->next)
        peer_events_handle_one(timer, events);
    if (timer_take_stall_check(timer))
        decided = peer_events_check_stalls(timer);
    wake_fd_leave(&timer->wake_fd);
    return decided;
}

void peer_events_close(struct wait_timer *timer)
{
    struct peer_events *events, *next;

    if (peer_events_needs_relay(timer))
        peer_events_unrelay_all(timer);
    events = atomic_exchange_explicit(&timer->peer_events, NULL, memory_order_seq_cst);
    for (; events; events = next) {
        next = events->next;
        peer_events_close_one(timer, events);
    }
}

void peer_events_close_in_child(struct wait_timer *timer)
{
    struct peer_events *events =
        atomic_exchange_explicit(&timer->peer_events, NULL, memory_order_seq_cst);

    for (; events; events = events->next)
        os_close(events->fd);
}

/* SPDX-License-Identifier: MIT */
/* The timer thread of an instance. */
#include "wait/cq.h"

#include "base/backoff.h"
#include "base/invariant.h"
#include "os/os.h"
#include "set/waiter.h"
#include <errno.h>

/* How long the thread rests after an unexpected error of the kernel, ns. */
#define TIMER_THREAD_RETRY_NS UINT64_C(10000000)

/* Events per epoll call. Data 0 is the wake fd of the instance; other data is the number of a
 * queue. */
enum { TIMER_THREAD_EVENTS_MAX = 16 };

/* Clears the wake fd. Returns whether the thread was signaled, or may have been. */
static bool timer_thread_take_signal(struct wait_timer *timer)
{
    bool signaled;

    lock_take(&timer->lock);
    signaled = timer->wake_fd.signaled || wake_fd_fell_back(&timer->wake_fd);
    wake_fd_clear(&timer->wake_fd);
    lock_release(&timer->lock);
    return signaled;
}

void timer_thread_limit_spin(weir *w, uint64_t at_ns)
{
    _Atomic uint64_t *spin_until_ns = &instance_wait(w)->timer_spin_until_ns;
    uint64_t until = atomic_load_explicit(spin_until_ns, memory_order_seq_cst);

    while (at_ns < until &&
           !atomic_compare_exchange_weak_explicit(spin_until_ns, &until, at_ns,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
}

/*
 * Waits for a near deadline of the instance's timer or of those that have expired, if wake-ups are
 * set ahead. Returns whether the thread was signaled. `timer_spin_until_ns` is set before the
 * deadlines are read, so that a thread that adds an earlier one meanwhile shortens the spin.
 */
static bool timer_thread_await_due(weir *w, const uint64_t *events, int n)
{
    struct instance_wait *iw = instance_wait(w);
    uint64_t next_ns, now_ns;
    bool signaled;

    if (!iw->timer_advance_ns)
        return timer_thread_take_signal(&iw->timer);
    atomic_store_explicit(&iw->timer_spin_until_ns, WEIR_FOREVER, memory_order_seq_cst);
    signaled = timer_thread_take_signal(&iw->timer);
    next_ns = timer_next_ns(&iw->timer);
    for (int i = 0; i < n; i++) {
        uint64_t at_ns = timer_next_ns(timer_at(w, (uint32_t)events[i]));

        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    now_ns = os_now_ns();
    if (!signaled && next_ns > now_ns && next_ns - now_ns <= iw->timer_advance_ns) {
        timer_thread_limit_spin(w, next_ns);
        while (os_now_ns() < atomic_load_explicit(&iw->timer_spin_until_ns, memory_order_seq_cst)) {
            unsigned turn = 0;

            spin_backoff(&turn);
        }
    }
    atomic_store_explicit(&iw->timer_spin_until_ns, 0, memory_order_seq_cst);
    return signaled;
}

/* Runs the timer of a queue, if it is attached, and posts its completions. Sets `*ret_failing` if
 * that has to be done again. */
static void timer_thread_service(weir_queue *queue, bool *ret_failing)
{
    bool has_timer;

    WEIR_INVARIANT(queue); /* of a number that was given to a queue */
    lock_take(&queue->timer.lock);
    has_timer = queue->ring.has_timer;
    lock_release(&queue->timer.lock);
    if (has_timer)
        timer_run(&queue->timer, ret_failing);
    else
        peer_events_handle(&queue->timer);
    lock_take(&queue->timer.lock);
    cq_ring_flush(queue);
    cq_update_wake_fd(queue);
    lock_release(&queue->timer.lock);
    cq_ring_report_loss(queue);
}

/* Services all queues. Sets `*ret_failing` if a timer could not be set. */
static void timer_thread_service_all(weir *w, bool *ret_failing)
{
    uint32_t n = cq_count(w);

    for (uint32_t i = 1; i <= n; i++)
        timer_thread_service(cq_at(w, i), ret_failing);
}

/* Handles one batch of events; `n` < 0: it could not be read. Returns whether the thread has to
 * rest, since a timer could not be set. */
static bool timer_thread_iterate(weir *w, uint64_t *events, int n)
{
    bool failing = n < 0 || !wall_watch_take_event(w, events, n);
    bool signaled = timer_thread_await_due(w, events, n);

    if (!w->clock.injected.now_ns) {
        wall_watch_run(w);
        timer_run(timer_at(w, 0), &failing);
        wait_group_withdraw(w);
    }
    if (signaled || n < 0)
        timer_thread_service_all(w, &failing);
    for (int i = 0; i < n && !signaled; i++)
        if (events[i])
            timer_thread_service(cq_at(w, (uint32_t)events[i]), &failing);
    return failing;
}

/* Unblocks the signal of a fault in a segment once there may be one. */
static void timer_thread_expect_faults(const weir *w, bool *unblocked)
{
    if (*unblocked || !atomic_load_explicit(&w->has_shared_sets, memory_order_seq_cst))
        return;
    os_fault_unblock();
    *unblocked = true;
}

static void timer_thread_main(void *argument)
{
    weir *w = argument;
    struct instance_wait *iw = instance_wait(w);
    uint64_t events[TIMER_THREAD_EVENTS_MAX];
    bool failing = false, unblocked = false;

    /* Checked after each turn, which may have consumed the signal to stop. */
    while (!atomic_load_explicit(&iw->timer_thread_stop, memory_order_seq_cst)) {
        int n = os_epoll_wait(wake_fd_pollable(&iw->timer.wake_fd), events, TIMER_THREAD_EVENTS_MAX,
                              true);

        timer_thread_expect_faults(w, &unblocked);
        if (timer_thread_iterate(w, events, n))
            os_futex_wait((const uint32_t *)(uintptr_t)&iw->timer_thread_stop, false, 0,
                          os_now_ns() + TIMER_THREAD_RETRY_NS); /* never an injected clock's */
    }
    timer_thread_expect_faults(w, &unblocked);
    timer_thread_service_all(w, &failing); /* posts what weir_close() decided */
}

/* Starts the thread unless it runs. Lock held. */
static int timer_thread_start_locked(struct instance_wait *iw)
{
    int r;

    WEIR_INVARIANT(timer_is_locked(&iw->timer));
    if (instance_is_closed(&iw->base))
        return -ESHUTDOWN;
    if (iw->timer_thread)
        return 0;
    r = wake_fd_open(&iw->timer.wake_fd, true);
    if (r < 0)
        return r;
    wake_fd_watch(&iw->timer.wake_fd);
    r = os_thread_start(&iw->timer_thread, timer_thread_main, &iw->base, "weir-timer");
    if (r < 0)
        wake_fd_close(&iw->timer.wake_fd);
    return r;
}

int timer_thread_start(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    int r;

    lock_take(&iw->timer.lock);
    r = timer_thread_start_locked(iw);
    lock_release(&iw->timer.lock);
    return r;
}

bool timer_thread_signal(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    bool signaled;

    lock_take(&iw->timer.lock);
    if (iw->timer_thread)
        wake_fd_signal(&iw->timer.wake_fd);
    timer_thread_limit_spin(w, 0);
    signaled = iw->timer_thread && iw->timer.wake_fd.signaled;
    lock_release(&iw->timer.lock);
    return signaled;
}

int timer_thread_reserve(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    int r = 0;

    lock_take(&iw->timer.lock);
    if (instance_is_closed(w))
        r = -ESHUTDOWN;
    else if (deadline_heap_reserve(&iw->timer.heap, iw->timed_n + 1) < 0)
        r = -ENOMEM;
    else if (!w->clock.injected.now_ns)
        r = timer_thread_start_locked(iw);
    if (r == 0)
        iw->timed_n++;
    lock_release(&iw->timer.lock);
    return r;
}

void timer_thread_forget(weir *w, uint32_t record)
{
    struct instance_wait *iw = instance_wait(w);

    WEIR_INVARIANT(record);
    lock_take(&iw->timer.lock);
    WEIR_INVARIANT(iw->timed_n > 0);
    deadline_heap_remove(&iw->timer.heap, record);
    record_store(&waiter_at(w, record)->data, 0); /* no acquisition, whatever the word becomes */
    iw->timed_n--;
    lock_release(&iw->timer.lock);
}

void timer_thread_stop(weir *w)
{
    struct instance_wait *iw = instance_wait(w);

    WEIR_INVARIANT(instance_is_closed(w));
    atomic_store_explicit(&iw->timer_thread_stop, 1, memory_order_seq_cst);
    timer_thread_signal(w);
    os_thread_join(iw->timer_thread);
    for (uint32_t i = 1; i <= cq_count(w); i++)
        cq_ring_end(cq_at(w, i));
    lock_take(&iw->timer.lock);
    iw->timer_thread = NULL;
    wall_watch_close(w);
    wake_fd_close(&iw->timer.wake_fd);
    lock_release(&iw->timer.lock);
}

/* SPDX-License-Identifier: MIT */
/* The timer thread of an instance. */
#include "base/backoff.h"
#include "wait/timer_thread.h"

#include "base/invariant.h"
#include "os/os.h"
#include "set/waiter.h"
#include "wait/cq.h"
#include "wait/instance_wait.h"
#include <errno.h>

/* How long the thread rests after an unexpected error of the kernel, ns. */
#define TIMER_THREAD_RETRY_NS UINT64_C(10000000)

/* Events per epoll call. Data 0 is the wake fd of the instance; other data is the number of a
 * queue. */
enum { TIMER_THREAD_EVENTS_MAX = 16 };

/* Clears the wake fd. Returns whether the thread was signaled, or may have been. */
static bool timer_thread_take_signal(weir *w)
{
    struct wait_timer *timer = &instance_wait(w)->timer;
    bool signaled;

    pthread_mutex_lock(&timer->lock);
    signaled = timer->wake_fd.signaled || wake_fd_fell_back(&timer->wake_fd);
    wake_fd_clear(&timer->wake_fd);
    pthread_mutex_unlock(&timer->lock);
    return signaled;
}

/* Returns when something becomes due next in the instance's timer or in those that have expired,
 * ns. */
static uint64_t timer_thread_next_ns(weir *w, const uint64_t *events, int n)
{
    uint64_t next_ns = timer_next_ns(&instance_wait(w)->timer);

    for (int i = 0; i < n; i++) {
        uint64_t at_ns =
            events[i] ? timer_next_ns(&cq_at(w, (uint32_t)events[i])->timer) : WEIR_FOREVER;

        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    return next_ns;
}

void timer_thread_limit_spin(weir *w, uint64_t at_ns)
{
    uint64_t until =
        atomic_load_explicit(&instance_wait(w)->timer_spin_until_ns, memory_order_seq_cst);

    while (at_ns < until && !atomic_compare_exchange_weak_explicit(
                                &instance_wait(w)->timer_spin_until_ns, &until, at_ns,
                                memory_order_seq_cst, memory_order_seq_cst))
        ;
}

/* Spins until the time for which a timer was set ahead, or until timer_thread_limit_spin() says
 * earlier. */
static void timer_thread_spin(weir *w)
{
    while (os_now_ns() <
               atomic_load_explicit(&instance_wait(w)->timer_spin_until_ns, memory_order_seq_cst) &&
           !atomic_load_explicit(&instance_wait(w)->timer_thread_stop, memory_order_seq_cst)) {
        unsigned turn = 0;

        spin_backoff(&turn);
    }
}

/*
 * Waits for a near deadline, if wake-ups are set ahead. Returns whether the thread was signaled.
 * `timer_spin_until_ns` is set before the deadlines are read, so that a thread that adds an earlier
 * one meanwhile shortens the spin.
 */
static bool timer_thread_await_due(weir *w, const uint64_t *events, int n)
{
    uint64_t next_ns, now_ns;
    bool signaled;

    if (!instance_wait(w)->timer_advance_ns)
        return timer_thread_take_signal(w);
    atomic_store_explicit(&instance_wait(w)->timer_spin_until_ns, WEIR_FOREVER,
                          memory_order_seq_cst);
    signaled = timer_thread_take_signal(w);
    next_ns = timer_thread_next_ns(w, events, n);
    now_ns = os_now_ns();
    if (!signaled && next_ns > now_ns && next_ns - now_ns <= instance_wait(w)->timer_advance_ns) {
        timer_thread_limit_spin(w, next_ns);
        timer_thread_spin(w);
    }
    atomic_store_explicit(&instance_wait(w)->timer_spin_until_ns, 0, memory_order_seq_cst);
    return signaled;
}

/* Handles one batch of events. Returns false if a timer could not be set. */
static bool timer_thread_iterate(weir *w, const uint64_t *events, int n)
{
    bool signaled = timer_thread_await_due(w, events, n), complete;

    if (!w->clock.injected.now_ns)
        timer_run_ahead(&instance_wait(w)->timer);
    complete = !timer_is_failing(&instance_wait(w)->timer);
    if (signaled || n < 0)
        return cq_service_all(w) && complete;
    for (int i = 0; i < n; i++)
        if (events[i])
            complete = cq_service(cq_at(w, (uint32_t)events[i])) && complete;
    return complete;
}

static void timer_thread_main(void *argument)
{
    weir *w = argument;
    const uint32_t *stop = (const uint32_t *)(uintptr_t)&instance_wait(w)->timer_thread_stop;
    uint64_t events[TIMER_THREAD_EVENTS_MAX];

    /* Checked after each turn, which may have consumed the signal to stop. */
    while (!atomic_load_explicit(&instance_wait(w)->timer_thread_stop, memory_order_seq_cst)) {
        int n = os_epoll_wait(wake_fd_pollable(&instance_wait(w)->timer.wake_fd), events,
                              TIMER_THREAD_EVENTS_MAX);

        if (!timer_thread_iterate(w, events, n) || n < 0)
            os_futex_wait(stop, 0,
                          os_now_ns() + TIMER_THREAD_RETRY_NS); /* never an injected clock's */
    }
    cq_service_all(w); /* posts what weir_close() decided */
}

static int timer_thread_launch(weir *w)
{
    int r = wake_fd_open(&instance_wait(w)->timer.wake_fd, true);

    WEIR_INVARIANT(timer_is_locked(&instance_wait(w)->timer));
    WEIR_INVARIANT(!instance_wait(w)->timer_thread);
    if (r < 0)
        return r;
    r = os_thread_start(&instance_wait(w)->timer_thread, timer_thread_main, w, "weir-timer");
    if (r < 0)
        wake_fd_close(&instance_wait(w)->timer.wake_fd);
    return r;
}

int timer_thread_start(weir *w)
{
    int r = 0;

    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    if (instance_is_closed(w))
        r = -ESHUTDOWN;
    else if (!instance_wait(w)->timer_thread)
        r = timer_thread_launch(w);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return r;
}

bool timer_thread_signal(weir *w)
{
    bool signaled;

    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    if (instance_wait(w)->timer_thread)
        wake_fd_signal(&instance_wait(w)->timer.wake_fd);
    timer_thread_limit_spin(w, 0);
    signaled = instance_wait(w)->timer_thread && instance_wait(w)->timer.wake_fd.signaled;
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    return signaled;
}

int timer_thread_reserve(weir *w)
{
    struct wait_timer *timer = &instance_wait(w)->timer;
    int r = 0;

    pthread_mutex_lock(&timer->lock);
    if (instance_is_closed(w))
        r = -ESHUTDOWN;
    else if (deadline_heap_reserve(&timer->heap, instance_wait(w)->timed_n + 1) < 0)
        r = -ENOMEM;
    else if (!instance_wait(w)->timer_thread && !w->clock.injected.now_ns)
        r = timer_thread_launch(w);
    if (r == 0)
        instance_wait(w)->timed_n++;
    pthread_mutex_unlock(&timer->lock);
    return r;
}

void timer_thread_forget(weir *w, uint32_t record)
{
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    WEIR_INVARIANT(instance_wait(w)->timed_n > 0);
    WEIR_INVARIANT(record);
    deadline_heap_remove(&instance_wait(w)->timer.heap, record);
    record_store(&waiter_at(w, record)->data, 0); /* no acquisition, whatever the word becomes */
    instance_wait(w)->timed_n--;
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
}

static void timer_thread_join(weir *w, struct os_thread *thread)
{
    struct wait_timer *timer = &instance_wait(w)->timer;

    WEIR_INVARIANT(thread == instance_wait(w)->timer_thread);
    atomic_store_explicit(&instance_wait(w)->timer_thread_stop, 1, memory_order_seq_cst);
    pthread_mutex_lock(&timer->lock);
    wake_fd_signal(&timer->wake_fd);
    pthread_mutex_unlock(&timer->lock);
    os_thread_join(thread);
    pthread_mutex_lock(&timer->lock);
    instance_wait(w)->timer_thread = NULL;
    pthread_mutex_unlock(&timer->lock);
}

void timer_thread_stop(weir *w)
{
    struct os_thread *thread;

    WEIR_INVARIANT(instance_is_closed(w));
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    thread = instance_wait(w)->timer_thread;
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
    if (thread)
        timer_thread_join(w, thread);
    cq_detach_all(w);
    pthread_mutex_lock(&instance_wait(w)->timer.lock);
    wake_fd_close(&instance_wait(w)->timer.wake_fd);
    pthread_mutex_unlock(&instance_wait(w)->timer.lock);
}

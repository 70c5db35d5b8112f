/* SPDX-License-Identifier: MIT */
/*
 * Keeps time for waiters that no thread is blocked on. It ends waits at their deadlines, and
 * rechecks the head of a wait queue when time alone makes it grantable. One heap holds the next
 * time of each waiter: its deadline, or the recheck of a head if that is earlier. The wake fd is
 * set for the earliest.
 *
 * The timer of the instance serves acquisitions; the timer thread runs it (instance_wait.h). Each
 * completion queue has a timer, which its reaper runs. With an injected clock weir_tick() runs all
 * of them.
 */
#ifndef WEIR_CORE_WAIT_WAIT_TIMER_H
#define WEIR_CORE_WAIT_WAIT_TIMER_H

#include "set/hooks.h"
#include "shm/acq_record.h"
#include "wait/deadline_heap.h"
#include "wait/wake_fd.h"
#include <pthread.h>
#include <weir/clock.h>

/* Ordered so that a hand-over between threads moves few cache lines. Both threads write the first
 * line; only the thread that runs the timer writes the second. */
struct wait_timer {
    pthread_mutex_t lock;   /* over all fields, and the waiters' notifications */
    struct wake_fd wake_fd; /* wakes the thread that runs the timer */

    weir *w;
    struct deadline_heap heap;
    uint64_t last_run_ns; /* latest time that a run decided by, ns */
    uint64_t advance_ns;  /* how long before a deadline the wake fd expires, ns */
    unsigned runs_n;      /* runs under way; the last one sets the wake fd */

    uint32_t number; /* of the completion queue, or 0: the timer of the instance */
    bool is_relayed; /* the timer thread's epoll set has peer_events too */
    _Atomic(struct peer_events *) peer_events; /* of other processes; pushed under the lock */
};

/* Returns whether the lock is held, by whichever thread. For invariants: it takes a free lock. */
static inline bool timer_is_locked(const struct wait_timer *timer)
{
    return pthread_mutex_trylock((pthread_mutex_t *)(uintptr_t)&timer->lock) != 0;
}

void timer_init(struct wait_timer *timer, weir *w, uint32_t number);
void timer_free(struct wait_timer *timer);

/* Returns the timer of the completion queue with this number, or of the instance for 0. */
struct wait_timer *timer_at(const weir *w, uint32_t number);

/* Writes a claimed signal of the wake fd (wake_fd.h). Call without the lock. */
void timer_signal(struct wait_timer *timer);

/* Sets the deadline of a waiter, as long as its word is `word`, in the timer that its wait target
 * names. At `deadline_ns` the wait ends as `state`. */
void timer_set_deadline(weir *w, uint32_t record, uint64_t word, uint64_t deadline_ns,
                        enum record_state state);
/* Sets the deadline of a waiter of this timer. Lock held; the caller has checked the
 * waiter's word under it. */
void timer_set_deadline_locked(struct wait_timer *timer, uint32_t record, uint64_t deadline_ns,
                               enum record_state state);

/* Delivers the decision on a record that waits with this timer and has become `word`. Has no effect
 * if that was done before. */
void timer_deliver(struct wait_timer *timer, uint32_t record, uint64_t word);

/*
 * Handles everything that is due. Returns how many waiters were decided. The wake fd then expires
 * ahead of the next deadline by `advance_ns`, immediately if that has passed; the timer thread
 * spins until then. Sets `*ret_failing` if the wake fd could not be set: the timer has to be run
 * again.
 */
int timer_run(struct wait_timer *timer, bool *ret_failing);
/* Runs the timers of the instance and of all queues. Returns how many waiters were decided. */
int timer_run_all(weir *w);

/* Returns when something becomes due next, ns, or WEIR_FOREVER. */
uint64_t timer_next_ns(struct wait_timer *timer);

/*
 * Handles everything that is due, with the lock held. Releases the lock while it handles a waiter.
 * Returns how many waiters were decided. `injected_ns` is the time of an injected clock, which must
 * not be read under a lock. 0: the system clock is read, unless nothing is or was scheduled.
 */
int timer_run_locked(struct wait_timer *timer, uint64_t injected_ns);

#endif

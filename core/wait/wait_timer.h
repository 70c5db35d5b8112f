/* SPDX-License-Identifier: MIT */
/*
 * Wait timers, the thread that runs them, and the part of an instance that has both.
 *
 * A timer keeps time for waiters that no thread is blocked on. It ends waits at their deadlines,
 * and rechecks the head of a wait queue when time alone makes it grantable. One heap holds the next
 * time of each waiter: its deadline, or the recheck of a head if that is earlier. The wake fd is
 * set for the earliest.
 *
 * The timer of the instance serves acquisitions; the timer thread runs it. Each completion queue
 * has a timer, which its reaper runs. With an injected clock weir_tick() runs all of them.
 */
#ifndef WEIR_CORE_WAIT_WAIT_TIMER_H
#define WEIR_CORE_WAIT_WAIT_TIMER_H

#include "base/lock.h"
#include "set/hooks.h"
#include "set/instance_base.h"
#include "wait/deadline_heap.h"
#include "wait/wake_fd.h"
#include <weir/clock.h>

/* Ordered so that a hand-over between threads moves few cache lines. Both threads write the first
 * line; only the thread that runs the timer writes the second. */
struct wait_timer {
    struct lock lock;       /* over all fields, and the waiters' notifications */
    struct wake_fd wake_fd; /* wakes the thread that runs the timer */

    weir *w;
    struct deadline_heap heap;
    uint64_t last_run_ns; /* latest time that a run decided by, ns */
    uint64_t advance_ns;  /* how long before a deadline the wake fd expires, ns */
    unsigned runs_n;      /* runs under way; the last one sets the wake fd */

    uint32_t number; /* of the completion queue, or 0: the timer of the instance */
    bool is_relayed; /* the timer thread's epoll set has peer_events too */
    /* Time of the next stall check of its shared sets; WEIR_FOREVER: none. Lowered under the lock.
     */
    _Atomic uint64_t stall_check_ns;
    _Atomic uint64_t hold_look_ns; /* of the next look (hold_watch.c); WEIR_FOREVER: none. Lowered
                                      under the lock; only of the timer of the instance */
    _Atomic(struct peer_events *) peer_events; /* of other processes; pushed under the lock */
};

/* An instance, as far as waiting uses it. */
struct instance_wait {
    struct weir base; /* the first member: see instance_wait() */
    uint64_t timer_advance_ns;

    struct stable_array queues; /* by number, from 1; closed ones are used again; instance's lock */
    _Atomic uint32_t queues_n;
    struct weir_queue *closed_queues;

    struct wait_timer timer;        /* of acquisitions; its lock also covers their descriptors */
    size_t timed_n;                 /* acquisitions that may be in its heap; under its lock */
    struct os_thread *timer_thread; /* NULL: not running; under the timer's lock */
    _Atomic(struct weir_acquisition *) withdrawn; /* members of groups (api/wait_group.c) that are
                                                     to be withdrawn; changed under the lock */
    _Atomic uint32_t timer_thread_stop;
    _Atomic uint64_t timer_spin_until_ns; /* or until it is signaled; 0: it does not spin */
    _Atomic bool ring_refusal_reported;   /* attaching is impossible, and that was logged */
    int wall_fd;                          /* wall_watch.c; -1: none; under the timer's lock */
    _Atomic bool wall_is_watched;         /* a waiter may depend on the wall clock */
    _Atomic bool wall_has_stepped;        /* since heads were last looked at for that reason */
    _Atomic int64_t wall_offset_ns;       /* of an injected clock, when they were */
    struct direct_waits *direct_waits;    /* direct_wait.c; under the timer's lock */
    struct loss_watch *loss_watches;      /* hold_watch.c; under the timer's lock */
    _Atomic bool holds_are_watched;       /* looks take place when they are scheduled */
    _Atomic bool holds_private;           /* a private set may have holders to look at */
    _Atomic bool is_looking;              /* a thread makes a look */
    _Atomic uint64_t hold_looked_ns;      /* when the last look began */
    _Atomic uint64_t hold_rest_ns;        /* the next one is not made before */
    _Atomic uint32_t blocked_n;           /* threads blocked in weir_acquire; futex of weir_close */
};

static inline struct instance_wait *instance_wait(const weir *w)
{
    return (struct instance_wait *)(uintptr_t)w;
}

/* Returns whether the lock is held, by whichever thread. For invariants. */
static inline bool timer_is_locked(const struct wait_timer *timer)
{
    return lock_is_taken(&timer->lock);
}

void timer_init(struct wait_timer *timer, weir *w, uint32_t number);

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

/* Makes a stall check of the timer's shared sets at `at_ns`, or earlier if that was scheduled. The
 * timer keeps making them as long as it has waiters. Call without locks. */
void timer_arm_stall_check(struct wait_timer *timer, uint64_t at_ns);
/* Has a look at holders take place at `at_ns`, or earlier if that was scheduled. Call without
 * locks. */
void timer_arm_hold_look(struct wait_timer *timer, uint64_t at_ns);
/* Returns whether a stall check is due, which is then no longer scheduled. */
bool timer_take_stall_check(struct wait_timer *timer);

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
/* Looks at the head of a set, whatever was forecast for it. Returns how many waiters were decided.
 * Call without locks. */
int timer_look_at_head(weir_set *set);

/* Returns when something becomes due next, ns, or WEIR_FOREVER. */
uint64_t timer_next_ns(struct wait_timer *timer);

/*
 * Handles everything that is due, with the lock held. Releases the lock while it handles a waiter.
 * Returns how many waiters were decided. `injected_ns` is the time of an injected clock, which must
 * not be read under a lock. 0: the system clock is read, unless nothing is or was scheduled.
 */
int timer_run_locked(struct wait_timer *timer, uint64_t injected_ns);

/*
 * ---- timer_thread.c: the timer thread ----
 *
 * It runs the timer of the instance, for acquisitions that are waited for by a descriptor, and the
 * timers of completion queues that are attached to a ring. The first of either starts it. With an
 * injected clock there is no thread, except to post where threads of the program cannot.
 */

/*
 * Reserves room for one more acquisition, and starts the thread if there is none. Returns 0,
 * -ENOMEM, -ESHUTDOWN or the error of the kernel. timer_thread_forget() takes the record out and
 * returns the room.
 */
int timer_thread_reserve(weir *w);
void timer_thread_forget(weir *w, uint32_t record);

/* Starts the thread if there is none. Returns 0, -ENOMEM, -ESHUTDOWN or the error of the kernel. */
int timer_thread_start(weir *w);
/* Makes the thread service all attached queues soon. Returns false if it cannot be signaled. Any
 * lock may be held except that of the instance's timer. */
bool timer_thread_signal(weir *w);

/* Limits a spin of the thread, if it spins, to end at `at_ns`. */
void timer_thread_limit_spin(weir *w, uint64_t at_ns);

/* Ends the thread. The caller guarantees that no acquisition is pending. */
void timer_thread_stop(weir *w);

/*
 * ---- peer_events.c: what other processes did to waiters ----
 *
 * For each shared set a timer has a doorbell, which other processes ring when they decided a
 * record, and a peer watch, which reports processes that died. Either makes the wake fd readable.
 */

/*
 * Subscribes the timer to the events of a shared set, unless it is subscribed. Call before a record
 * of the set waits with this timer. Returns 0 or a negative errno. Any thread.
 */
int peer_events_subscribe(struct wait_timer *timer, weir_set *set);

/* Start and stop relaying the timer's doorbells through the timer thread. The timer's lock is held.
 * Returns 0 or a negative errno, with nothing relayed. */
int peer_events_relay(struct wait_timer *timer);
void peer_events_end_relay(struct wait_timer *timer);

/* Handles all events that were received, and makes a stall check that is due. Returns how many
 * waiters that decided. Call without locks. */
int peer_events_handle_all(struct wait_timer *timer);

static inline int peer_events_handle(struct wait_timer *timer)
{
    return atomic_load_explicit(&timer->peer_events, memory_order_acquire)
               ? peer_events_handle_all(timer)
               : 0;
}

/* Unsubscribes a timer that is closed. */
void peer_events_close(struct wait_timer *timer);
/* Closes the copies of the descriptors in a forked child. Those of the parent stay. */
void peer_events_close_in_child(struct wait_timer *timer);

/*
 * ---- wall_watch.c: steps of the wall clock ----
 *
 * Limits that read the wall clock compute with it when a waiter will be granted. When the clock
 * steps, and when the machine wakes from suspend, the heads of their sets are looked at and
 * scheduled again. The timer thread listens. An injected clock is compared with its last offset by
 * weir_tick() and by the reaps of completion queues.
 */

/* Sets up the fields of a new instance, which has its clock. */
void wall_watch_init(weir *w);
/* Makes sure that a step is noticed. Returns 0 or a negative errno. Any thread, without locks. */
int wall_watch_start(weir *w);
/* Makes sure that a step is noticed if decisions of the set depend on it: its limits read the wall
 * clock, or it goes by CLOCK_BOOTTIME. Call before a request may wait in the set. Returns as
 * wall_watch_start(). */
static inline int wall_watch_subscribe(const weir_set *set)
{
    return set->limits.clock_needs ? wall_watch_start(set->w) : 0;
}
/* For the timer thread: replaces the event of a step among `events` by that of the instance's wake
 * fd. Returns false if steps could not be listened for again. */
bool wall_watch_take_event(weir *w, uint64_t *events, int n);
/* Looks at the heads of all sets that read the wall clock, if it has stepped. Returns how many
 * waiters were decided. Call without locks. */
int wall_watch_run(weir *w);
/* Compares an injected clock with its last offset, then runs. */
int wall_watch_tick(weir *w);
/* Closes the descriptor. The timer thread has ended, or is the parent's. */
void wall_watch_close(weir *w);

#endif

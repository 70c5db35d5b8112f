/* SPDX-License-Identifier: MIT */
/* An instance, as far as waiting uses it: its timer, its timer thread, its completion queues. */
#ifndef WEIR_CORE_WAIT_INSTANCE_WAIT_H
#define WEIR_CORE_WAIT_INSTANCE_WAIT_H

#include "set/instance_base.h"
#include "wait/wait_timer.h"

struct instance_wait {
    struct weir base; /* the first member: see instance_wait() */
    uint64_t timer_advance_ns;

    struct stable_array queues; /* by number, from 1; closed ones are used again; instance's lock */
    _Atomic uint32_t queues_n;
    struct weir_queue *closed_queues;

    struct wait_timer timer;        /* of acquisitions; its lock also covers their descriptors */
    size_t timed_n;                 /* acquisitions that may be in its heap; under its lock */
    struct os_thread *timer_thread; /* NULL: not running; under the timer's lock */
    _Atomic uint32_t timer_thread_stop;
    _Atomic uint64_t timer_spin_until_ns; /* or until it is signaled; 0: it does not spin */
    _Atomic bool ring_refusal_reported;   /* attaching is impossible, and that was logged */
    _Atomic uint32_t blocked_n;           /* threads blocked in weir_acquire; futex of weir_close */
};

static inline struct instance_wait *instance_wait(const weir *w)
{
    return (struct instance_wait *)(uintptr_t)w;
}

/*
 * The timer thread runs the timer of the instance, for acquisitions that are waited for by a
 * descriptor. It also runs the timers of completion queues that are attached to a ring. The first
 * of either starts it. With an injected clock there is no thread, except to post where threads of
 * the program cannot. timer_loop.c implements it.
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

#endif

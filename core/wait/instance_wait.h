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

#endif

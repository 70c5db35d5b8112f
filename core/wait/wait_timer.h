/* SPDX-License-Identifier: MIT */
/*
 * A keeper keeps time for waiters that nobody is blocked on: it ends waits whose deadline has
 * passed, and looks at the head of a line again when time alone makes it grantable. One heap, by
 * the instant of each waiter: its deadline, or while it heads a line the instant to look, if that
 * is earlier. Only the earliest is set, as the instant of its alarm.
 *
 * An instance has a keeper of its own for acquisitions, moved by a thread (timer_thread.h); each
 * queue has one, moved by its reaper. With an injected clock weir_tick() moves them all.
 */
#ifndef WEIR_CORE_WAIT_WAIT_TIMER_H
#define WEIR_CORE_WAIT_WAIT_TIMER_H

#include "set/hooks.h"
#include "shm/acq_record.h"
#include "wait/deadline_heap.h"
#include "wait/wake_fd.h"
#include <pthread.h>
#include <weir/clock.h>

/* In this order a hand-over between threads moves few cache lines: the first is what both of them
 * write, the second what only whoever keeps time does. */
struct wait_timer {
    pthread_mutex_t lock;   /* over everything below and what the keeper's waiters are told by */
    struct wake_fd wake_fd; /* wakes whoever moves the keeper */

    weir *w;
    struct deadline_heap heap;
    uint64_t last_run_ns; /* the latest instant that a run went by */
    uint64_t advance_ns;  /* so much before an instant the alarm is set */
    unsigned runs_n;      /* runs under way: the last one sets the alarm */

    bool is_relayed;                           /* the timekeeper's epoll has the hearings too */
    _Atomic(struct peer_events *) peer_events; /* of other processes; grows under the lock */
};

void timer_init(struct wait_timer *timer, weir *w);
void timer_free(struct wait_timer *timer);

/* Sounds a ring of its alarm that was claimed (wake_fd.h). Without the lock. */
void timer_signal(struct wait_timer *timer);

/* Of a record that waits, as long as its word is `word`; its keeper is the one that its waker says.
 */
/* Its wait is to end at this instant, as `state`. */
void timer_set_deadline(weir *w, uint32_t record, uint64_t word, uint64_t deadline_ns,
                        enum record_state state);
/* The same under the lock of its keeper, by whoever has seen there that its word still is `word`. */
void timer_set_deadline_locked(struct wait_timer *timer, uint32_t record, uint64_t deadline_ns,
                               enum record_state state);

/* Whether its alarm could not be set: it has to be run again. */
bool timer_is_failing(struct wait_timer *timer);

/* Does everything that is due; returns how many waiters were decided. */
int timer_run(struct wait_timer *timer);
/* The same for the timekeeper, which is woken ahead of what comes next, at once if that is near. */
void timer_run_ahead(struct wait_timer *timer);

/* When something becomes due next, or WEIR_FOREVER. */
uint64_t timer_next_ns(struct wait_timer *timer);

/*
 * The same as part of what is done under the lock, which is given back for as long as something is
 * done that is due. `injected_ns` is the instant by an injected clock, which is not read under a
 * lock; 0: there is none, and the system's is read if anything is or was to become due.
 */
int timer_run_locked(struct wait_timer *timer, uint64_t injected_ns);

#endif

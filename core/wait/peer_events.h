/* SPDX-License-Identifier: MIT */
/*
 * Hearing: how a keeper learns what other processes did to records it keeps. For each set that
 * processes share it has a bell, which others ring when they decided about a record, and a watch,
 * which tells of processes that died. Both make the keeper's descriptor readable.
 */
#ifndef WEIR_CORE_WAIT_PEER_EVENTS_H
#define WEIR_CORE_WAIT_PEER_EVENTS_H

#include "set/set.h"
#include "wait/wait_timer.h"

/*
 * The keeper begins to hear of the set, unless it does; `number` is the queue's, or 0: the
 * instance's. Before a record enters the set, which processes share, under this keeper. Returns 0 or
 * a negative errno. Any thread.
 */
int peer_events_subscribe(struct wait_timer *timer, uint32_t number, weir_set *set);

/*
 * The timekeeper hears for a queue's keeper, or no longer. Under the keeper's lock. Returns 0 or a
 * negative errno, and then it hears nothing.
 */
int peer_events_relay(struct wait_timer *timer, uint32_t number);
void peer_events_end_relay(struct wait_timer *timer);

/* Sees to all that was heard. Without locks. */
void peer_events_handle_all(struct wait_timer *timer);

static inline void peer_events_handle(struct wait_timer *timer)
{
    if (atomic_load_explicit(&timer->peer_events, memory_order_acquire))
        peer_events_handle_all(timer);
}

/* The keeper is closed. */
void peer_events_close(struct wait_timer *timer, uint32_t number);
/* Closes a forked child's copies of its descriptors; what the parent hears by stays. */
void peer_events_close_in_child(struct wait_timer *timer);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * How a wait timer learns what other processes did to its waiters. For each shared set there is a
 * doorbell, which other processes ring when they decided a record. There is also a peer watch,
 * which reports processes that died. Either makes the wake fd of the timer readable.
 */
#ifndef WEIR_CORE_WAIT_PEER_EVENTS_H
#define WEIR_CORE_WAIT_PEER_EVENTS_H

#include "set/set.h"
#include "wait/wait_timer.h"

/*
 * Subscribes the timer to the events of a shared set, unless it is subscribed. Call before a record
 * of the set waits with this timer. Returns 0 or a negative errno. Any thread.
 */
int peer_events_subscribe(struct wait_timer *timer, weir_set *set);

/* Start and stop relaying the timer's doorbells through the timer thread. The timer's lock is held.
 * Returns 0 or a negative errno, with nothing relayed. */
int peer_events_relay(struct wait_timer *timer);
void peer_events_end_relay(struct wait_timer *timer);

/* Handles all events that were received. Call without locks. */
void peer_events_handle_all(struct wait_timer *timer);

static inline void peer_events_handle(struct wait_timer *timer)
{
    if (atomic_load_explicit(&timer->peer_events, memory_order_acquire))
        peer_events_handle_all(timer);
}

/* Unsubscribes a timer that is closed. */
void peer_events_close(struct wait_timer *timer);
/* Closes the copies of the descriptors in a forked child. Those of the parent stay. */
void peer_events_close_in_child(struct wait_timer *timer);

#endif

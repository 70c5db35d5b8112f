/* SPDX-License-Identifier: MIT */
/* Events of an instance: told to its listener and to the probes (weir/event.h, set/probes.h). */
#ifndef WEIR_CORE_SET_EVENTS_H
#define WEIR_CORE_SET_EVENTS_H

#include "set/instance_base.h"
#include "set/probes.h"
#include "set/set_ops.h"

/* Returns whether events are told. Relaxed: a call may begin before a listener is known. */
static inline bool events_are_on(weir *w)
{
    return (atomic_load_explicit(w->state, memory_order_relaxed) & INSTANCE_LISTENED) ||
           probes_are_on();
}

static inline bool event_has_trace(const struct event_tag *tag)
{
    uint8_t any = 0;

    for (size_t i = 0; i < sizeof(tag->trace.trace_id); i++)
        any |= tag->trace.trace_id[i];
    return any;
}

/* Returns the id of an acquisition for events: of a record that holds or waits, or has ended so; 0:
 * none. It does not change from the wait or grant on, nor does the time that it is made of. */
uint64_t event_id(const weir_set *set, uint32_t record);
/* Returns the id of a record that was enqueued at this time, by the clock of its set. */
uint64_t event_id_of(uint64_t enqueued_ns, uint32_t record);

/* Tells an event of a set: fills in what all events have. `tag` may be NULL. No lock is held that
 * another call needs. */
void event_tell(const weir_set *set, struct weir_event *event, const struct event_tag *tag);

/* Tells how a wait or a submission has ended: `result` as of weir_acquisition_result, `key` of the
 * limit that refused, or NULL. The record is the caller's, and not freed yet; its own amounts are
 * told if `amounts` is NULL. */
void event_tell_decision(const weir_set *set, uint32_t record, int result, const char *key,
                         const uint64_t *amounts, const struct event_tag *tag);

/* Returns how long a record has waited, until now if it was not granted; and how long it has been
 * held. By the clock of the set, ns. */
uint64_t event_wait_ns(const weir_set *set, uint32_t record, bool is_granted);
uint64_t event_hold_ns(const weir_set *set, uint32_t record);

/* Removes the listener, and waits until no thread is inside it. */
void events_end(weir *w);

#endif

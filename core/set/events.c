/* SPDX-License-Identifier: MIT */
/*
 * Tells events to the probes and to the listener, and changes the listener.
 *
 * The listener is in one of two places. A new one is written to the other place, which then becomes
 * the current one; the change ends when no thread is inside the former place. All accesses are
 * seq_cst:
 * 1. A (an event) reads which place is current, adds itself to it, and reads again.
 * 2. B (a change) makes the other place current.
 * 3. B waits until no thread counts as inside the former place.
 *
 * If A's second reading is that of the first, A came before B, and B waits for it. Otherwise A has
 * read nothing of the place, leaves it and begins again. This is a grace period of two phases
 * (McKenney and Slingwine 1998), which only changes pay for.
 */
#include "set/events.h"
#include "os/os.h"
#include "set/set_ops.h"
#include <errno.h>
#include <pthread.h>

#if defined WEIR_PROBES && WEIR_PROBES
/* Semaphores are in a section of their own, which tools read the addresses of from the notes. */
unsigned short weir_probes_semaphore
    __attribute__((section(".probes"), visibility("hidden"), used));

#define PROBE_SEMAPHORE(name)                                                                      \
    extern unsigned short weir_##name##_semaphore                                                  \
        __attribute__((alias("weir_probes_semaphore"), visibility("hidden")))

PROBE_SEMAPHORE(request);
PROBE_SEMAPHORE(grant);
PROBE_SEMAPHORE(refusal);
PROBE_SEMAPHORE(wait);
PROBE_SEMAPHORE(release);
PROBE_SEMAPHORE(timeout);
PROBE_SEMAPHORE(cancel);
PROBE_SEMAPHORE(overheld);
#endif

/* Whether the thread is inside a listener: what it does there is told to none. */
static _Thread_local bool event_is_inside __attribute__((tls_model("initial-exec")));

/* ---- the listener ---- */

/* Wakes a change that waits for the place, when this is the last thread inside. */
static void event_listener_leave(weir *w, struct event_listener *place)
{
    if (atomic_fetch_sub_explicit(&place->inside, 1, memory_order_seq_cst) == 1 &&
        &w->listeners[atomic_load_explicit(&w->listener, memory_order_seq_cst)] != place)
        os_futex_wake((const uint32_t *)(uintptr_t)&place->inside, false);
}

/* Returns the current place, which stays what it is until the thread leaves it. */
static struct event_listener *event_listener_enter(weir *w)
{
    for (;;) {
        uint32_t i = atomic_load_explicit(&w->listener, memory_order_seq_cst);
        struct event_listener *place = &w->listeners[i];

        atomic_fetch_add_explicit(&place->inside, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&w->listener, memory_order_seq_cst) == i)
            return place;
        event_listener_leave(w, place);
    }
}

static void event_call_listener(weir *w, const struct weir_event *event)
{
    struct event_listener *place = event_listener_enter(w);
    const struct weir_listener *listener = &place->listener;

    if (listener->event && (!listener->types || listener->types >> event->type & 1)) {
        int before;

        event_is_inside = true;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* a release is half done */
        listener->event(listener->userdata, event);
        pthread_setcancelstate(before, NULL);
        event_is_inside = false;
    }
    event_listener_leave(w, place);
}

/* Makes `listener` the current one, and waits until no thread is inside the former one. */
static void event_listener_change(weir *w, const struct weir_listener *listener)
{
    uint32_t before = atomic_load_explicit(&w->listener, memory_order_seq_cst), inside;
    _Atomic uint32_t *former = &w->listeners[before].inside;

    w->listeners[!before].listener = *listener;
    atomic_store_explicit(&w->listener, !before, memory_order_seq_cst);
    if (listener->event)
        atomic_fetch_or_explicit(w->state, INSTANCE_LISTENED, memory_order_seq_cst);
    else
        atomic_fetch_and_explicit(w->state, ~(uint32_t)INSTANCE_LISTENED, memory_order_seq_cst);
    while ((inside = atomic_load_explicit(former, memory_order_seq_cst)))
        os_futex_wait((const uint32_t *)(uintptr_t)former, false, inside, WEIR_FOREVER);
}

static bool event_listener_is_valid(const struct weir_listener *listener)
{
    const uint32_t known = (UINT32_C(2) << WEIR_EVENT_OVERHELD) - 2;

    return listener->size >= sizeof(*listener) && listener->event && !(listener->types & ~known) &&
           !listener->reserved;
}

int weir_listen(weir *w, const struct weir_listener *listener)
{
    static const struct weir_listener none = {.size = sizeof(none)};

    if (!w || (listener && !event_listener_is_valid(listener)))
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    if (event_is_inside)
        return -EDEADLK;
    if (atomic_exchange_explicit(&w->listener_changes, true, memory_order_seq_cst))
        return -EBUSY;
    event_listener_change(w, listener ? listener : &none);
    atomic_store_explicit(&w->listener_changes, false, memory_order_seq_cst);
    return 0;
}

void events_end(weir *w)
{
    static const struct weir_listener none = {.size = sizeof(none)};

    if (atomic_load_explicit(w->state, memory_order_seq_cst) & INSTANCE_LISTENED)
        event_listener_change(w, &none);
}

/* ---- events ---- */

uint64_t event_id_of(uint64_t enqueued_ns, uint32_t record)
{
    return (enqueued_ns >> 10) << RECORD_LINK_BITS | record; /* in units of 1024 ns */
}

uint64_t event_id(const weir_set *set, uint32_t record)
{
    return record ? event_id_of(record_load(&set_record(set, record)->enqueued_ns), record) : 0;
}

#if defined __clang__ /* of the macros of sys/sdt.h, which it takes for the library's own */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#endif

/* Passes the probe of the event: a nop, which a tool may have made a breakpoint. */
static void event_pass_probe(const struct weir_event *event)
{
    switch (event->type) {
    case WEIR_EVENT_REQUEST:
        PROBE_REQUEST(event);
        break;
    case WEIR_EVENT_GRANT:
        PROBE_GRANT(event);
        break;
    case WEIR_EVENT_REFUSAL:
        PROBE_REFUSAL(event);
        break;
    case WEIR_EVENT_WAIT:
        PROBE_WAIT(event);
        break;
    case WEIR_EVENT_RELEASE:
        PROBE_RELEASE(event);
        break;
    case WEIR_EVENT_TIMEOUT:
        PROBE_TIMEOUT(event);
        break;
    case WEIR_EVENT_CANCEL:
        PROBE_CANCEL(event);
        break;
    case WEIR_EVENT_OVERHELD:
        PROBE_OVERHELD(event);
        break;
    }
}

#if defined __clang__
#pragma clang diagnostic pop
#endif

void event_tell(const weir_set *set, struct weir_event *event, const struct event_tag *tag)
{
    uint64_t listed[WEIR_LIMITS_MAX];
    weir *w = set->w;

    if (event_is_inside)
        return;
    event->size = sizeof(*event);
    event->at_ns = clock_now_ns(&w->clock);
    event->set = set_own_name(instance_set(w, set->number)); /* of a key set, its template's */
    event->key = event->key ? event->key : "";
    event->amounts_n = set_listed_n(set);
    for (uint32_t i = 0; event->amounts && set->limits.is_arranged && i < set_listed_n(set); i++)
        listed[i] = event->amounts[set_listed(set, i)];
    event->amounts = event->amounts && set->limits.is_arranged ? listed : event->amounts;
    event->subject = tag ? tag->subject : 0;
    event->trace = tag && event_has_trace(tag) ? &tag->trace : NULL;
    event_pass_probe(event);
    if (atomic_load_explicit(w->state, memory_order_relaxed) & INSTANCE_LISTENED)
        event_call_listener(w, event);
}

static uint64_t event_now_ns(const weir_set *set)
{
    return clock_instant(&set->w->clock, set->limits.clock_needs).now_ns;
}

/* Returns the time between two, 0 if it is negative: words of a shared record may be anything. */
static uint64_t event_span_ns(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

uint64_t event_wait_ns(const weir_set *set, uint32_t record, bool is_granted)
{
    const struct acq_record *r = set_record(set, record);

    return event_span_ns(record_load(&r->enqueued_ns),
                         is_granted ? grant_time(record_load(&r->granted_ns)) : event_now_ns(set));
}

uint64_t event_hold_ns(const weir_set *set, uint32_t record)
{
    return event_span_ns(grant_time(record_load(&set_record(set, record)->granted_ns)),
                         event_now_ns(set));
}

void event_tell_decision(const weir_set *set, uint32_t record, int result, const char *key,
                         const uint64_t *amounts, const struct event_tag *tag)
{
    uint64_t recorded[WEIR_LIMITS_MAX];
    struct weir_event event = {
        .id = event_id(set, record),
        .key = key,
        .amounts = amounts ? amounts : recorded,
        .wait_ns = event_wait_ns(set, record, result == 0 || result == -EOWNERDEAD)};

    if (result == -EOWNERDEAD) /* it was granted, and lost since */
        result = 0;
    for (uint32_t i = 0; !amounts && i < set->limits.n; i++)
        recorded[i] = record_load(&set_record(set, record)->amounts[i]);
    event.type = result == 0            ? WEIR_EVENT_GRANT
                 : result == -ETIMEDOUT ? WEIR_EVENT_TIMEOUT
                 : result == -ECANCELED ? WEIR_EVENT_CANCEL
                                        : WEIR_EVENT_REFUSAL;
    event.result = event.type == WEIR_EVENT_REFUSAL ? result : 0;
    event_tell(set, &event, tag);
}

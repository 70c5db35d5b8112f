/* SPDX-License-Identifier: MIT */
/*
 * Events: what becomes of each request, for a program that traces itself. A listener hears them in
 * the thread that makes the call; the probes of the library (docs/operations.md) say the same to
 * tools that attach to a process.
 *
 *     request ──► grant ────────────────────────► release
 *        │          └─ not seen by the program ─► cancel
 *        ├──────► refusal
 *        └──────► wait ──► grant, refusal, timeout, cancel
 *
 * Without a listener and a tool nothing is computed, and calls take the fastest path. With one,
 * every call of the instance takes the slower path, which reads the clock for each event.
 */
#ifndef WEIR_EVENT_H
#define WEIR_EVENT_H

#include <weir/instance.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weir_event_type {
    /* A call asks a set. Of a pool of several sets, one event for each set that is asked. A set
     * that is reloaded while the call asks it refuses with -ESTALE, and is asked once more; if it
     * was removed, another set of the pool is. */
    WEIR_EVENT_REQUEST = 1,
    /* The program learns of a grant: at once, or as a call reports a pending acquisition first
     * (weir_acquisition_result, weir_queue_reap; weir_release, if none did before). */
    WEIR_EVENT_GRANT = 2,
    /* The request has ended without a grant: `result` says why. At once, or after a wait. */
    WEIR_EVENT_REFUSAL = 3,
    /* The request has entered the wait queue. */
    WEIR_EVENT_WAIT = 4,
    /* An acquisition is about to be released: waiters are granted after it. It is told as well if a
     * revocation comes first. */
    WEIR_EVENT_RELEASE = 5,
    /* The timeout of a waiter has passed: the program learns of it. */
    WEIR_EVENT_TIMEOUT = 6,
    /* A wait was canceled, or a grant is undone that the program has not seen. */
    WEIR_EVENT_CANCEL = 7,
    /*
     * An acquisition has been held longer than the `max_hold` of a limit, `key`: told once. With
     * `max_hold_action: revoke`, `result` is -EOWNERDEAD: what it held was taken back. There are
     * two events if one limit warns, and another one revokes later. Of a shared set, one of its
     * processes tells it, not always that of the holder; none does if that one dies over it.
     */
    WEIR_EVENT_OVERHELD = 8
};

/* The position of a request in a trace (W3C Trace Context): what its `traceparent` says. */
struct weir_trace {
    uint8_t trace_id[16]; /* not all 0 */
    uint8_t parent_id[8]; /* not all 0 */
    uint8_t flags;        /* bit 0: sampled */
};

/* An event. It and all that it points to live as long as the call of the listener; the names as
 * long as the set, but the key of a limit that the set does not have. */
struct weir_event {
    size_t size;               /* sizeof(struct weir_event), as the library knows it */
    enum weir_event_type type; /* a listener ignores types that it does not know */
    int result;                /* of a refusal: the negative errno. Of an overheld acquisition:
                                  -EOWNERDEAD, it was revoked. Else 0 */
    uint64_t at_ns;            /* now, by the instance's clock */
    /* Names the acquisition from its grant or wait to its end, among those of the set that live at
     * one time; of a shared set, in all processes. There, and in a set that revokes, weir_return
     * of a resource gives it another one. 0: of a request, of weir_take, of nothing. */
    uint64_t id;
    uint64_t wait_ns; /* how long it has waited so far; 0: it was decided at once */
    /* Of a release, or held too long: how long it was held; else 0. The grant of a counted resource
     * may be dated up to 10 ms early if no event told it. */
    uint64_t hold_ns;
    const char *set;         /* its name */
    const char *key;         /* the limit that refused, or that lets it wait; "": none is known */
    const uint64_t *amounts; /* one for each limit of the set, in its order; 0 if the
                                 request names what is not there */
    size_t amounts_n;
    uint64_t subject;               /* hash of the subject, of this set; 0: none */
    const struct weir_trace *trace; /* of the request; NULL: it has none, or it is overheld */
    uint32_t process, thread;       /* of an overheld acquisition: the ids of its holder; else 0 */
};

/* The listener of an instance. Zero everything, set `size`, then what is wanted. */
struct weir_listener {
    size_t size; /* sizeof(struct weir_listener) */
    /*
     * Called for each event, in the thread of the call that causes it, which goes on afterwards; or
     * in the timer thread, of a request that waits in several sets and leaves one, and of an
     * overheld acquisition. It must not call weir. Of different threads, events come in no strict
     * order. [any thread, reads]
     */
    void (*event)(void *userdata, const struct weir_event *event);
    void *userdata;
    uint32_t types;    /* bit 1 << WEIR_EVENT_*: those that are wanted; 0: all */
    uint32_t reserved; /* 0 */
};

/*
 * Sets the listener of an instance, in place of the one that it had. `listener` is copied; NULL:
 * none. Calls that have begun may still be heard by neither. On return no thread is inside the
 * former listener, and none will be: its userdata may go. weir_close removes the listener, too. An
 * acquisition that was granted before is heard of as it is released. Any thread. Returns 0; -EINVAL
 * (`w` is NULL, or `listener` has no `event`, an unknown type, or a size that is too small), -EBUSY
 * (another thread is setting one), -EDEADLK (the caller is the listener), -ECHILD.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_listen(weir *w, const struct weir_listener *listener);

/*
 * Reads the value of a `traceparent` header (W3C Trace Context). Of versions to come, what may
 * follow is not looked at. Any thread. Returns 0 and fills `ret`, or
 * -EINVAL (an argument is NULL, or it is malformed) and leaves it untouched.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_trace_parse(const char *traceparent, struct weir_trace *ret);

#ifdef __cplusplus
}
#endif
#endif

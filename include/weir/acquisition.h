/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions: requesting amounts of several limits at once, waiting for them, releasing them.
 *
 * States of an acquisition:
 *
 *     submit ──► granted ───────────────────────────► release
 *        └─────► pending ──► granted (── return)* ──► release
 *                   ├──────► timed out, refused, canceled, shut down ──► release (frees only)
 *                   └──────► release (cancels and frees)
 *     reserve ─► granted as of a later time ─────────► release
 *                   └──────► canceled ──────────────► release (frees only)
 *
 * An acquisition belongs to one thread at a time; different acquisitions are independent. When a
 * process ends, however it ends, the resources that it holds of a shared set are released and its
 * waiters leave the wait queue. Rates and calls count as used then (docs/processes.md).
 *
 * A grant that was not used can be undone, as weir_cancel, weir_release and weir_queue_close say:
 * a resource is free again, and amounts of rates and calls are refunded as far as the algorithm
 * can, even with `refund: false`. A refund is not as if the units had never been granted: others
 * were refused meanwhile, and a bucket (token_bucket, gcra, leaky_bucket) that was full later has
 * let units overflow, which come back now. So between two instants a and b a bucket may grant up to
 * burst + rate * (b - a) plus all that was refunded between them: with a burst of 25, 35 units at
 * one instant if 10 old ones come back then. With `refund: strict` it gives back only what has not
 * come since the grant, and what was used (granted between a and b, less all that was ever refunded
 * of it) is never more than burst + rate * (b - a). Other algorithms keep that with any refund:
 * what is used in a window is at most the capacity.
 */
#ifndef WEIR_ACQUISITION_H
#define WEIR_ACQUISITION_H

#include <weir/pool.h>
#include <weir/token.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_acquisition weir_acquisition;

/*
 * An amount, in units of the limits named `key`. An amount of 0 leaves these limits out of the
 * request. A limit that is not named takes part with its default: 1 of a call or resource; a rate
 * has none, and is left out unless the request names nothing at all (then it is -EINVAL).
 */
struct weir_amount {
    const char *key; /* compared by address first, then by content */
    uint64_t amount;
};

enum { WEIR_STRICT = 1u << 0 /* an unknown key is -ENOENT, not a warning */ };

/* A request. Zero everything, set `size`, then what is wanted. */
struct weir_request {
    size_t size;                       /* sizeof(struct weir_request) */
    const struct weir_amount *amounts; /* may be NULL: every limit with its default */
    size_t amounts_n;
    uint64_t timeout_ns;     /* how long to wait; 0: the set's default; WEIR_FOREVER */
    uint64_t max_wait_ns;    /* refuse at once if the forecast wait is longer; 0: the set's default;
                                WEIR_FOREVER */
    uint64_t route;          /* for balancers that hash, and for `enforce` without a subject */
    uint32_t flags;          /* WEIR_STRICT */
    uint32_t within_process; /* of a set that processes share: id of a process. The request is
                                nested (below) in the last grant that holds a resource of the set
                                and subject, of that process or of the nearest of the processes that
                                it runs in (its parent, and so on). If there is none, it is not
                                nested. 0: not so. Other sets ignore it */
    const void *subject;     /* of a per-subject set: the subject, as bytes;
                                other sets go by it for `enforce` only */
    size_t subject_size;     /* 1 .. WEIR_SUBJECT_MAX */
    weir_token *token; /* of weir_acquire: another thread may end the wait by it (token.h), of the
                          same instance; NULL: none. The other calls ignore it. */
    /*
     * The granted acquisition of the same set, and of the same subject, that the request is nested
     * in: its holder asks for more before it gives back what it has. NULL: none. Any number of
     * requests may be nested in one, and in these others.
     *
     * A holder that asks its own set for more would wait for ever behind another request that waits
     * for what it holds. A nested request goes before all that are not nested, and nested ones are
     * granted in their order. With `fair: false` that is so among those that wait: a new request,
     * nested or not, is granted before all of them if what it asks for is there. If all that could
     * still free what is short is held by acquisitions with nested requests that wait, the request
     * that would complete this circle is refused with -EDEADLK: give back what is held, and try
     * again. It is assumed that holders without such requests give back what they hold. Of a pool,
     * the set of the acquisition is chosen, also if weir_reload has taken it out of the pool since.
     */
    const weir_acquisition *within;
    /*
     * The value of the `traceparent` header (W3C Trace Context) of what the request is made for;
     * the caller's. Events of the request and of its acquisition have what it says (event.h). It is
     * read only if one is told: a malformed one counts as none, as that standard asks, and
     * refuses no request. NULL: none. A submission to a completion queue that hands out no
     * acquisition has it in its events until it waits.
     */
    const char *traceparent;
    /*
     * The class of the request in a set with `priorities` (the number, "0" is the most urgent) or
     * `shares` (the name). A set that has other classes refuses it with -ENOENT; one without
     * classes ignores it. NULL: the class of the pool, or else the last one of the set. The
     * caller's.
     */
    const char *wait_class;
};
#define WEIR_SUBJECT_MAX ((size_t)4096)

/*
 * The limit that refused a request, and when to try again. Filled on -EAGAIN, -ENOBUFS, -ERANGE,
 * -EDEADLK, -ENOENT and -ETIMEDOUT if the set or the request caused them, and on -EINVAL if the
 * request is malformed or its amounts are wrong. Untouched on success; on -EINVAL for its subject,
 * its token or what it is nested in; on other errors; and if `size` is too small. The strings live
 * as long as the set (as long as any handle of the instance); an unknown key is the caller's own
 * string.
 */
struct weir_refusal {
    size_t size;             /* in: sizeof(struct weir_refusal) */
    const char *key;         /* limit that refused or limits the head of the wait queue, or the
                                unknown key; "" if there is none, or only a reservation is ahead */
    const char *set;         /* the set's name */
    uint64_t retry_after_ns; /* forecast from now, a lower bound; 0: no forecast, a resource is
                                short; WEIR_FOREVER: never by the passing of time */
    const char *reason;      /* on -EINVAL, if it is filled then: what is wrong with the request, in
                                words. A constant; not the program's. Else NULL */
    uint64_t reserved[3];    /* 0. Later versions may give them a meaning; the struct never grows,
                                as it is a part of struct weir_completion */
};

/*
 * Takes amounts of rates and calls. Final at once: usage equals the amount, and there is nothing to
 * release. Never waits. A resource in the set must be left out (amount 0), else -EINVAL. Returns 0,
 * -EAGAIN (would have to wait), or an error of weir_acquire; timeout_ns and max_wait_ns do not
 * matter. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_take(weir_pool *pool, const struct weir_request *request,
                                          struct weir_refusal *retref);

/* Acquires without waiting. Returns 0, -EAGAIN (would have to wait), or an error of weir_acquire;
 * timeout_ns and max_wait_ns do not matter. Any thread. [any thread, changes] */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_try_acquire(weir_pool *pool,
                                                 const struct weir_request *request,
                                                 weir_acquisition **ret,
                                                 struct weir_refusal *retref);

/*
 * Acquires, blocking the calling thread in the set's wait queue if necessary. `request` may be
 * NULL: every limit with its default. It is copied as far as needed and may go when the call
 * returns. `*ret` belongs to the caller until weir_release.
 * Returns
 *   0            granted
 *   -EAGAIN      the forecast wait exceeds max_wait, or the wait has exceeded it
 *   -ETIMEDOUT   timeout_ns has passed
 *   -ENOBUFS     max_waiters requests wait already; or a per-subject set has no room for another
 *                subject or its wait queue: max or the memory is used up, and no subject can be
 *                forgotten or evicted
 *   -ERANGE      an amount exceeds what its limit can ever grant, perhaps since a change
 *   -EDEADLK     the request is nested, and would wait for ever (struct weir_request)
 *   -ENOENT      strict, and a key is unknown
 *   -EINVAL      the request is malformed (its size, an unknown flag, a key that is NULL, a token
 *                of another instance), names a key twice, or names nothing of a set with a rate;
 *                the set is a per-subject set, and the request has no subject or one that is too
 *                long; `within` is not granted, or not of a set of the pool, or of another subject;
 *                or `pool` or `ret` is NULL
 *   -ECANCELED   the token of the request was canceled, before the call or while it waited
 *   -EOWNERDEAD  it was granted while it waited, and revoked (`max_hold_action`) before the thread
 *                woke up
 *   -ESHUTDOWN   the instance is closing or closed; or, while it waited, the set was removed
 *   -ESTALE      the set or pool was removed (weir_reload)
 *   -ECHILD      the instance was opened before fork, by the parent
 *   -ENOMEM      out of memory; of a shared set also: its file system is full, it has no room for
 *                more threads or acquisitions left, or a definition that it has got cannot be read
 *                now (weir/segment.h)
 *   -EUCLEAN     the set is shared by processes, and its segment is damaged or has got a definition
 *                that this process cannot follow; or an engine keeps it, and its state there is
 *                damaged
 *   -EHOSTUNREACH the set is kept by an engine that cannot be asked (on_failure: closed)
 *   -EEXIST      the set is defined otherwise by the engine that keeps it
 *   -EACCES      the engine that keeps the set does not permit its use
 *   -EOPNOTSUPP  the set is kept by an engine, and the request is nested
 *   -EMFILE, -ENFILE, -EAGAIN, … from the kernel, of a shared set, of one that reads the wall
 *                clock or goes by CLOCK_BOOTTIME, and of a pool with WEIR_POOL_WAIT_ANY: waiting
 *                needs the timer thread and some descriptors; and of a set with max_hold, even if
 *                nothing waits (no thread is -ENOMEM there)
 *
 * On any failure nothing is taken, `*ret` is untouched, and `retref`, if not NULL, says more (see
 * struct weir_refusal). Any thread. Signals do not interrupt it; weir_token_cancel does.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_acquire(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, struct weir_refusal *retref);

/*
 * Acquires without blocking. Returns 0 (granted), 1 (pending: wait for weir_acquisition_fd, or poll
 * weir_acquisition_result), or an error of weir_acquire. -EAGAIN (would wait longer than max_wait)
 * and -ENOBUFS are decided here. The first pending acquisition starts the instance's timer thread
 * (not with an injected clock). Also -EMFILE, -ENFILE, -EAGAIN, … from the kernel if the timer
 * thread cannot be started, or cannot receive events of the other processes of a shared set or
 * steps of the clock; nothing is taken then, and `retref` is untouched. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_submit(weir_pool *pool, const struct weir_request *request,
                                            weir_acquisition **ret, struct weir_refusal *retref);

/*
 * Grants in advance (a reservation), for programs that send at given times rather than wait.
 * `*ret_at_ns` is the time, by the instance's clock, as of which the request counts as granted: now
 * or later, and never before the limits allow it. The grant must not be used before that time.
 * weir_uring_prep_paced (uring.h) makes the kernel start operations then. All other calls, and the
 * acquisition's descriptors, treat it as granted already and do not signal that time. weir_update
 * and weir_release work as for any other acquisition.
 *
 * Later requests are served as if a waiter were ahead: the set grants nothing before that time, not
 * even to the newcomers of an unfair set. weir_cancel undoes a reservation, before and after its
 * time, until weir_update reports usage; weir_acquisition_result does not matter. Its amounts are
 * refunded (acquisition.h says how, at its top). Its time is not: nothing is granted before it. So
 * reserve no further ahead than needed; max_wait bounds it. A reservation that is released counts
 * as used.
 *
 * For rates and calls only: a resource in the set must be left out (amount 0). timeout_ns does not
 * matter. On -EAGAIN `retref` says when to try again; or wait with weir_submit. Any thread. Returns
 * 0; -EAGAIN (there are waiters, which a reservation does not overtake; or the time would be
 * further away than max_wait; or there is no forecast), -EINVAL (a resource takes part, or as of
 * weir_acquire); or another error of weir_acquire.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_reserve(weir_pool *pool, const struct weir_request *request,
                                             weir_acquisition **ret, uint64_t *ret_at_ns,
                                             struct weir_refusal *retref);

/*
 * Returns a descriptor that becomes readable once the acquisition is decided. That is, once it is
 * granted, refused, timed out or canceled: weir_acquisition_result says which. It is so (POLLIN) at
 * once if the acquisition already is, and stays readable until read: eight bytes, as of an eventfd.
 * It is one, or a FIFO if another process may grant. The first call makes it, and later ones return
 * the same. It is close-on-exec and non-blocking, closed by weir_release and never handed out
 * again; the caller must not close it. A failure changes nothing: the acquisition waits or is
 * granted as before. A program that may be out of descriptors makes an eventfd before it submits,
 * and attaches it (weir_acquisition_attach). Returns the descriptor; -EMFILE, -ENFILE, -ENOMEM,
 * -ECHILD, -EBUSY (a completion queue has yet to hand out its completion), -EINVAL (it has a
 * descriptor for grants, or `acquisition` is NULL), or the kernel's error of writing it; then call
 * again. [one thread, changes]
 */
WEIR_PUBLIC int weir_acquisition_fd(weir_acquisition *acquisition);

/*
 * Returns an eventfd that becomes readable only if the acquisition is granted. It never does
 * because the acquisition was refused, timed out or was canceled: for waits that the kernel itself
 * continues from (see uring.h). Ownership is as with weir_acquisition_fd. The first of the two
 * calls decides which kind this acquisition has; the other one returns -EINVAL from then on.
 * Returns the eventfd, or an error of weir_acquisition_fd.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_acquisition_grant_fd(weir_acquisition *acquisition);

/*
 * Returns an eventfd that becomes readable once what was granted is not held any more. That is,
 * once the session with the engine that keeps the set has ended, or the acquisition is revoked
 * (`max_hold_action: revoke`): weir_acquisition_result and weir_release say -EOWNERDEAD from then
 * on. It is readable at once if the session has ended already, and never because of weir_release.
 * Ownership is as with weir_acquisition_fd; the acquisition may have both. Returns the descriptor;
 * -EOPNOTSUPP (the set neither revokes nor is kept by an engine, or it was granted without one: it
 * is held until it is released), -EOWNERDEAD (it was revoked before), -EINVAL (it is not granted,
 * or `acquisition` is NULL), -EMFILE, -ENFILE, -ENOMEM, -ECHILD.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_acquisition_lost_fd(weir_acquisition *acquisition);

/*
 * Attaches an eventfd of the program to an acquisition. 1 is added to it once the acquisition is
 * decided, at once if it already is. A program that waits repeatedly keeps it in its loop, instead
 * of adding a new descriptor each time. It stays the program's, which reads it before the next
 * wait. It must stay open until the acquisition is released; nothing is written to it afterwards.
 *
 * Several acquisitions may share one: its count is the number decided since it was read. Nothing
 * else may fill it. At its maximum nothing can be added; if it is blocking as well, the deciding
 * thread and all other waits of the instance stall until it is read.
 *
 * weir_acquisition_fd returns it from then on, and repeats an addition that failed. Returns 0;
 * -EBADF (not open), -EINVAL (no eventfd; or the acquisition has a descriptor already, of whatever
 * kind), -ECHILD, -EBUSY (a completion queue has yet to hand out its completion), or the kernel's
 * error of writing it. On an error nothing is attached.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd);

/*
 * Returns the result of an acquisition, or that it is pending. Never blocks. A result other than
 * -EINPROGRESS is final, with two exceptions. weir_cancel can undo a reservation, or a grant that
 * this call has not reported yet; and it is -EUCLEAN once the segment of the set is found damaged.
 * Returns
 *   0             granted
 *   -EINPROGRESS  pending
 *   -ETIMEDOUT    timeout_ns has passed
 *   -EAGAIN       max_wait has passed
 *   -ECANCELED    canceled
 *   -ENOBUFS      of a completion queue: the wait queue was full
 *   -EHOSTUNREACH the engine that keeps the set could not be asked (on_failure: closed)
 *   -EOWNERDEAD   it was granted, and is not held any more: the session with its engine has ended,
 *                 or it was held longer than `max_hold` and revoked (weir_acquisition_lost_fd tells
 *                 an event loop)
 *   -EEXIST, -EACCES, -ESHUTDOWN, -ESTALE, -ECHILD, -EUCLEAN  as weir_acquire
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_result(weir_acquisition *acquisition);

/*
 * Tells the limit that refused an acquisition, and when to try again, as a forecast from now.
 * Only of an acquisition that ended with -ETIMEDOUT or -EAGAIN, or in a completion queue with
 * -ENOBUFS. Returns 0; -EINVAL (it did not end so, or ret->size is too small), -ENOMEM, -EUCLEAN,
 * -ECHILD.
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret);

/*
 * Cancels a pending acquisition; its result becomes -ECANCELED and its fd readable. An earlier
 * grant that weir_acquisition_result has not reported yet is undone, with refunds as acquisition.h
 * says at its top; so is a reservation that was not updated. Returns 0, -EALREADY (it was decided
 * before, or canceled already; see the result), -ECHILD. The acquisition must still be released.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_cancel(weir_acquisition *acquisition);

/*
 * Reports how much was used. It is required, before the release, of a rate, and of a call taken
 * with an amount above 1 (0 … amount). The last value before release counts. Usage below the amount
 * refunds the rest at release, if the limit refunds (acquisition.h says how, at its top). Usage
 * above it makes a rate warn once, and is charged at release if the limit says `overuse: charge`.
 * Returns 0; -EINVAL (a resource, a limit left out of the request, or not granted); -ERANGE (a
 * call, above its amount, or other than 1 where the amount was 1); -ENOENT (unknown key, and
 * strict; else it warns once and returns 0); -EOWNERDEAD (it was revoked); -EUCLEAN (the segment of
 * the set is damaged); -ECHILD. A refused update changes nothing.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_update(weir_acquisition *acquisition, const char *key, uint64_t used);

/*
 * Reports how the work went that the acquisition is held for. `outcome` is WEIR_OUTCOME_SUCCESS
 * (also if nothing is reported), _OVERLOAD, _FAILURE or _IGNORED (algorithm.h). `latency_ns` is how
 * long it took; 0: the time from the grant to the release. Limits of type resource with an
 * algorithm that adapts to this are told at the release, by the last report; all others do not
 * care. Without a release they are told that it was canceled, if the grant was undone, or dropped,
 * if the process ended. Returns 0; -EINVAL (another outcome, not granted, or `acquisition` is
 * NULL), -EOWNERDEAD (it was revoked), -EBUSY (a completion queue has yet to hand out its
 * completion), -EUCLEAN (the segment of the set is damaged), -ECHILD.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_outcome(weir_acquisition *acquisition, uint32_t outcome, uint64_t latency_ns);

/*
 * Returns `n` units of each limit with this key before the release, and keeps the rest. Units of a
 * resource are free at once, and the waiters that become ready are granted. Units of a rate or call
 * must not be used: they are refunded as weir_update and weir_release do, by the rule of the limit
 * (not at all with `refund: false`), as of now. What is left is treated as if no more had been
 * acquired: weir_acquisition_amount says it, a later weir_update counts against it, and without one
 * that is required -EPROTO comes back and all of it counts as used. Of an amount of 0 nothing is
 * left to update or to release.
 *
 * After a weir_update no more can be returned than was left unused by it. The grant cannot be
 * canceled any more. In weir_set_holders a resource of a shared set, or of one that revokes, gets
 * another id.
 *
 * Returns 0; -ERANGE (more than it has, or than was left unused), -EINVAL (it is not granted, or an
 * argument is NULL), -ENOENT (unknown key, and strict; else it warns once and returns 0), -EBUSY (a
 * completion queue has yet to hand out its completion), -EOWNERDEAD (it was revoked), -ENOMEM (a
 * resource of a shared set, or of one that revokes: no memory or room for another record), -EUCLEAN
 * (the segment of the set is damaged), -ECHILD. An error other than -EUCLEAN has changed nothing.
 * [one thread, changes]
 */
WEIR_PUBLIC int weir_return(weir_acquisition *acquisition, const char *key, uint64_t n);

/*
 * Releases the acquisition, in any state, exactly once, and sets `*acquisition` to NULL. A pending
 * one is canceled; a decided one without a grant is only freed. A grant that neither
 * weir_acquisition_result nor the fd has reported is undone, with refunds as acquisition.h says at
 * its top. NULL and a pointer to NULL are fine. Returns 0; -EPROTO (a required update is missing:
 * usage counts as the full request, and everything was released; the log names the key, once for
 * each key of a set, and weir_acquisition_missing_update says it before); -EOWNERDEAD (it was not
 * held to the end: the session with its engine ended before, or it was revoked); -ECHILD (memory
 * was freed, the parent's limits are untouched). [one thread, changes]
 */
WEIR_PUBLIC int weir_release(weir_acquisition **acquisition);

/* Returns the name of the set that was picked. As long as the request waits in several sets
 * (WEIR_POOL_WAIT_ANY), and if it ends so, that is the name of the pool. It lives as long as the
 * acquisition. [one thread, reads] */
WEIR_PUBLIC const char *weir_acquisition_set(const weir_acquisition *acquisition);

/* Returns a value of the `config` map of the set that was picked. It is that of the time of the
 * request, or NULL if there is none or no set was picked yet (WEIR_POOL_WAIT_ANY), and lives as
 * long as the acquisition. [one thread, reads] */
WEIR_PUBLIC const char *weir_acquisition_config(const weir_acquisition *acquisition,
                                                const char *name);

/*
 * Lists the `config` map of the set that was picked, sorted by name. Stores the first `n` entries
 * in `ret`, which may be NULL if `n` is 0. The strings live as long as the acquisition. Returns how
 * many there are in all, or -EINVAL (an argument is NULL).
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_config_settings(const weir_acquisition *acquisition,
                                                 struct weir_setting *ret, size_t n);

/*
 * Tells the amount of the limit with this key, in its units. Stores in `*ret`, of a granted
 * acquisition what it holds or may use now; of any other what the request asked for. The set's
 * defaults are included, and 0 is a limit that was left out. Returns 0; -ENOENT (the set has no
 * such key, or no set was picked yet: WEIR_POOL_WAIT_ANY), -EINVAL (an argument is NULL), -ECHILD.
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_amount(const weir_acquisition *acquisition, const char *key,
                                        uint64_t *ret);

/*
 * Tells when the acquisition was granted. Stores in `*ret_ns` the time of the instance's clock, ns,
 * as of which it counts so. Of a reservation that is the reserved time. It may be up to 10 ms early
 * if nothing but a counted resource, or nothing at all, was granted at once. Returns 0; -EINVAL (it
 * is not granted, or an argument is NULL), -EOWNERDEAD (it was revoked), -EUCLEAN (the segment of
 * the set is damaged), -ECHILD.
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_granted_ns(const weir_acquisition *acquisition, uint64_t *ret_ns);

/*
 * Tells the fencing token of what an engine has granted: a number that grows with every grant of
 * the set. The resource itself refuses what comes with a smaller token than it has seen, and so
 * keeps out a process that was stopped, lost its session, and goes on. See M. Kleppmann, "How to do
 * distributed locking", 2016. Returns 0; -EOWNERDEAD (the session has ended, or it was revoked;
 * `*ret` is untouched); -EOPNOTSUPP (no engine keeps the set, or it was granted without one);
 * -EINVAL (it is not granted, or an argument is NULL), -ECHILD.
 * [one thread, reads]
 */
WEIR_PUBLIC int weir_acquisition_fence(const weir_acquisition *acquisition, uint64_t *ret);

/*
 * Returns the key of the first limit that lacks an update. There weir_update has to be called
 * before weir_release, and was not. NULL if there is none, the acquisition is not granted, or
 * `acquisition` is NULL. The string lives as long as the acquisition. weir_release returns -EPROTO
 * as long as there is one.
 * [one thread, reads]
 */
WEIR_PUBLIC const char *weir_acquisition_missing_update(const weir_acquisition *acquisition);

/*
 * Tells what remains of each limit, and when it is whole again. Of a per-subject set that is of the
 * request's subject, which stays unknown if it is. Amounts do not matter, and `request` may be NULL
 * for other sets. A limit in shadow for the request refuses it nothing, so it is whole: all of its
 * capacity is available. Changes nothing, and stores those of the first `n` limits in `ret`, which
 * may be NULL if `n` is 0. http.h makes fields of a response of them. A set that an engine keeps is
 * asked there, which takes a second at most; units of a lease count as used then. Any thread.
 * Returns the number of limits of the set, -EINVAL (the request is malformed, or lacks a subject),
 * -ENOMEM, -EUCLEAN (the set's state is damaged), -EHOSTUNREACH, -EEXIST, -EACCES (as weir_acquire)
 * or -ECHILD. [any thread, reads]
 */
WEIR_PUBLIC int weir_set_remaining(weir_set *set, const struct weir_request *request,
                                   struct weir_remaining *ret, size_t n);

/*
 * Forecasts when a set would grant a request. Stores in `*ret_ns` the first such time of the
 * instance's clock, behind the waiters and reservations ahead, with resources counted as available,
 * so a lower bound. WEIR_BLOCKED (algorithm.h): not by the passing of time; WEIR_FOREVER: never.
 * An engine is not asked: of a set that it keeps this is the time of the call. The request's
 * timeout and max_wait do not matter. Any thread. Returns 0, or -EINVAL, -ERANGE, -ENOENT, -ENOMEM,
 * -EUCLEAN or -ECHILD with the meanings of weir_acquire.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_ready_at(weir_set *set, const struct weir_request *request,
                                  uint64_t *ret_ns);

/*
 * Tells what the first waiter of a wait queue waits for, and until when. `waiter` was listed by
 * weir_set_holders. In `ret`, `key` is the limit that refuses it now, or "" if only a reservation
 * is ahead. retry_after_ns is from now: WEIR_FOREVER while units have to be released, and 0 if it
 * is just being granted. Any thread. Returns 0; 1 (others are ahead of it; `ret` is untouched);
 * -ESRCH (it does not wait any more); -EINVAL (an argument is NULL, it holds, or ret->size is too
 * small); -EOPNOTSUPP (an engine keeps the set); -ENOMEM, -EUCLEAN (the set's segment is damaged)
 * or -ECHILD. [any thread, reads]
 */
WEIR_PUBLIC int weir_set_waiter_refusal(weir_set *set, const struct weir_holder *waiter,
                                        struct weir_refusal *ret);

#ifdef __cplusplus
}
#endif
#endif

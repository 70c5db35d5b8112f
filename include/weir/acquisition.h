/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions: asking for amounts of several limits at once, waiting for them, giving them back.
 *
 * States of an acquisition:
 *
 *     submit ──► granted ───────────────────────────► release
 *        └─────► pending ──► granted ───────────────► release
 *                   ├──────► timed out, refused, canceled, shut down ──► release (frees only)
 *                   └──────► release (cancels and frees)
 *     reserve ─► granted as of an instant ──────────► release
 *                   └──────► canceled ──────────────► release (frees only)
 *
 * An acquisition belongs to one thread at a time; different acquisitions are independent. What a
 * process holds of a set that processes share goes back when it ends, however it ends, and what it
 * waits for leaves the line; rates and calls count as used then (docs/processes.md).
 */
#ifndef WEIR_ACQUISITION_H
#define WEIR_ACQUISITION_H

#include <weir/pool.h>

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

/* What is asked for. Zero everything, set `size`, then what is wanted. */
struct weir_request {
    size_t size;                       /* sizeof(struct weir_request) */
    const struct weir_amount *amounts; /* may be NULL: every limit with its default */
    size_t amounts_n;
    uint64_t timeout_ns;  /* how long to wait; 0: the set's default; WEIR_FOREVER */
    uint64_t max_wait_ns; /* refuse at once if the wait is foreseen to be longer; as above */
    uint64_t route;       /* for balancers that hash */
    uint32_t flags;       /* WEIR_STRICT */
    uint32_t reserved;    /* 0 */
    const void *subject;  /* of a keyed set: whose limits these are, as bytes; others ignore it */
    size_t subject_size;  /* 1 .. WEIR_SUBJECT_MAX */
};
#define WEIR_SUBJECT_MAX ((size_t)4096)

/*
 * Who refused and when to come back. Filled on -EAGAIN, -ENOBUFS, -ERANGE, -ENOENT and -ETIMEDOUT,
 * and also where a single key is to blame for an -EINVAL; untouched on success, and if `size` is
 * too small. The strings live as long as the set (as long as any handle of the instance); a key
 * that is unknown is the caller's own string.
 */
struct weir_refusal {
    size_t size;             /* in: sizeof(struct weir_refusal) */
    const char *key;         /* that refused or holds up the line, or is unknown; or "", also where
                                a reservation alone is ahead */
    const char *set;         /* the set's name */
    uint64_t retry_after_ns; /* estimate from now, a lower bound; 0: not foreseen, it is a resource
                                that is short; WEIR_FOREVER: never by the passing of time */
};

/*
 * Takes amounts of rates and calls, final at once: usage equals the amount and there is nothing to
 * release. Never waits. A resource in the set must be left out (amount 0), else -EINVAL.
 * Returns 0, -EAGAIN (would have to wait), or as weir_acquire; timeout_ns and max_wait_ns do not
 * matter. Any thread.
 */
WEIR_PUBLIC int weir_take(weir_pool *pool, const struct weir_request *request,
                          struct weir_refusal *retref);

/*
 * Acquires without waiting. Returns 0, -EAGAIN (would have to wait), or as weir_acquire; timeout_ns
 * and max_wait_ns do not matter. Any thread.
 */
WEIR_PUBLIC int weir_try_acquire(weir_pool *pool, const struct weir_request *request,
                                 weir_acquisition **ret, struct weir_refusal *retref);

/*
 * Acquires, blocking the calling thread in the set's line if need be. `request` may be NULL: every
 * limit with its default. It is copied as far as needed and may go when the call returns. `*ret`
 * belongs to the caller and goes back with weir_release.
 * Returns
 *   0            granted
 *   -EAGAIN      the wait is foreseen to exceed max_wait, or has exceeded it
 *   -ETIMEDOUT   timeout_ns has passed
 *   -ENOBUFS     max_waiters stand in line already; or the set is keyed, and there is no room for
 *                another subject, or for a line of its own: so many are known as max_keys or memory
 *                allow, and none can be forgotten or evicted
 *   -ERANGE      an amount exceeds what its limit can ever grant
 *   -ENOENT      strict, and a key is unknown
 *   -EINVAL      the request is malformed (its size, an unknown flag, a key that is NULL), asks
 *                for a key twice, or names nothing of a set with a rate; the set is keyed, and the
 *                request has no subject, or a longer one; `pool` or `ret` is NULL
 *   -ESHUTDOWN   the instance is closing or closed
 *   -ECHILD      the instance was opened before fork, by the parent
 *   -ENOMEM      out of memory; of a set that processes share also: its file system is full, or it
 *                has no room for more threads or acquisitions
 *   -EUCLEAN     the set is shared by processes, and its segment is damaged
 *   -EMFILE, -ENFILE, -EAGAIN, … from the kernel, of a set that processes share: to wait for it
 *                takes the timekeeper thread and some descriptors, as weir_submit does
 *
 * On any failure nothing is taken, `*ret` is untouched, and `retref`, if not NULL, says more (see
 * struct weir_refusal). Any thread. Signals do not interrupt it.
 */
WEIR_PUBLIC int weir_acquire(weir_pool *pool, const struct weir_request *request,
                             weir_acquisition **ret, struct weir_refusal *retref);

/*
 * Acquires without blocking. Returns 0 (granted), 1 (pending: wait for weir_acquisition_fd, or ask
 * weir_acquisition_result), or as weir_acquire; -EAGAIN (would wait longer than max_wait) and
 * -ENOBUFS are decided here. Starts the instance's timekeeper thread when the first waiter pends
 * (not with an injected clock). Also -EMFILE, -ENFILE, -EAGAIN, ... from the kernel if the
 * timekeeper cannot be started, or cannot hear of the other processes that share the set; nothing
 * is taken then, and `retref` is untouched. Any thread.
 */
WEIR_PUBLIC int weir_submit(weir_pool *pool, const struct weir_request *request,
                            weir_acquisition **ret, struct weir_refusal *retref);

/*
 * Reserves: grants in advance, for programs that are to send at given instants rather than to wait.
 * `*ret_at_ns` is the instant of the instance's clock as of which the request counts as granted,
 * now or later, and never before the limits allow it: nothing may be done with the grant until
 * then. weir_uring_prep_paced (uring.h) has the kernel start operations at that instant.
 * The acquisition is granted as far as all other calls are concerned, its descriptors included:
 * they do not tell of the instant. weir_update and weir_release are as for any other.
 *
 * Whoever comes later is served as if behind a waiter: nobody gets anything of this set before the
 * instant, newcomers of an unfair set included. weir_cancel takes a reservation back as if it had
 * never been until weir_update says that it was used, before and after its instant, with
 * weir_acquisition_result asked or not. As by any refund, amounts go back as far as the algorithm
 * can; the instant does not: nothing is granted before it all the same. So reserve no further ahead
 * than can be spared, which is what max_wait says. One that is released counts as used.
 *
 * For rates and calls only: a resource in the set must be left out (amount 0), else -EINVAL.
 * Returns 0; -EAGAIN: somebody is in line, and nobody overtakes, or the instant would be further
 * away than max_wait, or no instant is foreseen (`retref` says when to come back, or wait by
 * weir_submit); or as weir_acquire. timeout_ns does not matter. Any thread.
 */
WEIR_PUBLIC int weir_reserve(weir_pool *pool, const struct weir_request *request,
                             weir_acquisition **ret, uint64_t *ret_at_ns,
                             struct weir_refusal *retref);

/*
 * An eventfd that becomes readable (POLLIN) once the acquisition is decided, at once if it already
 * is, and stays readable until read. Made on the first call, close-on-exec and non-blocking, closed
 * by weir_release and never handed out twice; the caller must not close it. Returns it, or -EMFILE,
 * -ENFILE, -ENOMEM, -ECHILD, -EBUSY (a queue has yet to hand out its completion), -EINVAL (it has
 * one of the next kind), or what the kernel said to writing it; then it can be asked for again.
 */
WEIR_PUBLIC int weir_acquisition_fd(weir_acquisition *acquisition);

/*
 * The same, except that it becomes readable only if the acquisition is granted, never because it
 * was refused, timed out, or was canceled: for waits that the kernel itself carries on from (see
 * uring.h). The first of the two calls decides which of them this acquisition has; the other is
 * -EINVAL from then on.
 */
WEIR_PUBLIC int weir_acquisition_grant_fd(weir_acquisition *acquisition);

/*
 * Attaches an eventfd of the caller's own instead: 1 is added to it once the acquisition is
 * decided, at once if it already is. A program that waits time and again has it in its loop once,
 * instead of a new descriptor each time. It stays the caller's, who reads it before the next wait.
 * It must stay open until the acquisition is released; nothing is written to it afterwards. Several
 * acquisitions may have the same one: its count says how many were decided since it was read. Nobody
 * else may fill it: at its maximum nothing can be added to it, and if it is not non-blocking either,
 * whoever decides waits with all others of the instance until it is read.
 * weir_acquisition_fd returns it from then on, and makes up for what could not be added.
 * Returns 0; -EBADF (not open), -EINVAL (no eventfd; or the acquisition has a descriptor already, of
 * whatever kind), -ECHILD, -EBUSY (a queue has yet to hand out its completion), or what the kernel
 * said to writing it. Whenever it fails, nothing is attached.
 */
WEIR_PUBLIC int weir_acquisition_attach(weir_acquisition *acquisition, int event_fd);

/*
 * 0 granted, -EINPROGRESS pending, -ETIMEDOUT, -EAGAIN (max_wait passed), -ECANCELED, -ESHUTDOWN,
 * -ENOBUFS (of a queue: the line was full), -ECHILD, -EUCLEAN. Never blocks. Once it is not
 * -EINPROGRESS it stays as it is, except that weir_cancel can take back a grant that this call has
 * not yet told of, or a reservation, and that it is -EUCLEAN once the segment of the set is found
 * damaged.
 */
WEIR_PUBLIC int weir_acquisition_result(weir_acquisition *acquisition);

/*
 * Who refused an acquisition that ended with -ETIMEDOUT or -EAGAIN, or of a queue also with
 * -ENOBUFS, and when to come back: the estimate as of now. Returns 0; -EINVAL (it did not end so, or
 * ret->size is too small), -ENOMEM, -EUCLEAN, -ECHILD.
 */
WEIR_PUBLIC int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret);

/*
 * Withdraws a pending acquisition; its result becomes -ECANCELED and its fd readable. A grant that
 * was faster, but of which the caller has not learned from weir_acquisition_result, goes back to
 * the limits as if it had never been; so does a reservation that was not updated. Returns 0,
 * -EALREADY (it was decided before, or canceled already; see the result), -ECHILD. The acquisition
 * must still be released.
 */
WEIR_PUBLIC int weir_cancel(weir_acquisition *acquisition);

/*
 * Reports how much was used of a rate (required before release) or of a call taken with an amount
 * above 1 (required, 0 … amount). The last value before release counts. Usage below the amount
 * refunds the rest at release, if the limit refunds; above it, a rate warns once and is charged at
 * release if the limit says `overuse: charge`. Returns 0; -EINVAL (a resource, a limit left out of
 * the request, or not granted); -ERANGE (a call, above its amount, or other than 1 where the amount
 * was 1); -ENOENT (unknown key, and strict; else it warns once and returns 0); -EUCLEAN (the segment
 * of the set is damaged); -ECHILD. A refused update changes nothing.
 */
WEIR_PUBLIC int weir_update(weir_acquisition *acquisition, const char *key, uint64_t used);

/*
 * Gives everything back, in any state, exactly once, and sets `*acquisition` to NULL: a pending one
 * is canceled, a decided one that was not granted is only freed. A grant of which the caller cannot
 * know, because neither weir_acquisition_result nor the fd has told, goes back as if it had never
 * been. NULL and a pointer to NULL are fine. Returns 0; -EPROTO (a required update is missing:
 * usage counts as the full request; everything was given back all the same); -ECHILD (memory was
 * freed, the parent's limits are untouched).
 */
WEIR_PUBLIC int weir_release(weir_acquisition **acquisition);

/* The name of the set that was picked. Lives as long as the acquisition. */
WEIR_PUBLIC const char *weir_acquisition_set(const weir_acquisition *acquisition);

/* A value of the picked set's `config` map as it was at the request, or NULL. Lives as long. */
WEIR_PUBLIC const char *weir_acquisition_config(const weir_acquisition *acquisition,
                                                const char *name);

/*
 * The first instant of the instance's clock at which this request would be granted by this set,
 * waiters and reservations ahead included, resources counted as available: a lower bound.
 * WEIR_BLOCKED (algorithm.h): not by the passing of time; WEIR_FOREVER: never. Its timeout and
 * max_wait do not matter. Any thread. Returns 0, -EINVAL, -ERANGE, -ENOENT, -ENOMEM, -EUCLEAN or
 * -ECHILD, as weir_acquire.
 */
WEIR_PUBLIC int weir_set_ready_at(weir_set *set, const struct weir_request *request,
                                  uint64_t *ret_ns);

#ifdef __cplusplus
}
#endif
#endif

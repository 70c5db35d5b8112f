/* SPDX-License-Identifier: MIT */
/*
 * A pool: the handle from which a program acquires. It picks a set for each request. A set's name
 * opens as a pool of that one set. A pool handle may be used from any thread until it is closed;
 * one per worker is faster and keeps the balancer's order. weir_reload may give the pool other sets
 * and another balancer while it is used.
 */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include <weir/instance.h>
#include <weir/set.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_pool weir_pool;

/* The worker index is taken from a counter of the pool's name: 0, 1, 2, … */
#define WEIR_WORKER_AUTO UINT32_MAX

/* Flags of a pool. */
enum {
    /* weir_take and weir_try_acquire go on to the balancer's next choice after a refusal, up to 64
     * sets. If all refuse, the refusal is that of the set that would grant first. */
    WEIR_POOL_TRY_NEXT = 1u << 0,
    /*
     * A request that is not granted at once waits in all sets, and the first one that is able
     * grants it. The sets are asked in the balancer's order, as by WEIR_POOL_TRY_NEXT; the first
     * that grants at once takes it, and no other does. Otherwise the request enters their wait
     * queues in that order, and stands in each as any other: max_waiters, max_wait and timeout of
     * that set and of the request hold there. Once one set grants, the request leaves all others. A
     * set that grants between the two undoes it: it has these units less for a moment, and rates
     * are refunded as acquisition.h says at its top.
     *
     * It is refused if all sets refuse it, and ends without a grant if it ends so in all of them.
     * weir_submit, weir_acquire and weir_queue_submit wait so. weir_reserve picks one set, and a
     * request with `within` waits in the set of that acquisition. At most WEIR_POOL_WAIT_MAX sets.
     */
    WEIR_POOL_WAIT_ANY = 1u << 1
};

/* Sets of a pool with WEIR_POOL_WAIT_ANY. */
#define WEIR_POOL_WAIT_MAX 64u

/* A pool, defined in code: over sets of its own, over sets that exist already, or both. */
struct weir_pool_spec {
    size_t size;                         /* sizeof(struct weir_pool_spec) */
    const char *name;                    /* NULL: the pool cannot be opened by name */
    const char *balancer;                /* NULL: round_robin */
    const struct weir_setting *settings; /* parameters of the balancer */
    size_t settings_n;                   /* at most 64 */
    const struct weir_set_spec *sets;    /* new sets; an array of structs of sets[0].size bytes */
    size_t sets_n;
    const char *const *set_names; /* existing sets, after the new ones; no set twice */
    size_t set_names_n;
    uint64_t seed;          /* of the randomness given to the balancer; 0: the instance's */
    uint32_t worker;        /* this handle's worker index, or WEIR_WORKER_AUTO */
    uint32_t flags;         /* WEIR_POOL_* */
    const char *wait_class; /* of requests that name none (struct weir_request); NULL: none */
};

/*
 * Opens a pool, or a set as a pool of one, by name. `worker` is this handle's index among those
 * that use the pool, or WEIR_WORKER_AUTO. `*ret` is closed with weir_pool_close. Returns 0, -ENOENT
 * (no such name; `reterr` tells the one that was perhaps meant), -EINVAL (`ret`, `w` or `name` is
 * NULL), -ENOMEM, -ESHUTDOWN, -ECHILD; `reterr`, if not NULL, says why. Without any configuration
 * every name opens one empty set, and the log warns of it. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_pool_open(weir_pool **ret, weir *w, const char *name,
                                               uint32_t worker, struct weir_error *reterr);

/*
 * Defines sets and a pool in code and opens it. All or nothing; everything is copied. A pool of one
 * set that names no balancer has none. Returns 0, -EEXIST (a name is taken), -ENOENT (there is no
 * such set or plugin), -ENOEXEC (a plugin file is refused), -EINVAL (anything else is wrong),
 * -ENOMEM, -ESHUTDOWN, -ECHILD, or for a shared set one of the errors of weir_open; `reterr`, if
 * not NULL, says why. Any thread.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_pool_new(weir_pool **ret, weir *w,
                                              const struct weir_pool_spec *spec,
                                              struct weir_error *reterr);

/*
 * Closes a pool handle, which no other thread may be using; its sets and acquisitions live on. May
 * wait until a weir_reload in another thread ends. NULL is fine. Always returns NULL.
 * [one thread, changes]
 */
WEIR_PUBLIC weir_pool *weir_pool_close(weir_pool *pool);

/*
 * Returns the name of the pool's balancer. It is NULL if there is none: a pool of one set
 * needs none. It lives as long as the handle. weir_reload may change it. Any thread.
 * [any thread, reads]
 */
WEIR_PUBLIC const char *weir_pool_balancer(const weir_pool *pool);

/* Returns the flags of the pool, WEIR_POOL_*; 0 if `pool` is NULL. weir_reload may change them. Any
 * thread. [any thread, reads]
 */
WEIR_PUBLIC uint32_t weir_pool_flags(const weir_pool *pool);

/* Returns how many sets the pool has now. It has at least 1; the answer is 0 if `pool` is NULL. Any
 * thread. [any thread, reads] */
WEIR_PUBLIC size_t weir_pool_sets(const weir_pool *pool);

/*
 * Returns a set of the pool, to look at. It is NULL if there are no more than `index`, which
 * weir_reload may change. Borrowed: lives as long as the pool handle. Any thread.
 * [any thread, reads]
 */
WEIR_PUBLIC weir_set *weir_pool_set(weir_pool *pool, size_t index);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/*
 * A pool: what a program acquires from. It picks a set for each request and is out of the way. A
 * set's name opens as a pool of that one set. A pool handle may be used from any thread; one per
 * worker is faster and keeps the balancer's order.
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

/* A pool, defined in code: over sets of its own, over sets that exist already, or both. */
struct weir_pool_spec {
    size_t size;                         /* sizeof(struct weir_pool_spec) */
    const char *name;                    /* NULL: the pool cannot be opened by name */
    const char *balancer;                /* NULL: round_robin */
    const struct weir_setting *settings; /* parameters of the balancer */
    size_t settings_n;
    const struct weir_set_spec *sets; /* new sets; an array of structs of sets[0].size bytes */
    size_t sets_n;
    const char *const *set_names; /* existing sets, after the new ones */
    size_t set_names_n;
    uint64_t seed;   /* of the randomness given to the balancer; 0: the instance's */
    uint32_t worker; /* this handle's worker index, or WEIR_WORKER_AUTO */
};

/*
 * Opens a pool, or a set as a pool of one, by name. `worker` is this handle's index among those
 * that use the pool. Returns 0, -ENOENT (no such name), -EINVAL, -ENOMEM, -ESHUTDOWN, -ECHILD.
 * Without any configuration every name opens one empty set.
 */
WEIR_PUBLIC int weir_pool_open(weir_pool **ret, weir *w, const char *name, uint32_t worker);

/*
 * Defines sets and a pool in code and opens it. All or nothing; everything is copied. Returns 0,
 * -EEXIST (a name is taken), -EINVAL (see `reterr`), -ENOENT, -ENOEXEC, -ENOMEM, -ESHUTDOWN,
 * -ECHILD.
 */
WEIR_PUBLIC int weir_pool_new(weir_pool **ret, weir *w, const struct weir_pool_spec *spec,
                              struct weir_error *reterr);

/* Closes a pool handle; its sets and acquisitions live on. NULL is fine. Always returns NULL. */
WEIR_PUBLIC weir_pool *weir_pool_close(weir_pool *pool);

/* The name of the pool's balancer, or NULL: a pool of one set may have none. */
WEIR_PUBLIC const char *weir_pool_balancer(const weir_pool *pool);

/* How many sets the pool has, at least 1. */
WEIR_PUBLIC size_t weir_pool_sets(const weir_pool *pool);

/* A set of the pool, to look at, or NULL. Borrowed: lives as long as the pool handle. */
WEIR_PUBLIC weir_set *weir_pool_set(weir_pool *pool, size_t index);

#ifdef __cplusplus
}
#endif
#endif

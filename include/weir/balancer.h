/* SPDX-License-Identifier: MIT */
/*
 * Balancers: which set of a pool a request goes to. Pure functions over flat state of their own,
 * private to one pool handle (one worker); the core serializes calls on one state. The rules for
 * state and configuration are those of algorithm.h.
 */
#ifndef WEIR_BALANCER_H
#define WEIR_BALANCER_H

#include <weir/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set as a balancer sees it. Live, but only a snapshot. It may grow: step by `view_size`. Of a
 * set that an engine keeps it is what this process has there: no pick asks an engine. */
struct weir_set_view {
    uint64_t held;        /* acquisitions held now */
    uint64_t waiting;     /* waiters now */
    uint64_t ready_at_ns; /* forecast of the time at which this request would be granted;
                             WEIR_BLOCKED and above if there is no forecast */
};

struct weir_pick {
    size_t size;     /* sizeof(struct weir_pick) as the core knows it */
    uint64_t now_ns; /* the instance's clock */
    uint64_t random; /* uniform over 64 bits, fresh for each pick, from the pool's seed */
    uint64_t route;  /* the caller's, for balancers that hash; 0 if none */
    uint32_t worker; /* the pool handle's worker index */
    uint32_t sets_n; /* at least 1 */
    const struct weir_set_view *views; /* sets_n of them, or NULL without WEIR_BALANCER_VIEWS */
    size_t view_size;                  /* distance from one view to the next */
};

/* Flags of a balancer. */
enum { WEIR_BALANCER_VIEWS = 1u << 0 /* `pick` reads `views`; without it none are made */ };

struct weir_balancer {
    size_t size;    /* sizeof(struct weir_balancer) */
    uint32_t flags; /* WEIR_BALANCER_* */
    uint32_t reserved;

    /* As in algorithm.h, without amount_max. NULL: no parameters, no configuration, no state.
     * [any thread, writes arguments] */
    int (*configure)(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr);

    /* Fills the zeroed state of a new pool handle. `first` is as for `pick`, without route and
     * views. NULL: zeroes are fine. [any thread, writes arguments] */
    void (*init)(const void *config, void *state, const struct weir_pick *first);

    /*
     * Returns the index of the set to use, below sets_n. Any other index is taken modulo sets_n,
     * and logged once. Required. Not called for pools of one set.
     * [one thread, writes arguments]
     */
    uint32_t (*pick)(const void *config, void *state, const struct weir_pick *request);
};

#ifdef __cplusplus
}
#endif
#endif

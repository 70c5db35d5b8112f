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

/* What is known of a view. */
enum {
    WEIR_VIEW_LIVE =
        1u << 0, /* looked at for this pick; without it, only `id` and `weight` count */
    WEIR_VIEW_TRIED = 1u << 1 /* this set has refused the request already */
};

/*
 * A set as a balancer sees it: a snapshot, for this request. `held`, `capacity` and `available` are
 * of one limit: of those that the request asks for, the one with the least part of its capacity
 * available. It may grow: step by `view_size`.
 *
 * No look asks an engine. Of a set that an engine keeps, a view says what this process holds there.
 * Of a per-subject set it does not say `held` and `waiting`, and `available` is all or nothing.
 */
struct weir_set_view {
    uint64_t held;        /* units held, of a resource */
    uint64_t waiting;     /* waiters now */
    uint64_t ready_at_ns; /* when this request would be granted: now_ns, or a later forecast.
                             WEIR_BLOCKED: a resource is short, or a waiter is ahead that no
                             forecast lets go. WEIR_NEVER: this set cannot grant it */
    uint64_t id;          /* of the set's name: the same in each process and each run */
    uint64_t weight;      /* as configured, 1 .. WEIR_WEIGHT_MAX */
    uint64_t capacity;    /* UINT64_MAX: the request asks for no limit of the set */
    uint64_t available;   /* units that could be taken now; UINT64_MAX as above */
    uint32_t flags;       /* WEIR_VIEW_* */
    uint32_t reserved;
};

struct weir_pick {
    size_t size;     /* sizeof(struct weir_pick) as the core knows it */
    uint64_t now_ns; /* the instance's clock */
    uint64_t random; /* uniform over 64 bits, fresh for each pick, from the pool's seed */
    uint64_t route;  /* the caller's, for balancers that hash; 0 if none */
    uint32_t worker; /* the pool handle's worker index */
    uint32_t sets_n; /* at least 1 */
    const struct weir_set_view *views; /* sets_n of them; NULL without WEIR_BALANCER_VIEWS and
                                          WEIR_BALANCER_LOOKS */
    size_t view_size;                  /* distance from one view to the next */
    uint32_t attempt;                  /* sets that have refused this request before */
    uint32_t reserved;
};

/* What became of a pick. */
struct weir_pick_outcome {
    size_t size;             /* sizeof(struct weir_pick_outcome) as the core knows it */
    uint64_t now_ns;         /* the instance's clock */
    uint64_t retry_after_ns; /* of -EAGAIN: as in struct weir_refusal, 0 if that is not known */
    uint32_t index;          /* of the set */
    int32_t result;          /* 0: granted; 1: it waits; else the error of the call */
};

/* Flags of a balancer. */
enum {
    WEIR_BALANCER_VIEWS = 1u << 0, /* all sets are looked at before each pick */
    WEIR_BALANCER_LOOKS = 1u << 1, /* `pick` says which sets to look at: WEIR_PICK_LOOK */
    WEIR_BALANCER_RANKS = 1u << 2, /* `pick` is asked for another set after a refusal; without it,
                                      the sets behind the first choice follow in their order */
    /*
     * Of many picks among sets that are all free, with other routes each, every set gets the part
     * that its weight says. The library does nothing with it: people and `weir plugin check` do.
     * Without it a weight may mean something else, or nothing; but a set never gets less because it
     * weighs more.
     */
    WEIR_BALANCER_WEIGHS = 1u << 3
};

/* Added to an index by `pick`: look at this set, then pick again with the same `random`. A look
 * costs as much as a try; two of many cost two. Each set at most once. */
#define WEIR_PICK_LOOK UINT32_C(0x80000000)
/* With WEIR_BALANCER_RANKS, if `attempt` is not 0: no other set is worth a try. */
#define WEIR_PICK_NONE UINT32_MAX

struct weir_balancer {
    size_t size;    /* sizeof(struct weir_balancer) */
    uint32_t flags; /* WEIR_BALANCER_* */
    uint32_t reserved;

    /* As in algorithm.h, without amount_max. NULL: no parameters, no configuration, no state.
     * [any thread, writes arguments] */
    int (*configure)(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr);

    /* Fills the zeroed state of a pool handle, when it is opened and when weir_reload changes its
     * pool. `first` is as for `pick`, without route; no set is looked at. NULL: zeroes are fine.
     * [any thread, writes arguments] */
    void (*init)(const void *config, void *state, const struct weir_pick *first);

    /*
     * Returns the index of the set to use, below sets_n, or what is said at WEIR_PICK_LOOK and
     * WEIR_PICK_NONE. Any other number is taken modulo sets_n, and logged once; a set that was
     * tried already is replaced by the next one that was not. Required. Not called for pools of one
     * set.
     * [one thread, writes arguments]
     */
    uint32_t (*pick)(const void *config, void *state, const struct weir_pick *request);

    /* Hears what became of each pick, as soon as the call is decided or waits. NULL: it need not.
     * [one thread, writes arguments] */
    void (*outcome)(const void *config, void *state, const struct weir_pick_outcome *outcome);
};

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: MIT */
/* Pool handle: one worker's view of a pool, with the balancer's state. */
#ifndef WEIR_CORE_API_POOL_H
#define WEIR_CORE_API_POOL_H

#include "config/plan.h"
#include "set/set.h"
#include <pthread.h>

/* A pool of the instance, as configured; handles (struct weir_pool) refer to it. */
struct instance_pool {
    struct pool_plan plan;
    bool is_configured;        /* defined by a configuration, and not by the program */
    _Atomic bool is_removed;   /* from that */
    _Atomic uint32_t workers;  /* next number for WEIR_WORKER_AUTO */
    weir_set *group_set;       /* hidden: of requests that wait in several sets; NULL: none do */
    uint32_t sets_n;           /* at least 1 */
    struct weir_pool *handles; /* that pick, with the instance's lock, as the next */
    uint64_t *picks;           /* by set, of handles that were closed; behind `sets` */
    _Atomic(weir_set *) sets[];
};

struct weir_pool {
    weir *w;
    /* The only set of the pool, or of this member; NULL: the balancer picks. Exchanged for its
     * successor by the first request that finds one. */
    _Atomic(weir_set *) only_set;
    _Atomic(weir_set *) fast_set; /* only_set if fast_path_supports() it, else NULL */
    struct instance_pool *definition;
    struct pool_choice *choice; /* NULL if there is an only set; else in the list of handles: */
    struct weir_pool *next, **link;
};

/* A set of several. */
struct pool_member {
    struct weir_set_view view; /* for balancers that read views */
    weir_pool pool;            /* a handle of this set alone, which is never closed */
    _Atomic uint64_t picks;    /* written with the lock of the choice */
    uint32_t seen;             /* here, in the order of the looks: index of a view with flags */
};

/* What a handle of several sets needs to pick one. */
struct pool_choice {
    uint32_t worker;
    uint32_t seen_n;          /* views with flags */
    pthread_mutex_t lock;     /* over everything but `worker` and the handles */
    uint64_t random_state;    /* of the generator */
    uint64_t *balancer_state; /* of the balancer, for this worker; behind the members */
    bool pick_warned;         /* an invalid pick was logged */
    weir_pool group_pool;     /* a handle of the group set; no only set: there is none */
    struct pool_member members[];
};

/* Returns a set of a pool: the newest one of its name. */
static inline weir_set *pool_set(const struct instance_pool *pool, size_t i)
{
    return set_newest(atomic_load_explicit(&pool->sets[i], memory_order_acquire));
}

static inline bool pool_is_removed(const struct instance_pool *pool)
{
    return atomic_load_explicit(&pool->is_removed, memory_order_acquire);
}

/* Returns the only set of a handle, as it is now, or NULL. */
weir_set *pool_follow(weir_pool *pool);

static inline weir_set *pool_only_set(weir_pool *pool)
{
    weir_set *set = atomic_load_explicit(&pool->only_set, memory_order_acquire);

    return set && set_successor(set) ? pool_follow(pool) : set;
}

/* Returns how often a set of a pool was picked by all handles. The instance's lock is held. */
uint64_t pool_picks(const struct instance_pool *pool, uint32_t set);

/* ---- balance.c: requests to pools of several sets ---- */

#define BALANCE_TRIES_MAX 64u /* sets that one try asks */

/* A request, on its way to the set that decides it. */
struct balance {
    weir_pool *pool, *member;           /* of several sets; the handle of the one that is asked */
    const struct weir_request *request; /* NULL: it is not balanced: it is wrong, or nested */
    struct weir_refusal *retref;        /* the caller's */
    struct weir_refusal *refusal;       /* for the call: the caller's or `refused` */
    struct weir_refusal refused, best_refused; /* of the last set, and of the best one */
    int best;               /* the result that belongs to `best_refused`; 0: none yet */
    uint64_t best_after_ns; /* when that set would grant, from then */
    bool tries_next;        /* after a refusal, another set is asked */
    uint32_t tried_n;       /* sets that were asked, the last of them included */
    uint32_t tried[BALANCE_TRIES_MAX];
};

/* Picks a set for a request. Returns 0, and in `ret->member` what to ask with `ret->refusal`; or
 * -ENOMEM, -ECHILD, -ESHUTDOWN. */
int balance_begin(struct balance *ret, weir_pool *pool, const struct weir_request *request,
                  struct weir_refusal *retref, bool is_try);

/* Shows the views of a pool in a pick, if its balancer reads them. */
void balance_show_views(const weir_pool *pool, struct weir_pick *ret);

/* Returns whether another set may grant what one has refused with this result. */
bool balance_may_go_on(int result);
/* Keeps the refusal of the set that would grant first. */
void balance_keep_best(struct balance *balance, int result);
/* Hands a refusal out, if the set that was asked has filled it. */
void balance_hand_out(struct weir_refusal *ret, struct weir_refusal *refused);

/* Takes note of the result of that call. True: ask the new `balance->member`. False: `*result` and
 * the caller's refusal are final. */
bool balance_again(struct balance *balance, int *result);

/* Returns from a call on a pool of several sets: with the result of `call`, which is done on
 * `balance.member` with `balance.refusal`, for one set or for one after the other. */
#define BALANCE_RETURN(pool_, request_, retref_, is_try_, call_)                                   \
    do {                                                                                           \
        struct balance balance;                                                                    \
        int result = balance_begin(&balance, pool_, request_, retref_, is_try_);                   \
                                                                                                   \
        if (result == 0)                                                                           \
            do                                                                                     \
                result = (call_);                                                                  \
            while (balance_again(&balance, &result));                                              \
        return result;                                                                             \
    } while (0)

#endif

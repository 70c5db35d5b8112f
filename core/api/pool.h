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
    _Atomic uint32_t workers; /* next number for WEIR_WORKER_AUTO */
    uint32_t sets_n;          /* at least 1 */
    weir_set *sets[];
};

struct weir_pool {
    weir *w;
    weir_set *only_set; /* the only set of the pool; NULL: the balancer picks */
    weir_set *fast_set; /* only_set if fast_path_supports() it, else NULL */
    struct instance_pool *definition;
    uint32_t worker;
    pthread_mutex_t lock;        /* over everything below */
    uint64_t random_state;       /* of the generator */
    bool pick_warned;            /* an invalid pick was logged */
    struct weir_set_view *views; /* NULL unless the balancer reads them */
    uint64_t *balancer_state;    /* of the balancer, for this worker */
};

/* Picks a set of several by the balancer. Returns 0 or -ENOMEM. */
int pool_balance(weir_pool *pool, const struct weir_request *request, weir_set **ret);

/* Picks the set for a request. Returns 0 or -ENOMEM. */
static inline int pool_pick(weir_pool *pool, const struct weir_request *request, weir_set **ret)
{
    *ret = pool->only_set;
    return *ret ? 0 : pool_balance(pool, request, ret);
}

#endif

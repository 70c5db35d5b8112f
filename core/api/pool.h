/* SPDX-License-Identifier: MIT */
/* A pool handle: one worker's view of a pool and its balancer's state. */
#ifndef WEIR_CORE_API_POOL_H
#define WEIR_CORE_API_POOL_H

#include "api/instance.h"

struct weir_pool {
    weir *w;
    weir_set *only_set; /* of a pool of one set; NULL: the balancer picks */
    weir_set *fast_set; /* the same if it is a plain one (fast_path.h) */
    struct instance_pool *definition;
    uint32_t worker;
    pthread_mutex_t lock;        /* over everything below */
    uint64_t random_state;       /* state of the generator */
    bool pick_warned;            /* that the balancer's answer was out of range */
    struct weir_set_view *views; /* NULL unless the balancer reads them */
    uint64_t *balancer_state;    /* the balancer's */
};

/* The set that a request goes to, of a pool of several. Returns 0 or -ENOMEM. */
int pool_balance(weir_pool *pool, const struct weir_request *request, weir_set **ret);

/* The set that a request goes to. As above. */
static inline int pool_pick(weir_pool *pool, const struct weir_request *request, weir_set **ret)
{
    *ret = pool->only_set;
    return *ret ? 0 : pool_balance(pool, request, ret);
}

#endif

/* SPDX-License-Identifier: MIT */
/* What balancers that look at sets have in common. Parts are compared by products of integers. */
#ifndef WEIR_BALANCERS_VIEWS_H
#define WEIR_BALANCERS_VIEWS_H

#include <weir/algorithm.h>
#include <weir/balancer.h>

static inline const struct weir_set_view *views_at(const struct weir_pick *request, uint32_t index)
{
    return (const struct weir_set_view *)(const void *)((const char *)request->views +
                                                        index * request->view_size);
}

static inline int views_has(const struct weir_pick *request, uint32_t index, uint32_t flag)
{
    return (views_at(request, index)->flags & flag) != 0;
}

/* Returns a number below n; all are equally likely for random `bits` (D. Lemire, ACM TOMACS 29 (1),
 * 2019, without the rejection step). */
static inline uint32_t views_draw(uint32_t bits, uint32_t n)
{
    return (uint32_t)((uint64_t)bits * n >> 32);
}

/* Returns the first set from `index` on that has not refused the request; `index`: all have. */
static inline uint32_t views_next_untried(const struct weir_pick *request, uint32_t index)
{
    for (uint32_t i = 0; i < request->sets_n; i++) {
        uint32_t at = index + i < request->sets_n ? index + i : index + i - request->sets_n;

        if (!views_has(request, at, WEIR_VIEW_TRIED))
            return at;
    }
    return index;
}

/* A part of something, of 32 bits each, per weight. */
struct views_part {
    uint64_t of, whole, weight;
};

/* Returns which part of its capacity a set has in use. */
static inline struct views_part views_load(const struct weir_set_view *view)
{
    uint64_t whole = view->capacity, of = view->available < whole ? whole - view->available : 0;
    int excess = whole >> 32 ? 32 - __builtin_clzll(whole) : 0;

    return (struct views_part){of >> excess, whole >> excess, view->weight};
}

static inline struct views_part views_waiters(const struct weir_set_view *view)
{
    return (struct views_part){view->waiting & UINT32_MAX, 1, view->weight};
}

/* Returns -1, 0 or 1: whether part `a` is smaller than, equal to or larger than part `b`. */
static inline int views_compare(struct views_part a, struct views_part b)
{
    __extension__ typedef unsigned __int128 u128;
    u128 of_a = (u128)(a.of * b.whole) * b.weight, of_b = (u128)(b.of * a.whole) * a.weight;

    return (of_a > of_b) - (of_a < of_b);
}

/* Returns whether set `a` is less loaded than set `b`: ready now before not ready; then the smaller
 * part of the capacity in use, the shorter wait queue, and the earlier grant. */
static inline int views_is_better(const struct weir_pick *request, uint32_t a, uint32_t b)
{
    const struct weir_set_view *x = views_at(request, a), *y = views_at(request, b);
    int x_ready = x->ready_at_ns <= request->now_ns, y_ready = y->ready_at_ns <= request->now_ns;
    int by_load, by_waiters;

    if (x_ready != y_ready)
        return x_ready;
    if ((x->ready_at_ns == WEIR_NEVER) != (y->ready_at_ns == WEIR_NEVER))
        return y->ready_at_ns == WEIR_NEVER;
    by_load = x_ready ? views_compare(views_load(x), views_load(y)) : 0;
    if (by_load)
        return by_load < 0;
    by_waiters = views_compare(views_waiters(x), views_waiters(y));
    return by_waiters ? by_waiters < 0 : x->ready_at_ns < y->ready_at_ns;
}

#endif

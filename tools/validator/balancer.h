/* SPDX-License-Identifier: MIT */
/*
 * A balancer that is tested: configured at random for a pool of random sets, with its state and the
 * views between pages that cannot be touched. Each call is noted.
 */
#ifndef WEIR_TOOLS_BALANCER_H
#define WEIR_TOOLS_BALANCER_H

#include "setting.h"
#include <weir/balancer.h>

#define BALANCER_SETS_MAX 64u
#define BALANCER_PICKS    200u

/* How a balancer is called: what must make no difference. */
struct balancer_way {
    bool moves;         /* the state has another address at each pick */
    bool is_disturbed;  /* another pool is balanced in between */
    size_t between;     /* bytes behind each view, as of a library that knows more */
    bool is_guarded;    /* where it writes is looked at, which takes time */
    unsigned char fill; /* what the stack has before each call */
};

struct balancer {
    struct trial *trial;
    const struct weir_balancer *ops;
    struct balancer_way way;
    struct settings settings;
    struct settings_pool pool;
    struct weir_footprint footprint;
    struct arena config, states[2], other, views;
    unsigned current;                             /* the state is in states[current] */
    struct weir_set_view sets[BALANCER_SETS_MAX]; /* as they are, looked at or not */
    uint32_t sets_n;
    uint64_t now;
    uint32_t picked[BALANCER_PICKS];
    uint64_t times[BALANCER_SETS_MAX]; /* each set was picked */
};

/* The view of a set, as the balancer finds it. */
struct weir_set_view *balancer_view(const struct balancer *balancer, uint32_t index);
/* Whether the balancer is given views. */
bool balancer_reads_views(const struct balancer *balancer);
/* Makes a balancer with settings that it accepts, of sets that weigh up to `weight_max`. False: the
 * rounds are over. */
bool balancer_next_weighed(struct trial *trial, struct balancer *ret,
                           const struct balancer_way *way, uint64_t weight_max);
bool balancer_next(struct trial *trial, struct balancer *ret, const struct balancer_way *way);
/* Makes one with the settings of another. */
void balancer_make_again(struct balancer *ret, const struct balancer *like,
                         const struct balancer_way *way);
void balancer_free(struct balancer *balancer);
/* Makes the state anew. `is_equal`: all sets are free. */
void balancer_begin(struct balancer *balancer, bool is_equal);
void *balancer_state(const struct balancer *balancer);
/* Makes sets as they could be: each is free, busy, or waited for. `is_equal`: all are free. */
void balancer_show(struct balancer *balancer, bool is_equal);
/* Lets only be seen what is known without a look. */
void balancer_hide(struct balancer *balancer);
/* What a pick is told. */
struct weir_pick balancer_request(struct balancer *balancer);
/* Answers all looks that the balancer wants. Returns what it picks. */
uint32_t balancer_look(struct balancer *balancer, const struct weir_pick *pick);
/* Picks a set of those that are shown. Returns the index. */
uint32_t balancer_pick(struct balancer *balancer);
/* Tells of the outcome of a pick. */
void balancer_tell(struct balancer *balancer, uint32_t index, int32_t result);
/* Makes picks, of sets that change meanwhile unless `is_equal`, and keeps them in `picked`. */
void balancer_run(struct balancer *balancer, bool is_equal);

#endif

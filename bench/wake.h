/* SPDX-License-Identifier: MIT */
/*
 * Ways of waiting. A hand-over goes from a thread that gives to one that sleeps: the waiter gets in
 * position (`ask`) and sleeps (`wait`), the giver gives, and once `wait` returns the waiter knows
 * that it has what it asked for.
 */
#ifndef WEIR_BENCH_WAKE_H
#define WEIR_BENCH_WAKE_H

#include "bench.h"

struct rings; /* wake_uring.c */

/* What a way works with during one run. What opens returns 0, or why it is not to be had here. */
struct hand {
    weir *w;
    weir_pool *pool, *aside;      /* from each of which one at a time can be acquired */
    weir_acquisition *held, *got; /* the giver's and the waiter's */
    weir_queue *queue;
    uint64_t due_ns; /* when time makes it due (late.c) */
    uint32_t word;
    int event_fd, epoll_fd;
    int inner_fd; /* an epoll in the other one */
    struct rings *rings;
};

struct way {
    const char *name;
    const struct way *baseline; /* the bare primitive, or NULL: it is one */

    /* Of the giver. */
    int (*open_giver)(struct hand *hand); /* first of all; or NULL */
    void (*hold)(struct hand *hand);      /* before `ask` */
    void (*give)(struct hand *hand);

    /* Of the waiter. */
    int (*open)(struct hand *hand);
    void (*ask)(struct hand *hand);
    void (*wait)(struct hand *hand);
    void (*settle)(struct hand *hand); /* not timed: everything is as it was before */
    void (*close)(struct hand *hand);  /* also if one of the two could not be opened */
    bool looks;                        /* it does not sleep, but looks again and again */
};

/* All ways, each after its baseline; then NULL. */
extern const struct way *const plain_ways[];
extern const struct way *const uring_ways[];

/* Those of weir that can wait for time as well. */
extern const struct way way_blocked, way_fd_epoll, way_queue_epoll, way_queue_multishot,
    way_attached;
/* Those that wait for time alone: a linked TIMEOUT, bare and for a reservation. */
extern const struct way way_raw_instant, way_reservation;

/* What ways of weir have in common. */
void weir_hold(struct hand *hand);
void weir_give(struct hand *hand);
void weir_ask(struct hand *hand);
void weir_know(struct hand *hand);
void weir_settle(struct hand *hand);
int queue_open(struct hand *hand);
void queue_ask(struct hand *hand);
bool queue_reap(struct hand *hand);
void queue_close(struct hand *hand);

/* What ways over a descriptor have in common. */
int event_open(struct hand *hand);
int event_watch(struct hand *hand);
int event_watch_nested(
    struct hand *hand); /* as a queue has it: an epoll of its own, in the other */
void event_give(struct hand *hand);
void event_epoll(struct hand *hand);
void event_drain(struct hand *hand);
void fds_close(struct hand *hand);
void nothing(struct hand *hand);

#endif

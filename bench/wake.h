/* SPDX-License-Identifier: MIT */
/*
 * Ways of waiting. A hand-over goes from a thread that gives to one that sleeps: the waiter submits
 * its request (`ask`) and sleeps (`wait`), the giver gives, and once `wait` returns the waiter
 * knows that its request was granted.
 */
#ifndef WEIR_BENCH_WAKE_H
#define WEIR_BENCH_WAKE_H

#include "bench.h"

struct rings; /* wake_uring.c */

/* State of a way during one run. Functions that open return 0, or why the way is unavailable. */
struct hand {
    weir *w;
    weir_pool *pool, *aside;      /* each has one resource of capacity 1 */
    weir_acquisition *held, *got; /* of the giver and of the waiter */
    weir_queue *queue;
    uint64_t due_ns; /* time at which it is due (late.c) */
    uint32_t word;
    int event_fd, epoll_fd;
    int inner_fd; /* an epoll inside the other one */
    struct rings *rings;
};

struct way {
    const char *name;
    const struct way *baseline; /* bare primitive; NULL: this is one */

    /* Called by the giver. */
    int (*open_giver)(struct hand *hand); /* first; may be NULL */
    void (*hold)(struct hand *hand);      /* before `ask` */
    void (*give)(struct hand *hand);

    /* Called by the waiter. */
    int (*open)(struct hand *hand);
    void (*ask)(struct hand *hand);
    void (*wait)(struct hand *hand);
    void (*settle)(struct hand *hand); /* not timed; restores the initial state */
    void (*close)(struct hand *hand);  /* called even if one of the two could not be opened */
    bool looks;                        /* polls instead of sleeping */
};

/* All ways, each after its baseline; then NULL. */
extern const struct way *const plain_ways[];
extern const struct way *const uring_ways[];

/* Ways of weir that can wait for time as well. */
extern const struct way way_blocked, way_fd_epoll, way_queue_epoll, way_queue_multishot,
    way_attached;
/* Ways that wait for time alone: a linked TIMEOUT, bare and for a reservation. */
extern const struct way way_raw_instant, way_reservation;

/* Common to ways of weir. */
void weir_hold(struct hand *hand);
void weir_give(struct hand *hand);
void weir_ask(struct hand *hand);
void weir_know(struct hand *hand);
void weir_settle(struct hand *hand);
int queue_open(struct hand *hand);
void queue_ask(struct hand *hand);
bool queue_reap(struct hand *hand);
void queue_close(struct hand *hand);

/* Common to ways over a descriptor. */
int event_open(struct hand *hand);
int event_watch(struct hand *hand);
int event_watch_nested(struct hand *hand); /* an epoll of its own inside the other */
void event_give(struct hand *hand);
void event_epoll(struct hand *hand);
void event_drain(struct hand *hand);
void fds_close(struct hand *hand);
void nothing(struct hand *hand);

#endif

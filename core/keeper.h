/* SPDX-License-Identifier: MIT */
/*
 * The keeper looks after acquisitions that nobody is blocked on: it serves a set when time alone
 * makes its head grantable, ends waits whose deadline has passed, and writes to eventfds. One heap
 * of deadlines; only the earliest is armed, on one timerfd, by one thread that is started when the
 * first such acquisition pends. With an injected clock there is no thread: weir_tick() runs the
 * keeper.
 */
#ifndef WEIR_CORE_KEEPER_H
#define WEIR_CORE_KEEPER_H

#include "heap.h"
#include "record.h"
#include <pthread.h>
#include <weir/clock.h>
#include <weir/set.h>

/* A deadline: of a record that waits, or (record 0) of a set whose head can then be granted. */
struct timer {
    struct heap_node node; /* first */
    weir_set *set;
    uint32_t record;
    uint64_t word;           /* the record's word while it waits */
    enum record_state state; /* what it becomes */
};

struct keeper {
    pthread_mutex_t lock; /* also over the eventfds of acquisitions */
    struct heap heap;
    size_t acquisitions;       /* that may be in the heap */
    uint64_t armed_ns;         /* the timerfd's instant */
    bool failing;              /* the timerfd could not be set: the thread will try again */
    struct sys_thread *thread; /* NULL: not running */
    int epoll_fd, timer_fd, stop_fd;
};

void keeper_init(struct keeper *keeper);

/*
 * Makes room for one more acquisition and starts the thread if there is none. Returns 0, -ENOMEM,
 * -ESHUTDOWN or what the kernel said. keeper_forget() takes the room back.
 */
int keeper_expect(weir *w);
void keeper_forget(weir *w, struct timer *timer);

/* The set is to be served at this instant, or before if that was said before. */
void keeper_arm(struct keeper *keeper, weir_set *set, uint64_t at_ns);
/* A pending acquisition is to end at this instant unless it was decided before. */
void keeper_watch(weir *w, struct timer *timer, uint64_t at_ns);

/* Tells whoever waits on the record that its word has become `word`. */
void keeper_wake(weir *w, uint32_t record, uint64_t word);

/* Does everything that is due; returns how many waiters were decided. */
int keeper_run(weir *w);

/* Ends the thread. No acquisition pends any more. */
void keeper_stop(weir *w);
void keeper_free(struct keeper *keeper);

#endif

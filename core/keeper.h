/* SPDX-License-Identifier: MIT */
/*
 * A keeper keeps time for waiters that nobody is blocked on: it ends waits whose deadline has
 * passed, and looks at the head of a line again when time alone makes it grantable. One heap, by
 * the instant of each waiter: its deadline, or while it heads a line the instant to look, if that
 * is earlier. Only the earliest is armed, on one timerfd.
 *
 * An instance has a keeper of its own for acquisitions, moved by a thread (timekeeper.h); each
 * queue has one, moved by its reaper. With an injected clock weir_tick() moves them all.
 */
#ifndef WEIR_CORE_KEEPER_H
#define WEIR_CORE_KEEPER_H

#include "heap.h"
#include "record.h"
#include <pthread.h>
#include <weir/clock.h>

/*
 * In this order a hand-over between threads moves few cache lines: the first is what both of them
 * write, the second what only whoever keeps time does, the third what only the giver does.
 */
struct keeper {
    pthread_mutex_t lock;  /* over everything below and what the keeper's waiters are told by */
    uint64_t calls, heard; /* writes to the eventfd, and how many of them were read */
    int event_fd;
    bool signaled; /* the eventfd was written, or is about to be */
    bool failing;  /* the timerfd could not be set; the eventfd says so */

    weir *w;
    struct heap heap;
    uint64_t armed_ns; /* the timerfd's instant */
    uint64_t ran_ns;   /* the latest instant that a run went by */
    unsigned running;  /* runs under way: the last one arms the timerfd */
    int timer_fd;

    _Atomic uint32_t calling;           /* writes under way without the lock; a futex */
    _Atomic bool closing;               /* somebody waits for the last of them */
    bool relayed;                       /* the timekeeper's epoll has the hearings too */
    int epoll_fd;                       /* over the other two; all -1 while there are none */
    uint64_t advance_ns;                /* so much before an instant the timerfd is set */
    _Atomic(struct hearing *) hearings; /* of other processes; grows under the lock */
};

void keeper_init(struct keeper *keeper, weir *w);
void keeper_free(struct keeper *keeper);

/* Makes the descriptors. Returns 0 or a negative errno. */
int keeper_open_fds(struct keeper *keeper);
void keeper_close_fds(struct keeper *keeper);

/* Makes the eventfd readable, with one write, and unreadable. Under the lock. */
void keeper_signal(struct keeper *keeper);
void keeper_unsignal(struct keeper *keeper);
/*
 * The same in two steps, so that who is woken does not meet the lock: under the lock, whether there
 * is something to write; if so, without it, the write. keeper_await_calls: none is under way any
 * more; nobody claims another.
 */
bool keeper_claim_call(struct keeper *keeper);
void keeper_call(struct keeper *keeper);
void keeper_await_calls(struct keeper *keeper);

/* Who uses what goes when the keeper is closed is waited for, too. False: it is about to be. */
bool keeper_enter(struct keeper *keeper);
void keeper_leave(struct keeper *keeper);

/* Also wakes an edge-triggered loop to which it was readable before. */
void keeper_signal_again(struct keeper *keeper);

/* Of a record that waits, as long as its word is `word`; its keeper is the one that its waker says.
 */
/* It is to be looked at at this instant, or before if that was said before. */
void keeper_arm(weir *w, uint32_t record, uint64_t word, uint64_t at_ns);
/* Its wait is to end at this instant, as `state`. */
void keeper_watch(weir *w, uint32_t record, uint64_t word, uint64_t deadline_ns,
                  enum record_state state);
/* The same under the lock of its keeper, by whoever has seen there that its word still is `word`. */
void keeper_watch_locked(struct keeper *keeper, uint32_t record, uint64_t deadline_ns,
                         enum record_state state);

/* Tells whoever waits on the record that its word has become `word`. */
void keeper_wake(weir *w, uint32_t record, uint64_t word);

/* Whether its timer could not be set: it has to be run again. */
bool keeper_is_failing(struct keeper *keeper);

/* Does everything that is due; returns how many waiters were decided. */
int keeper_run(struct keeper *keeper);
/* The same for the timekeeper, which is woken ahead of what comes next, at once if that is near. */
void keeper_run_ahead(struct keeper *keeper);

/* When something becomes due next, or WEIR_FOREVER. */
uint64_t keeper_next(struct keeper *keeper);

/*
 * The same as part of what is done under the lock, which is given back for as long as something is
 * done that is due. `injected_ns` is the instant by an injected clock, which is not read under a
 * lock; 0: there is none, and the system's is read if anything is or was to become due.
 */
int keeper_run_locked(struct keeper *keeper, uint64_t injected_ns);

#endif

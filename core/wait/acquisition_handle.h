/* SPDX-License-Identifier: MIT */
/* The caller's handle on a record, as far as the delivery of decisions uses it. */
#ifndef WEIR_CORE_WAIT_ACQUISITION_HANDLE_H
#define WEIR_CORE_WAIT_ACQUISITION_HANDLE_H

#include "set/set.h"
#include <stdatomic.h>
#include <weir/queue.h>

/* Acquisitions of sets with at most this many limits have one size and are cached per thread. */
#define ACQUISITION_LIMITS 8u
_Static_assert(ACQUISITION_LIMITS <= 8 * sizeof(uint8_t), "limits are bits of named_limits");

#define ACQUISITION_CACHE_MAX 64u /* about what one reap hands out */

struct weir_acquisition {
    weir_set *set;
    /* Context of the thread that may release it on the fast path; NULL: slow path only. */
    struct thread_ctx *fast_ctx;
    struct counters *counters; /* of that context */
    struct acq_record *known;  /* of a private set */
    uint32_t record;           /* in the set's region; 0: nothing to release */
    uint32_t waiter;           /* waiter id; 0: no wait timer */
    uint32_t within;           /* record that it is nested in; 0: none */
    int fd;                    /* eventfd, or -1; owner: timer lock */
    int lost_fd;               /* eventfd of weir_acquisition_lost_fd, or -1 */
    bool is_timed;             /* known to the wait timer */
    bool grants_only;          /* fd signals grants only; owner: timer lock */
    bool attached;             /* fd belongs to the program; owner: timer lock */
    /* Owner of both, which have one memory location: timer lock. */
    bool signaled : 1;       /* decision was signaled */
    bool in_group : 1;       /* a member of `group`, which is not decided */
    _Atomic bool notified;   /* the wait timer knows of the decision */
    bool has_blocked_thread; /* a thread waits on the record's word (injected clock) */
    bool reserved;           /* reservation: can be canceled until it is updated */
    uint8_t canceled : 1;    /* canceled reservation of nothing, which has no record */
    uint8_t outcome : 3;     /* WEIR_OUTCOME_* */
    uint8_t has_latency : 1; /* as the program said: latency_ns */
    bool strict;
    _Atomic bool observed; /* the caller knows of the grant: it cannot be canceled */
    bool amounts_differ;   /* an amount used differs from the amount acquired */
    bool awaits_event;     /* it waits, or has: its decision is to be told (request_events.h) */
    /* fast_path.c: bit i: limit i has the only key requested; 0: unknown. */
    uint8_t named_limits;
    uint8_t wait_class;      /* as in struct acquire_op */
    _Atomic uint8_t direct;  /* number in direct_wait.c, from 1; 0: none; owner: timer lock */
    uint64_t updated_limits; /* bit i: limit i */
    struct event_tag *tag;   /* for events, owned; NULL: none */
    union {
        weir_acquisition *next; /* in a thread context's cache; among those to be withdrawn */
        /* Completion queue that has yet to hand it out, else NULL; owner: that queue's lock. */
        _Atomic(weir_queue *) queue;
    };
    union {
        uint64_t user_data;        /* of the submission to that completion queue */
        uint64_t empty_granted_ns; /* without a record: when nothing was granted */
        uint64_t latency_ns;       /* once it was handed out, with has_latency */
        struct wait_group *group;  /* with in_group */
    };
    uint64_t values[]; /* amount of each limit, then amount used of each limit */
};

/* ---- defined in api/: acquisition.c, acquisition_fd.c, release.c ---- */

/* Gives back everything that a HELD record holds, unused, if its word is still `word`: resources,
 * and of rates and calls what the limit refunds of an undone grant (weir/acquisition.h). */
bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);
/* Returns the result of a record's state for callers: 0 or a negative errno. */
int acquisition_result_of(enum record_state state);
/*
 * Signals the descriptor and the blocked thread of a decided acquisition. The caller holds the wait
 * timer's lock. Returns 0, or why the descriptor could not be written: the next call for the
 * descriptor tries again.
 */
int acquisition_signal(weir_acquisition *acquisition);

/* ---- defined in api/wait_group.c: requests that wait in several sets ---- */

/* What a caller has to notify once it has released the lock: the word of this record has changed.
 */
struct group_notice {
    weir_set *set;
    uint32_t record;
    uint64_t word;
};

/* Tells the group of a member that the member was decided. Returns whether that decides the group,
 * and in `ret` what to notify. The caller holds the wait timer's lock. */
bool wait_group_note(weir_acquisition *member, struct group_notice *ret);
/* Withdraws the members that groups have no more use for: their waits are canceled, their grants
 * undone. Returns how many others were decided by that. The caller has no lock and no thread
 * context borrowed. */
int wait_group_withdraw(weir *w);

#endif

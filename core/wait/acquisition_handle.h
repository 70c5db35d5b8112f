/* SPDX-License-Identifier: MIT */
/* The caller's handle on a record, as far as the delivery of decisions uses it. */
#ifndef WEIR_CORE_WAIT_ACQUISITION_HANDLE_H
#define WEIR_CORE_WAIT_ACQUISITION_HANDLE_H

#include "set/set.h"
#include <stdatomic.h>
#include <weir/queue.h>

/* Acquisitions of sets with at most this many limits are all of one size and are kept for reuse. */
#define ACQUISITION_LIMITS 8u

#define ACQUISITION_CACHE_MAX 64u /* so many, what a reap usually hands out */

struct weir_acquisition {
    weir_set *set;
    struct thread_ctx *fast_ctx; /* fast_path.h: who may give it back so; NULL: nobody */
    uint32_t record;       /* in its set's region; 0: nothing was taken that could be given back */
    uint32_t waiter;       /* the same as its keeper knows it; 0: it has none */
    int fd;                /* eventfd, or -1; changes under the keeper's lock */
    bool is_timed;         /* the keeper knows it */
    bool grants_only;      /* the fd tells of a grant only; under the keeper's lock */
    bool attached;         /* the fd is the caller's own; under the keeper's lock */
    bool signaled;         /* that it was decided; under the keeper's lock */
    _Atomic bool notified; /* the keeper knows that it was decided */
    bool has_blocked_thread; /* a thread waits on the record's word meanwhile (injected clock) */
    bool reserved; /* granted in advance: the caller can take it back until it says it used it */
    bool canceled; /* a reservation of nothing, which has no record to say so */
    bool strict;
    _Atomic bool observed; /* the caller counts on the grant: it cannot be taken back any more */
    bool amounts_differ;   /* of some limit another amount was told than was acquired */
    /* fast_path_block.c: bit i: limit i has the only key that was asked for; 0: who knows. */
    uint8_t named_limits;
    uint64_t updated_limits; /* bit i: limit i */
    union {
        weir_acquisition *next; /* in an actor's cache */
        /* That has yet to hand out its completion, or NULL from then on; changes under its lock. */
        _Atomic(weir_queue *) queue;
    };
    uint64_t user_data; /* of the submission to that queue */
    uint64_t values[];  /* per limit the amount, then per limit what was used */
};

/* ---- defined in api/acquisition.c ---- */

/* Gives back everything that a HELD record holds as if it had never been granted, if its word is
 * still `word`. */
bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);
/* What a record's state means for a caller: 0 or a negative errno. */
int acquisition_result_of(enum record_state state);
/*
 * Tells its fd, and whoever is blocked on it, that it was decided. Under the keeper's lock. Returns
 * 0, or why the fd could not be written: then it is when it is next asked for.
 */
int acquisition_signal(weir_acquisition *acquisition);

#endif

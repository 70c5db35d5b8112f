/* SPDX-License-Identifier: MIT */
/* The acquisition handle of the caller: a reference to a record of a set, and its private state. */
#ifndef WEIR_CORE_API_ACQUISITION_H
#define WEIR_CORE_API_ACQUISITION_H

#include "api/request.h"
#include "base/sched_point.h"
#include "set/set.h"
#include <stdatomic.h>
#include <weir/queue.h>

/* Acquisitions of sets with at most this many limits have one size and are cached per thread. */
#define ACQUISITION_LIMITS 8u

#define ACQUISITION_CACHE_MAX 64u /* about what one reap hands out */

struct weir_acquisition {
    weir_set *set;
    /* Context of the thread that may release it on the fast path; NULL: slow path only. */
    struct thread_ctx *fast_ctx;
    uint32_t record;         /* in the set's region; 0: nothing to release */
    uint32_t waiter;         /* waiter id; 0: no wait timer */
    int fd;                  /* eventfd, or -1; owner: timer lock */
    bool is_timed;           /* known to the wait timer */
    bool grants_only;        /* fd signals grants only; owner: timer lock */
    bool attached;           /* fd belongs to the program; owner: timer lock */
    bool signaled;           /* decision was signaled; owner: timer lock */
    _Atomic bool notified;   /* the wait timer knows of the decision */
    bool has_blocked_thread; /* a thread waits on the record's word (injected clock) */
    bool reserved;           /* reservation: can be canceled until it is updated */
    bool canceled;           /* canceled reservation of nothing, which has no record */
    bool strict;
    _Atomic bool observed; /* the caller knows of the grant: it cannot be canceled */
    bool amounts_differ;   /* an amount used differs from the amount acquired */
    /* fast_path_block.c: bit i: limit i has the only key requested; 0: unknown. */
    uint8_t named_limits;
    uint64_t updated_limits; /* bit i: limit i */
    union {
        weir_acquisition *next; /* in a thread context's cache */
        /* Completion queue that has yet to hand it out, else NULL; owner: that queue's lock. */
        _Atomic(weir_queue *) queue;
    };
    uint64_t user_data; /* of the submission to that completion queue */
    uint64_t values[];  /* amount of each limit, then amount used of each limit */
};

static inline uint64_t *acquisition_amounts(weir_acquisition *acquisition)
{
    return acquisition->values;
}

static inline uint64_t *acquisition_used(weir_acquisition *acquisition)
{
    return acquisition->values + acquisition->set->limits.n;
}

/* Marks the grant as observed. Loads first: an unconditional seq_cst store is a locked one. Relaxed
 * suffices for the load, as the flag is only ever set. */
static inline void acquisition_mark_observed(weir_acquisition *acquisition)
{
    if (!atomic_load_explicit(&acquisition->observed, memory_order_relaxed))
        acquisition->observed = true;
}

/* Returns whether limit i still needs an update before release. */
static inline bool acquisition_lacks_update(weir_acquisition *acquisition, uint32_t i)
{
    uint64_t amount = acquisition_amounts(acquisition)[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    return !(acquisition->updated_limits >> i & 1) &&
           ((type == WEIR_LIMIT_RATE && amount > 0) || (type == WEIR_LIMIT_CALL && amount > 1));
}

/* Returns whether `named_limits` are those with this key. */
static inline bool acquisition_names_key(const weir_acquisition *acquisition, const char *key)
{
    uint32_t named_limits = acquisition->named_limits;

    return named_limits && key &&
           request_key_equal(acquisition->set->limits.items[__builtin_ctz(named_limits)].key, key);
}

/* Frees a record without changing the set: a decision without a grant, or a grant that leaves
 * nothing to return. Release: the fields are done with before the record is reused. */
static inline void acquisition_mark_free(const weir_set *set, uint32_t record)
{
    struct acq_record *r = record_at(set->region, record);

    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_FREE),
                          memory_order_release);
    SCHED_POINT();
}

/* Returns the next acquisition in a thread's cache. */
weir_acquisition *acquisition_next(const weir_acquisition *acquisition);
/* Makes an acquisition of these amounts; a FREE record unless all are 0. NULL: out of memory. */
weir_acquisition *acquisition_new(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts);
/* Makes an acquisition of a filled record with waiter id `waiter`. NULL: out of memory. */
weir_acquisition *acquisition_from_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                          uint32_t waiter);
/* Releases a HELD record as if it had never been granted, if its word is still `word`. */
bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);
/* Returns the result of a record's state for callers: 0 or a negative errno. */
int acquisition_result_of(enum record_state state);
/* Releases an acquisition of any set: the slow path of weir_release. */
int acquisition_release(weir_acquisition *acquisition);
/* Frees the acquisition and its record, which must be FREE. */
void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition);
/*
 * Signals the descriptor and the blocked thread of a decided acquisition. The caller holds the wait
 * timer's lock. Returns 0, or why the descriptor could not be written: the next call for the
 * descriptor tries again.
 */
int acquisition_signal(weir_acquisition *acquisition);

#endif

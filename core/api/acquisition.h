/* SPDX-License-Identifier: MIT */
/* An acquisition, as the core sees it: the caller's handle on a record. */
#ifndef WEIR_CORE_API_ACQUISITION_H
#define WEIR_CORE_API_ACQUISITION_H

#include "api/request.h"
#include "base/sched_point.h"
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

static inline uint64_t *acquisition_amounts(weir_acquisition *acquisition)
{
    return acquisition->values;
}

static inline uint64_t *acquisition_used(weir_acquisition *acquisition)
{
    return acquisition->values + acquisition->set->limits.n;
}

/* A store that has no equal before would be a locked one. */
static inline void acquisition_mark_observed(weir_acquisition *acquisition)
{
    if (!atomic_load_explicit(&acquisition->observed, memory_order_relaxed))
        acquisition->observed = true;
}

/* Whether limit i of the acquisition must still be updated before release. */
static inline bool acquisition_lacks_update(weir_acquisition *acquisition, uint32_t i)
{
    uint64_t amount = acquisition_amounts(acquisition)[i];
    enum weir_limit_type type = acquisition->set->limits.items[i].type;

    return !(acquisition->updated_limits >> i & 1) &&
           ((type == WEIR_LIMIT_RATE && amount > 0) || (type == WEIR_LIMIT_CALL && amount > 1));
}

/* Whether what it says to be named has this key. */
static inline bool acquisition_names_key(const weir_acquisition *acquisition, const char *key)
{
    uint32_t named_limits = acquisition->named_limits;

    return named_limits && key &&
           request_key_equal(acquisition->set->limits.items[__builtin_ctz(named_limits)].key, key);
}

/* A decided record without a grant becomes FREE; or one with a grant that leaves the set as it is. */
static inline void acquisition_mark_free(const weir_set *set, uint32_t record)
{
    struct acq_record *r = record_at(set->region, record);

    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_FREE),
                          memory_order_release);
    SCHED_POINT();
}

/* For emptying a cache. */
weir_acquisition *acquisition_next(const weir_acquisition *acquisition);
/* An acquisition of these amounts, with a free record unless it is empty. NULL: out of memory. */
weir_acquisition *acquisition_new(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts);
/* An acquisition of a record that is filled already, and is kept as `kept`; or NULL: out of memory.
 */
weir_acquisition *acquisition_from_record(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                          uint32_t waiter);
/* Gives back everything that a HELD record holds as if it had never been granted, if its word is
 * still `word`. */
bool acquisition_undo(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word);
/* What a record's state means for a caller: 0 or a negative errno. */
int acquisition_result_of(enum record_state state);
/* weir_release() of any set; fast_path.c, where that begins, knows a shorter way for most. */
int acquisition_release(weir_acquisition *acquisition);
/* Frees it and its record, whose word must be FREE. */
void acquisition_free(struct thread_ctx *ctx, weir_acquisition *acquisition);
/*
 * Tells its fd, and whoever is blocked on it, that it was decided. Under the keeper's lock. Returns
 * 0, or why the fd could not be written: then it is when it is next asked for.
 */
int acquisition_signal(weir_acquisition *acquisition);

#endif

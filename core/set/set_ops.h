/* SPDX-License-Identifier: MIT */
/*
 * The operations that a kind of set supplies. The layers above set/ call a set through this table
 * alone, so a kind with its state elsewhere needs a table and nothing else. README.md of api/ says
 * what a kind must supply.
 *
 * A set is the one that a configuration defines, or a hidden one that its kind has bound to a
 * record (a key set). Both have the table and the number of the set that programs know.
 */
#ifndef WEIR_CORE_SET_SET_OPS_H
#define WEIR_CORE_SET_SET_OPS_H

#include "base/siphash.h"
#include "set/set.h"
#include <weir/event.h>
#include <weir/pool.h>

struct set_plan;
struct weir_error;

/* What a request says of itself besides its amounts. */
struct event_tag {
    struct weir_trace trace; /* trace_id all 0: none */
    uint64_t subject;        /* hash; 0: none */
};

/* One call that asks a set for something, as the layers pass it on. */
struct acquire_op {
    const struct weir_request *request; /* the caller's, or request_default */
    weir_set *set;
    struct thread_ctx *ctx;
    struct key_digest key;      /* of the subject, by set_ops.identify */
    uint32_t within;            /* record that the request is nested in; 0: none */
    uint32_t wait_class;        /* of a set with classes; by set_ops.identify */
    const weir_pool *pool;      /* that was asked; NULL: the set */
    weir_set **acquisition_set; /* where the acquisition says which set it is of; or NULL */
    bool is_observed;           /* events are told of it; `tag` is filled in */
    struct event_tag tag;
    struct weir_refusal *retref;
    struct decision decision;
    uint64_t amounts[WEIR_LIMITS_MAX];
};

/*
 * Acquires op->amounts from a plain set or a key set. Returns 0 if granted; 1 if enqueued; -EAGAIN
 * (not now, or the forecast wait exceeds `max_wait_ns`), -ENOBUFS, -ERANGE, -EDEADLK, -ENOMEM,
 * -ESHUTDOWN, -EUCLEAN.
 * `record` is free and filled by the caller, and becomes HELD or WAITING; 0: nothing to release,
 * and no waiting. A probe fills no decision and counts only a grant. A reservation is granted (0)
 * as of the time in the decision, or refused with -EAGAIN.
 */
int set_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode, uint64_t max_wait_ns);

/*
 * No call may take a lock of api/ or wait/. Except for `open` and `close`, any thread calls any
 * operation at any time, with a thread context that is prepared for the set.
 */
struct set_ops {
    size_t size;           /* of the kind's struct, which begins with its weir_set */
    uint16_t state_words;  /* of a version, behind the states of the limits */
    uint16_t record_words; /* of a record, behind its amounts; then that of shadow.h */
    bool has_fast_path;    /* sets of this kind may be served by api/fast_path.c */
    bool wants_releases;   /* `release` ends every grant, also one that leaves nothing to return */

    /* Makes the state of a new set or attaches to it, and undoes that, also after a failure. `open`
     * returns 0 or a negative errno with the reason. The instance's lock is held. May block. */
    int (*open)(weir_set *set, const struct set_plan *plan, struct weir_error *reterr);
    void (*close)(weir_set *set);

    /* Identifies the subject of op->request, or its class. Returns 0, -EINVAL, or -ENOENT (the
     * class is unknown). NULL: there are neither. */
    int (*identify)(struct acquire_op *op);
    /* Returns whether a record is of the subject of op->request. NULL: there are no subjects. */
    bool (*is_of_subject)(const struct acquire_op *op, uint32_t record);
    /* Fills a record's words behind its amounts. NULL: it has none. */
    void (*fill_record)(const struct acquire_op *op, struct acq_record *r);
    /* Acquires op->amounts, as set_acquire() specifies. May change op->set; the acquisition and the
     * record are of that set then. Blocks only as long as its kind allows weir_try_acquire() to. */
    int (*acquire)(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                   uint64_t max_wait_ns);
    /* As set_lease(); only for sets with limits.has_lease. */
    int (*lease)(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
                 struct decision *ret);
    /* As set_release(), set_return_units(), set_return_part(), set_cancel_wait(): they cannot fail.
     * `set` of cancel_wait may also be the one that programs know. */
    bool (*release)(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                    bool is_owner, const struct release_args *args);
    void (*return_units)(struct thread_ctx *ctx, weir_set *set, const struct release_args *args);
    void (*return_part)(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                        const struct release_args *args);
    bool (*cancel_wait)(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                        enum record_state state);
    /* Tells the fencing token of a HELD record. Returns 0; -EOWNERDEAD (it is not held any more);
     * -EOPNOTSUPP (it has none). NULL: none has one. */
    int (*fence)(const weir_set *set, uint32_t record, uint64_t *ret);
    /* Adds 1 to `fd`, an eventfd, as soon as what a HELD record holds is lost, at once if it is;
     * -1: no more. Returns 0, or -EOPNOTSUPP (it is never lost). NULL: none is. */
    int (*watch_loss)(const weir_set *set, uint32_t record, int fd);
    /* Returns the acquisition of another set that a HELD record stands for, or NULL if it is not
     * HELD. NULL: records of the kind stand for themselves. */
    weir_acquisition *(*winner)(const weir_set *set, uint32_t record);
    /* Frees what a record refers to that has ended without a grant. NULL: nothing. */
    void (*forget)(const weir_set *set, uint32_t record);
    /* As set_grant_waiters() and set_poll_head(), when time may have made the head ready. */
    void (*grant_waiters)(struct thread_ctx *ctx, weir_set *set);
    uint64_t (*poll_head)(struct thread_ctx *ctx, weir_set *set, uint32_t record);
    /* As stall_check_queue(), for all wait queues of a shared set in which this process may have
     * waiters. */
    uint64_t (*check_stalls)(struct thread_ctx *ctx, weir_set *set);
    /* Ends all waits of this process with RECORD_SHUT_DOWN; of a private set, also all grants to
     * come. The instance is marked as closed before. Cannot fail. */
    void (*shut_down)(struct thread_ctx *ctx, weir_set *set);

    /* Forecasts into op->decision, as set_forecast(), for op->amounts and the subject of `record`,
     * or op->key if that is 0. Changes nothing but op->set, where another set has refused. */
    void (*forecast)(struct acquire_op *op, uint32_t record, enum forecast_walk walk);
    /* As set_look(). NULL: the forecast says as much as there is to see. */
    void (*look)(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                 struct set_look *ret);
    /* Returns number `i` of the private sets that decide for this one at times, or NULL. They have
     * numbers of their own. NULL: there are none. */
    weir_set *(*stand_in)(const weir_set *set, uint32_t i);
    /* Fills in `waiting` and, of the first `n` limits, `available` and `held`; an engine also says
     * `engine_held` and `engine_granted`. Returns 0, -EUCLEAN or -EHOSTUNREACH. */
    int (*snapshot)(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                    struct weir_limit_stats *limits, uint32_t n);
    /* Fills `ret`, of WEIR_GAUGES_MAX values, with the gauges of limit `i`. Returns how many there
     * are, or -EUCLEAN. NULL: the state is elsewhere. */
    int (*observe)(struct thread_ctx *ctx, weir_set *set, uint32_t i, uint64_t *ret);
    /* Fills in times and `available` of what remains of the first `n` limits, for the subject of
     * op->request. Returns as `snapshot`; -ENOMEM; or -ESTALE: there is a successor. */
    int (*remaining)(struct acquire_op *op, struct weir_remaining *ret, uint32_t n);
    /* Fills in what this process knows by itself: how many of its requests wait, `granted_alone`,
     * and of the first `n` limits `leased`. NULL: `snapshot` costs no more. */
    void (*own_stats)(weir_set *set, struct weir_set_stats *ret, struct weir_limit_stats *limits,
                      uint32_t n);
    /* Views wait queue number `i`. False: there are fewer. Its links are those of the records. */
    bool (*view_queue)(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret);
};

/* Returns the subject of a valid request, as bytes, with its size. NULL: it has none that a set
 * with subjects takes. A request of an earlier version is too short to have one. */
static inline const void *request_subject(const struct weir_request *request, size_t *ret_size)
{
    const size_t with_subject =
        offsetof(struct weir_request, subject_size) + sizeof(request->subject_size);

    if (request->size < with_subject || !request->subject_size ||
        request->subject_size > WEIR_SUBJECT_MAX)
        return NULL;
    *ret_size = request->subject_size;
    return request->subject;
}

/* Return the effective timeout and max_wait of a request. */
static inline uint64_t request_timeout(const weir_set *set, const struct weir_request *request)
{
    return request->timeout_ns ? request->timeout_ns : set->timeout_ns;
}

static inline uint64_t request_max_wait(const weir_set *set, const struct weir_request *request)
{
    return request->max_wait_ns ? request->max_wait_ns : set->max_wait_ns;
}

/* Frees a record that has ended without a grant. Of a broken set it may have been granted or wait:
 * its word stays, and peers end it by that once this process has ended. */
static inline void set_free_ended_record(const weir_set *set, uint32_t record)
{
    if (set_is_broken(set))
        return;
    if (set->ops->forget)
        set->ops->forget(set, record);
    set_free_record(set, record);
}

/* Returns number `i` of the sets that decide for this one at times, or NULL. */
static inline weir_set *set_stand_in(const weir_set *set, uint32_t i)
{
    return set->ops->stand_in ? set->ops->stand_in(set, i) : NULL;
}

/* Where the state of a new set is. */
struct set_storage_plan {
    const struct set_plan *plan; /* whole; NULL: private storage */
    uint64_t keys_max;           /* keys that the segment of a keyed set has room for; else 0 */
    uint32_t key_sets_max;       /* key sets that it has room for */
    uint32_t block_class_min; /* of a segment: so that the state by another definition fits, too */
};

/* Makes the state of a new set, or attaches to it if the segment exists. The limits are described
 * and the plan is still whole. Returns 0, or a negative errno and, for a segment, the reason. The
 * caller holds the instance's lock. */
int set_storage_make(weir_set *set, const struct set_storage_plan *storage,
                     struct weir_error *reterr);

/* Returns the name that the set was made with. Not of a key set. */
static inline const char *set_own_name(const weir_set *set)
{
    return (const char *)set + set->ops->size;
}

#endif

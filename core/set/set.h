/* SPDX-License-Identifier: MIT */
/*
 * A set's operations: each reads the published version, decides in private, and publishes one new
 * version: a grant, a place in line, a release with its hand-over, a withdrawal. The line is served
 * by whoever changes something; nobody overtakes.
 */
#ifndef WEIR_CORE_SET_SET_H
#define WEIR_CORE_SET_SET_H

#include "config/plan.h"
#include "limit/limit.h"
#include "set/thread_ctx.h"
#include "shm/participant.h"
#include "state/wait_queue.h"
#include <errno.h>

struct keyed;
struct announce_slots;
struct warnings;

/* An idle one is to take little: its limits are not its own, what few sets need is made when they
 * need it, and its name is behind it: set_name(). */
struct weir_set {
    /* What every call needs comes first. */
    weir *w;
    struct region *region; /* where its state and its records are: the instance's, or of */
    struct participant *participant; /* the segment that processes share; NULL: private */
    struct limits limits;            /* limit_intern_entry.h */
    struct keyed *keyed;             /* NULL: it is not keyed */
    uint32_t head_unit;    /* unit of its struct set_head; 0: an empty set, which has no state */
    uint32_t number;       /* in an actor's parts */
    uint8_t inline_format; /* enum inline_format: of its word while it is not boxed */
    uint8_t record_units;
    uint8_t block_class; /* of a version with a projection */
    uint8_t backend;     /* enum backend */
    bool strict : 1, fair : 1;
    bool while_used : 1;         /* lifetime: users */
    bool is_shared : 1;          /* who uses it may die before the others do: processes share it */
    _Atomic bool spare_prepared; /* the spare actor is: somebody has asked it for something */
    uint16_t config_n;           /* at most CONFIG_ENTRIES_MAX */

    _Atomic uint64_t *deflated_ns; /* when it was last boxed; not beside its word: its own, or */
    union {                        /* that of its segment */
        _Atomic uint64_t own_deflated_ns;
        struct announce_slots *announce_slots; /* if it is not its own: of its ledger */
    };
    uint64_t timeout_ns, max_wait_ns;
    uint32_t max_waiters;
    uint32_t id;                         /* in its records: its number, but for a hidden set */
    struct name_value *config;           /* sorted by name */
    _Atomic(struct warnings *) warnings; /* request.h */
};

/* The ids of hidden sets, which one key of a keyed set has (key_set.h); the rest is their number. */
#define KEY_SET_ID_BIT (UINT32_C(1) << 31)

static inline bool set_is_key_set(const weir_set *set)
{
    return (set->id & KEY_SET_ID_BIT) != 0;
}

/* The name that the set was made with; empty for a key set (set_name() in api/set_object.h). */
static inline const char *set_own_name(const weir_set *set)
{
    return (const char *)(set + 1);
}

/* Words of a version of it. */
static inline uint32_t set_content_min(const weir_set *set)
{
    return CONTENT_STATES + set->limits.state_words + (set->inline_format == INLINE_DCAS);
}

/* The same with a projection of its limits. */
static inline uint32_t set_content_max(const weir_set *set)
{
    uint32_t words = set_content_min(set);

    return set->limits.has_waits ? words + 1 + set->limits.state_words : words;
}

/* What an entry came to. */
struct decision {
    uint32_t ticket;      /* of who joined the line: waitq_departures() when it will head it */
    uint64_t now_ns;      /* when it was decided */
    uint64_t forecast_ns; /* refusals: the first instant worth coming back; grants: theirs */
    const struct limit *limiting; /* refusals: the limit that refused; NULL: the line */
    uint64_t lease_rest;          /* grants: what was taken beyond the amount */
};

/* What a release does to each limit. */
struct release_args {
    const uint64_t *amounts; /* as acquired */
    const uint64_t *used;    /* what was used of it; beyond the amount: overuse */
    bool return_all;         /* a grant that nobody wanted any more: everything goes back */
    uint64_t granted_ns;     /* if there is no record that says so */
};

/* What to do with a request that cannot be granted now. */
enum wait_mode {
    MODE_PROBE,  /* nothing: the caller will come back to wait */
    MODE_TRY,    /* refuse it */
    MODE_WAIT,   /* let it join the line */
    MODE_RESERVE /* grant it in advance, unless somebody is in line; no resources */
};

/*
 * Grants `amounts` now (0), or lets them join the line (1), or refuses: -EAGAIN (not now, or the
 * wait is foreseen to exceed `max_wait_ns`), -ENOBUFS, -ERANGE, -ESHUTDOWN. `record`, free and
 * filled by the caller, becomes HELD or WAITING; 0: nothing to release, and no waiting. A probe
 * fills no verdict and counts nothing unless it is granted. A reservation is granted (0) at the
 * instant that the verdict tells, or refused: -EAGAIN.
 */
static inline int set_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                              uint32_t record, enum wait_mode mode, uint64_t max_wait_ns,
                              struct decision *ret);

/*
 * As set_acquire() of MODE_TRY with no record; but if `lease`, which is 0 or more than `amount`, can
 * be had while nobody is in line or has reserved, it is taken: `ret->leased` is the rest of it.
 */
int set_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
              struct decision *ret);

/* Whether something in it was what nobody would have written: nothing is to be had of it. */
static inline bool set_is_broken(const weir_set *set)
{
    return set->participant && participant_is_broken(set->participant);
}

static inline struct acq_record *set_record(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

/* A decided record without a grant becomes FREE; or one with a grant that leaves the set as it is. */
static inline void set_free_record(const weir_set *set, uint32_t record)
{
    struct acq_record *r = record_at(set->region, record);

    atomic_store_explicit(&r->word, record_next_word(record_load(&r->word), RECORD_FREE),
                          memory_order_release);
    SCHED_POINT();
}

/* The word of a record, as far as it can be trusted: RECORD_BROKEN for the rest. */
uint64_t set_record_word(const weir_set *set, uint32_t record);

/* Gives back what a HELD record holds, serves the line, and leaves the record FREE. */
void set_release(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                 const struct release_args *args);

/* The same if the record's word is exactly `word`, which says HELD; false: it is not any more. */
bool set_release_exact(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                       const struct release_args *args);

/* The same of what is given back to a live set (key_set.h), if it is as actor->loan says, and counts
 * nothing: 1 done, 0 somebody else did it, -ESTALE. `claimed`: the record is FREE already. */
int set_release_key_set(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                        const struct release_args *args, bool claimed);

/* The same of what was taken for no record; counts nothing. */
void set_return_units(struct thread_ctx *ctx, weir_set *set, const struct release_args *args);

/*
 * A WAITING record leaves the line and becomes `state`; whom it held up is looked at. With
 * `expected` not 0, only if the record's word is exactly that. False: it was decided before.
 */
bool set_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                     enum record_state state);

/* Grants to the head while it can be granted. */
void set_grant_waiters(struct thread_ctx *ctx, weir_set *set);

/* The same, for a blocked waiter: the instant to look again if it is the head, or WEIR_FOREVER. */
uint64_t set_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record);

/* When what is settled was granted. `record` 0: there is none. */
static inline uint64_t set_granted_ns(const weir_set *set, uint32_t record,
                                      const struct release_args *args)
{
    return record ? record_load(&set_record(set, record)->granted_ns) : args->granted_ns;
}

/* Counts a grant; `record` 0: of something that is not given back. */
void set_count_grant(struct thread_ctx *ctx, const weir_set *set, const uint64_t *amounts,
                     uint32_t record);
/* Counts a refusal because `blame` is short. */
void set_count_busy(struct thread_ctx *ctx, const weir_set *set, const struct limit *limiting);
void set_count_release(struct thread_ctx *ctx, const weir_set *set,
                       const struct release_args *args);

/* What limit i gets back of what it granted, from its `state`; true if a rate or call got anything.
 */
bool set_release_limit(const weir_set *set, uint32_t i, uint64_t *state,
                       const struct weir_instant *at, const struct release_args *args,
                       uint64_t granted_ns);

/* Counts a refusal that was decided before the set was entered; `key`, the limit's own, is to
 * blame. */
void set_count_refusal(struct thread_ctx *ctx, weir_set *set, int code, const char *key);

/* Which lines an estimate may walk if what was foreseen no longer holds. */
enum forecast_walk {
    FORECAST_ANY_QUEUE,
    FORECAST_SHORT_QUEUE /* a long one is left out: still a lower bound, and no work without bound */
};

/* The first instant at which `amounts` would be granted, waiters ahead included. */
void set_forecast(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                  enum forecast_walk forecast_walk, struct decision *ret);

/* A consistent copy of the set's content for onlookers: actor->content. Returns its line's length.
 */
uint32_t set_snapshot(struct thread_ctx *ctx, weir_set *set);

/* inline_state.c: the same at the set's word; or -EINPROGRESS: it has to be done with the whole of the set. */
int inline_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                   enum wait_mode mode, struct decision *ret);
/* try_now.c: the same of a set that is always boxed, with nobody in line. */
int try_now_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum wait_mode mode, struct decision *ret);
/* set_enqueue.c: the same of who waits, if others are in line before him: 1, or -ESHUTDOWN. */
int set_enqueue(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, uint32_t record,
                uint64_t max_wait_ns, struct decision *ret);
/* The same with the whole of the set, until that can be in its word. */
int set_acquire_inflated(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                         uint32_t record, enum wait_mode mode, uint64_t max_wait_ns,
                         struct decision *ret);

static inline int set_acquire(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                              uint32_t record, enum wait_mode mode, uint64_t max_wait_ns,
                              struct decision *ret)
{
    int r = set->inline_format == INLINE_NONE
                ? try_now_acquire(ctx, set, amounts, record, mode, ret)
                : inline_acquire(ctx, set, amounts, record, mode, ret);

    return r != -EINPROGRESS
               ? r
               : set_acquire_inflated(ctx, set, amounts, record, mode, max_wait_ns, ret);
}

#endif

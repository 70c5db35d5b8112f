/* SPDX-License-Identifier: MIT */
/*
 * Operations of a set. Each reads the published version, decides on a private copy, and publishes
 * at most one new version: a grant, an enqueue, a release with its hand-over, or a cancellation.
 * The thread that changes something also grants the waiters that become ready. In a fair set no
 * request overtakes a waiter.
 */
#ifndef WEIR_CORE_SET_SET_H
#define WEIR_CORE_SET_SET_H

#include "base/invariant.h"
#include "limit/limit.h"
#include "set/thread_ctx.h"
#include "shm/participant.h"
#include "state/wait_queue.h"
#include <errno.h>

struct name_value;
struct set_ops;
struct wait_classes;
struct set_origin;
struct announce_slots;
struct warnings;
struct limit_places;

/* Kept small, since most sets of a program are idle: limits are interned, rare parts are made on
 * demand, and the name follows the struct (set_own_name()). */
struct weir_set {
    /* For every call. */
    weir *w;
    const struct set_ops *ops;       /* of its kind (set_ops.h) */
    const struct fast_path *fast;    /* api/fast_path.c; NULL: it has none */
    struct region *region;           /* of its state and records */
    struct set_head *head;           /* in the region; not of a key set */
    struct participant *participant; /* NULL: a private set */
    struct limits limits;            /* items: interned */
    uint32_t head_unit;              /* unit of its struct set_head; 0: no limits, no state */
    uint32_t number;                 /* index into thread_ctx.set_ctxs */
    uint8_t inline_format;           /* enum inline_format of its state word */
    uint8_t record_units;
    uint8_t block_class;         /* of a version with a forecast */
    _Atomic bool spare_prepared; /* spare context prepared; set at first use */
    bool strict : 1;
    bool fair : 1, per_limit : 1; /* fairness.h; per_limit only if fair */
    bool reorders : 1;            /* the next waiter may be another one than the head */
    bool hands_over : 1;          /* a release may hand over (set_release.c) */
    bool boottime : 1;            /* as configured: its clock goes on during a suspension */
    bool while_used : 1;          /* lifetime: users */
    bool is_keyed : 1;            /* a template, which changes no state (keyed.h) */
    bool is_configured : 1;       /* defined by a configuration, and not by the program */
    bool is_later : 1;            /* shared, with a definition that came later than its segment */
    bool is_by_name : 1;          /* empty: there was no configuration when it was opened */
    bool has_joined : 1;          /* it has opened its participant, and closes it */
    bool is_robust : 1;   /* its operations survive the death of another process at any step */
    unsigned backend : 2; /* enum backend */
    uint16_t config_n;    /* at most CONFIG_ENTRIES_MAX */

    _Atomic uint64_t *deflated_ns; /* of the last deflation: the next, or in a segment */
    union {
        _Atomic uint64_t own_deflated_ns;
        struct announce_slots *announce_slots; /* if shared */
    };
    uint64_t timeout_ns, max_wait_ns;
    uint32_t max_waiters;
    uint32_t id;                         /* in its records: number, or that of a key set */
    struct wait_classes *classes;        /* NULL: waiters have none */
    struct name_value *config;           /* sorted by name */
    _Atomic(struct warnings *) warnings; /* request.h */
    struct set_origin *origin;           /* of a successor; NULL: the set succeeds no other one */
    /* NULL: none; the set itself: it is not shared, and its definition was removed. */
    _Atomic(weir_set *) successor;
};

/* Bit of the ids of key sets (key_set.h). The other bits are the number of the key set. */
#define KEY_SET_ID_BIT (UINT32_C(1) << 31)
_Static_assert(WEIR_LIMITS_MAX <= 64, "limits are bits of a word: updated_limits, and others");

/* Returns whether processes share the set: its state lies in a segment, other processes may die in
 * the middle of an operation, and may write anything. Every such set is robust. */
static inline bool set_is_shared(const weir_set *set)
{
    return set->participant != NULL;
}

static inline bool set_is_key_set(const weir_set *set)
{
    return (set->id & KEY_SET_ID_BIT) != 0;
}

/* Returns the amounts that its records have room for, at least one for each limit. Not before a
 * shared set is attached to its segment. */
static inline uint32_t set_amounts_n(const weir_set *set)
{
    return set_is_shared(set) ? participant_amounts_n(set->participant) : set->limits.n;
}

/*
 * Programs number the limits of a set as its configuration lists them. The library numbers them by
 * their places, which are those of their amounts and counters. The two differ for a shared set that
 * has got or lost limits while it was used.
 */

/* Returns how many limits the set has for programs. */
static inline uint32_t set_listed_n(const weir_set *set)
{
    uint32_t n = set->limits.n;

    for (uint32_t i = 0; set->limits.is_arranged && i < set->limits.n; i++)
        n -= limit_is_retired(&set->limits.items[i]);
    return n;
}

/* Returns the place of limit `i`, less than set_listed_n(). */
static inline uint32_t set_listed(const weir_set *set, uint32_t i)
{
    uint32_t place = 0;

    WEIR_INVARIANT(i < set_listed_n(set));
    if (!set->limits.is_arranged)
        return i;
    while (set->limits.items[place].listed != i)
        place++;
    return place;
}

/* Returns the set that programs know, of a key set (keyed/). */
weir_set *key_set_owner(const weir_set *set);

/* Returns the content words of a version without a forecast. */
static inline uint32_t set_content_min(const weir_set *set)
{
    return CONTENT_STATES + set->limits.state_words + (set->inline_format == INLINE_DCAS);
}

/* Returns the words of a forecast: its time, its states, and the offset of the wall clock by which
 * it was made, if any limit reads that. */
static inline uint32_t set_forecast_words(const weir_set *set)
{
    return 1 + set->limits.state_words + set->limits.reads_wall;
}

/* Returns the content words of a version with a forecast, if the set can have one. */
static inline uint32_t set_content_max(const weir_set *set)
{
    uint32_t words = set_content_min(set);

    return set->limits.has_waits ? words + set_forecast_words(set) : words;
}

/* Result of an acquire. */
struct decision {
    uint32_t ticket;      /* of an enqueued request: waitq_departures() when it is the head */
    uint64_t now_ns;      /* time of the decision */
    uint64_t forecast_ns; /* refused: earliest time to retry; granted: its time */
    const struct limit *limiting; /* refused: by this limit; NULL: by the wait queue */
    uint64_t lease_rest;          /* granted: units taken beyond the amount */
};

/* Returns the key of the limit that refuses; NULL: none, or one that is gone. */
static inline const char *decision_key(const struct decision *decision)
{
    const struct limit *limiting = decision->limiting;

    return limiting && !limit_is_retired(limiting) ? limiting->key : NULL;
}

/* What a release returns to each limit. */
struct release_args {
    const uint64_t *amounts; /* as acquired */
    const uint64_t *used;    /* more than the amount: overuse */
    bool return_all;         /* unused grant: all of it is refunded, even with REFUND_NO */
    const weir_set *revoker; /* the definition by which the record becomes REVOKED, and not FREE
                              * (max_hold.h); NULL: it is released */
    uint8_t outcome;         /* WEIR_OUTCOME_*, unless it is unused: that is canceled */
    uint64_t granted_ns;     /* of a grant without a record; of a lease, when it was filled */
    uint64_t latency_ns;     /* as the program said; 0: since it was granted */
};

/* What becomes of a request that cannot be granted now. */
enum wait_mode {
    MODE_PROBE,  /* nothing; the caller will retry as a waiter */
    MODE_TRY,    /* it is refused */
    MODE_WAIT,   /* it is enqueued */
    MODE_RESERVE /* it is granted in advance if the wait queue is empty; no resources */
};

/* Takes `lease` units, 0 or more than `amount`, if they are available and no request waits or is
 * reserved; else `amount`. `ret->lease_rest` is the difference. Returns what set_acquire() returns
 * for MODE_TRY without a record. */
int set_lease(struct thread_ctx *ctx, weir_set *set, uint64_t amount, uint64_t lease,
              struct decision *ret);

/* Returns true if the segment is damaged; then all operations are refused. */
static inline bool set_is_broken(const weir_set *set)
{
    return set_is_shared(set) && participant_is_broken(set->participant);
}

/* Returns true if an algorithm of the set broke its contract; then nothing is granted. */
static inline bool set_is_faulty(const weir_set *set)
{
    return atomic_load_explicit(&set->limits.fault, memory_order_relaxed) != 0;
}

/* Ends what a faulty set does: reports that once, and ends all waits. */
void set_end_faulty(struct thread_ctx *ctx, weir_set *set);

static inline void set_end_if_faulty(struct thread_ctx *ctx, weir_set *set)
{
    if (set_is_faulty(set))
        set_end_faulty(ctx, set);
}

static inline struct acq_record *set_record(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

/*
 * ---- successors (successor.c, set_moved.c) ----
 *
 * A set with a new definition takes over from the set of its name.
 *
 * A set does not change after it was made, so a new definition is another set, with a number and a
 * state word of its own. The old one names it as its successor. Then one commit moves the old set:
 * its version is final, nothing is granted, enqueued or released there any more. The first version
 * of the successor is made from that final version: the states of the limits that go on, and the
 * same wait queue. Every thread that finds the successor without a state does both steps. So no
 * thread depends on the one that reloads, and the change takes place at one instant: the first of
 * the two commits.
 *
 * A shared set has the definitions that are in its segment, one after the other: each has its head
 * and text there, and so each process makes the same successor. Its versions have blocks of the
 * same size, and its records room for so many amounts. So all sets of one process have one number,
 * one participant and the same thread contexts, and amounts are by places (places.h). The
 * process that changes the definition writes it before it commits the version that is MOVED; all
 * others make a successor when they come upon that. A process that cannot marks the set broken for
 * itself, and its records stay as they are until it ends. Want of memory passes: it does so only
 * where nothing may fail.
 *
 * Records stay where they are, and are those of the definition by which they were asked for: it
 * says how many amounts they have. The functions below turn amounts into those of a successor.
 */

#define ORIGIN_NONE UINT8_MAX

/* Where a limit of a successor comes from. */
struct origin_limit {
    /* The predecessor's limit with its key, or in its place; ORIGIN_NONE: there was none. */
    uint8_t from;
    bool is_carried; /* it goes on with the state of that one */
    uint32_t began;  /* shared: head unit of the definition where its state began; 0: not known */
};

struct set_origin {
    weir_set *predecessor;        /* NULL: of a new key set of a successor */
    uint64_t unopened_word;       /* state word until the first version */
    _Atomic(weir_set *) newest;   /* NULL, or what the search from here has found last */
    struct origin_limit limits[]; /* by limit of the successor; not of a key set: its owner's */
};

/* Returns the set that has the origins of a set's limits: of a key set its owner. */
static inline const weir_set *set_definition(const weir_set *set)
{
    return set_is_key_set(set) ? key_set_owner(set) : set;
}

/* Makes the origin of a set with these limits. NULL: out of memory. */
struct set_origin *set_origin_new(weir_set *predecessor, const struct limits *limits);

/* Returns the set that succeeds this one, or NULL. */
static inline weir_set *set_successor(const weir_set *set)
{
    return atomic_load_explicit(&set->successor, memory_order_acquire);
}

/* Returns whether the set was removed from the configuration. A shared one goes on for others, and
 * for what is held of it. */
static inline bool set_is_removed(const weir_set *set)
{
    if (set_is_shared(set))
        return atomic_load_explicit(&set->participant->is_removed, memory_order_seq_cst);
    return set_successor(set) == set;
}

/* Returns the set that has, or is about to take over, the state of this one: often itself. Of a
 * shared set as far as this process knows. */
weir_set *set_find_newest(const weir_set *set);
static inline weir_set *set_newest(const weir_set *set)
{
    return set_successor(set) ? set_find_newest(set) : (weir_set *)(uintptr_t)set;
}

/* Makes the states of a successor, of all limits, from those of its predecessor at its end. */
void successor_convert(const weir_set *set, const uint64_t *before, const struct weir_instant *at,
                       uint64_t *states);
/* Returns the set by which the amounts of a record are read that was found by the number of a set:
 * of a shared set the newest, which knows what has a place. A key set is that by which the record
 * was filled. */
static inline weir_set *set_of_record(weir_set *set)
{
    return set_is_shared(set) && !set_is_key_set(set) ? set_newest(set) : set;
}

/* Makes `after` the successor of a shared set, or its variant (api/set_object.h). The lock of the
 * instance is held. */
void set_succeed(weir_set *before, weir_set *after);

/* Returns whether a shared set has moved: there is a later definition, perhaps not known yet. Of
 * a key set its owner says so: then it reads as moved, whatever definition its states are of. */
bool set_is_moved(const weir_set *set);

/* Makes the successors of a shared set that has moved, as its segment defines them, until there is
 * one that has not. Returns 0; -EUCLEAN, after the set was marked broken; or -ENOMEM (also if a
 * file cannot be read now), which is -EUCLEAN too with `must`. The lock of the instance is not
 * held. */
int set_catch_up(const weir_set *set, bool must);

/* Returns why a set grants nothing, once its successor is known: -ESTALE (go on there), -ESHUTDOWN,
 * or an error of set_catch_up(). */
int set_acquire_closed(const weir_set *set);

/* Returns the newest set after it was caught up with, as far as that is possible now. */
weir_set *set_current(const weir_set *set);

/* Returns the newest set, after one that has moved was caught up with. If a shared one has no
 * successor, marks it broken: what may be tried again would be tried for ever. */
weir_set *moved_newest(const weir_set *set);

/* Fills in the first content of a successor, before it has the state: the words before the states,
 * and those behind them. */
void set_fill_unopened(const weir_set *set, uint64_t *content);

/*
 * Changes the definition of a shared set to that of `after`, its successor, which no other thread
 * knows yet: stores it in the segment, and moves the set. `text` and `hash` are its fingerprint.
 * The lock of the instance is held. Returns 0, and the successor is published; -EBUSY (another
 * process is changing it, or was stopped while it did); -ESTALE (another process has changed it);
 * -ENOSPC (the segment has no room for another definition), -EUCLEAN, or an error of the system.
 */
int set_redefine(struct thread_ctx *ctx, weir_set *before, weir_set *after,
                 const struct limit_places *places, const char *text, uint64_t hash);

/* Gives the set its state if it is a successor without one: moves its predecessor, if need be. */
void set_open(struct thread_ctx *ctx, weir_set *set);

/* Ends all grants and waits of a set that was removed; of a shared one those of this process. */
void set_remove(struct thread_ctx *ctx, weir_set *set);

/* Returns whether a limit decides as another one of its type and algorithm does, in every state. */
bool limit_is_same(const struct limit *a, const struct limit *b);

/* Returns whether a limit can go on with the state of another one, and whether it then decides as
 * that one. */
bool limit_can_carry(const struct limit *from, const struct limit *to);
bool limit_is_unchanged(const struct limit *from, const struct limit *to);

/* Notes of a shared successor, which has its place, what limits begin anew. */
void successor_set_began(weir_set *set);

/* Returns whether limit `i` of a shared set began anew after a grant: what that took of it is gone
 * with the state. */
bool successor_began_after(const weir_set *set, uint32_t i, uint64_t granted_ns);

/* Returns the definition of the set with this id: that of `set`, or one that it has succeeded; or
 * NULL. The sets that other threads make meanwhile are not looked at, as instance_set() would. */
const weir_set *set_ancestor(const weir_set *set, uint32_t id);

/* Turns amounts by the limits of `of` into those by the limits of `set`, which has succeeded it.
 * Limits that began anew after the set with the number `granted_by` has granted hold nothing of
 * them. */
void successor_translate(const weir_set *set, const weir_set *of, uint32_t granted_by,
                         uint64_t *amounts);

/* Copies the amounts of a record that an earlier definition has made, by the limits of `set`. Of a
 * HELD record only what is counted in the state of `set`. */
void successor_amounts(const weir_set *set, uint32_t record, uint64_t *ret);

/* Leaves of the amounts of a record, by the limits of `set`, those that count (shadow.h): of a
 * waiter those that it waits for, of a holder those that were taken. */
void shadow_reduce(const weir_set *set, const struct acq_record *r, uint64_t *amounts);

/* Returns whether a record was made by an earlier definition that has numbered limits otherwise. In
 * a shared set all number them by their places. */
static inline bool set_is_foreign(const weir_set *set, const struct acq_record *r)
{
    return set->origin && !set_is_shared(set) && record_set_number(r) != set->id;
}

/* Returns whether a record may ask for more than this definition ever grants. */
static inline bool set_may_be_impossible(const weir_set *set, const struct acq_record *r)
{
    return set->is_later || set_is_foreign(set, r);
}

/* Returns the state of a record after this release. */
static inline enum record_state release_end_state(const struct release_args *args)
{
    return args->revoker ? RECORD_REVOKED : RECORD_FREE;
}

/* Frees a record without changing the set: a decision without a grant, or a grant that leaves
 * nothing to return. Release: the fields are done with before the record is reused. */
static inline void set_free_record(const weir_set *set, uint32_t record)
{
    struct acq_record *r = record_at(set->region, record);

    WEIR_INVARIANT(set->is_robust || record_state(record_load(&r->word)) != RECORD_WAITING);
    shm_store_release(&r->word, record_next_word(record_load(&r->word), RECORD_FREE));
}

/* Returns the word of a record, or RECORD_BROKEN where it cannot be trusted. */
uint64_t set_check_word(const weir_set *set, uint64_t word);
static inline uint64_t set_record_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&set_record(set, record)->word);

    return set_is_shared(set) ? set_check_word(set, word) : word;
}

/* Returns the state of a record that has been in the set. Its word is never 0 again, so 0 marks the
 * set broken: its segment was cleared. */
enum record_state set_used_record_state(const weir_set *set, uint32_t record);

/* Releases what a record with the word `word`, which is HELD, holds; grants waiters, and makes the
 * record FREE. Returns false if the word has changed. `is_owner`: the caller holds it, and no other
 * thread releases it. */
bool set_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                 bool is_owner, const struct release_args *args);

/* Returns true if only returned units make waiters ready: no rates, no algorithms, no other
 * processes. Then they go to the head, or stay. */
bool set_may_hand_over(const weir_set *set);

/* Returns units that no record holds to the set. Counts nothing and cannot fail. */
void set_return_units(struct thread_ctx *ctx, weir_set *set, const struct release_args *args);

/* Returns whether a part of a resource is returned with an exchange of records: another thread may
 * release what is held, after a death or in a revocation. */
static inline bool set_exchanges_records(const weir_set *set)
{
    return set_is_shared(set) || set->limits.revokes;
}

/*
 * Returns a part of what a HELD record of the caller holds: `args` has the amounts of that part,
 * and when they were granted. `rest` 0: the record stays HELD, and the caller has stored in it what
 * is left. Otherwise, of a set that exchanges records: `rest` is FREE and filled with what is left.
 * In one version it becomes HELD, the record FREE, and the units go back, so that a death loses and
 * doubles none. If it is not HELD afterwards, the set is broken, the units have nowhere to go, or
 * the record was revoked, and nothing has changed.
 */
void set_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                     const struct release_args *args);

/* Makes a WAITING record `state`, out of the wait queue, and grants waiters behind it that become
 * ready. Returns false if it was decided before, or if `expected` is neither 0 nor its word. */
bool set_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                     enum record_state state);

/* Grants to the waiters that are next (fairness.h) as long as they are ready. */
void set_grant_waiters(struct thread_ctx *ctx, weir_set *set);

/* Grants waiters on behalf of a blocked waiter. Returns 0 if it was granted, the time of its next
 * check if it is the next one to be granted, else WEIR_FOREVER. */
uint64_t set_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record);

/*
 * A waiter would hold up those behind it, although it is ready or its deadline has passed, if its
 * thread does not run: that is stopped, or does not reap its queue. So other threads settle it.
 */

/* Grants to the heads of the wait queue that are ready, and ends the waits of those that are beyond
 * their deadlines. Settles at most as many as wait now. */
void set_settle_heads(struct thread_ctx *ctx, weir_set *set);

/* Ends the waits in the middle of the wait queue that are beyond their deadlines: they count for
 * `max_waiters` and in forecasts. Does so only now and then, as it walks over all waiters; `length`
 * says how many they are. Returns whether it has walked; then the context's copy of the set is
 * outdated. */
bool set_end_overdue_waits(struct thread_ctx *ctx, weir_set *set, uint32_t length, uint64_t now_ns);

/* Returns the time of the grant that is released. `record` 0: there is none. */
static inline uint64_t set_granted_ns(const weir_set *set, uint32_t record,
                                      const struct release_args *args)
{
    return record ? record_load(&set_record(set, record)->granted_ns) : args->granted_ns;
}

/* Counts a grant; `record` 0: of units that are never released. */
void set_count_grant(struct thread_ctx *ctx, const weir_set *set, const uint64_t *amounts,
                     uint32_t record);
/* Counts a wait that ended with this state before a grant. */
void set_count_cancel(struct thread_ctx *ctx, const weir_set *set, enum record_state state);
/* Counts a refusal with -ENOBUFS or -EDEADLK, or with -EAGAIN in this mode, by a limit; NULL: by
 * the queue. */
void set_count_not_now(struct thread_ctx *ctx, const weir_set *set, int code, enum wait_mode mode,
                       const struct limit *limiting);
void set_count_release(struct thread_ctx *ctx, const weir_set *set,
                       const struct release_args *args);

/* Counts a part that was returned before the release. */
void set_count_return(struct thread_ctx *ctx, const weir_set *set, const struct release_args *args);

/* Applies a release to the `state` of limit `i`. Returns true if a rate or call has changed. */
bool set_release_limit(const weir_set *set, uint32_t i, uint64_t *state,
                       const struct weir_instant *at, const struct release_args *args,
                       uint64_t granted_ns);

/* Counts a refusal before the set was read. `key`, a limit's own string, names the limiting one. */
void set_count_refusal(struct thread_ctx *ctx, weir_set *set, int code, const char *key);

/* What one version of a set says. `content` belongs to the thread context and is overwritten by its
 * next transaction. */
struct set_view {
    const uint64_t *content; /* the version's words, states from CONTENT_STATES */
    uint64_t last_ns;        /* latest time at which the set was changed, or is reserved */
    uint32_t head;           /* record at the head of the wait queue; 0: it is empty */
    uint32_t length;         /* of the wait queue */
};

/* Wait queues that a forecast may walk if the published forecast is not valid. */
enum forecast_walk {
    FORECAST_ANY_QUEUE,
    FORECAST_SHORT_QUEUE /* a long one is ignored: still a lower bound, in bounded time */
};

/* Forecasts when a new request (fairness.h) would be granted behind the present waiters. */
struct newcomer;
void set_forecast(struct thread_ctx *ctx, weir_set *set, const struct newcomer *newcomer,
                  enum forecast_walk forecast_walk, struct decision *ret);

/* What a request that came now would find in a set. */
struct set_look {
    uint64_t now_ns;   /* of the set's clock */
    uint64_t ready_ns; /* when it would be granted. WEIR_BLOCKED: a resource is short, or a waiter
                          is ahead that no forecast lets go */
    const struct limit *limit; /* of those asked for, the one with the least part of its capacity
                                  available; NULL: none is asked for */
    uint64_t available, held;  /* of that limit */
    uint64_t waiting;
};

/* Looks at a plain set for a request. A long wait queue is not walked. Changes nothing. */
void set_look(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts, struct set_look *ret);

/*
 * Do what a function of the same name does, for a set that has moved. `ctx` is prepared for that
 * set, and not necessarily for its successor.
 */
struct release_op;
/* Return a context that is prepared for another set of the same instance, and end its use. */
struct thread_ctx *moved_borrow_ctx(struct thread_ctx *ctx, weir_set *set);
void moved_return_ctx(const struct thread_ctx *ctx, struct thread_ctx *borrowed);
int moved_release(struct thread_ctx *ctx, weir_set *set, struct release_op *rel);
bool moved_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t expected,
                       enum record_state state);
void moved_grant_waiters(struct thread_ctx *ctx, weir_set *set);
uint64_t moved_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record);
void moved_forecast(struct thread_ctx *ctx, weir_set *set, const struct newcomer *newcomer,
                    enum forecast_walk walk, struct decision *ret);
void moved_look(struct thread_ctx *ctx, weir_set *set, const uint64_t *amounts,
                struct set_look *ret);

/* Reads a consistent version of the set, for observers. */
void set_snapshot(struct thread_ctx *ctx, weir_set *set, struct set_view *ret);
/* Returns the instant by which a version that was viewed decides now: not before its last one, as
 * nothing is granted before a reservation. */
struct weir_instant set_view_instant(const weir_set *set, const struct set_view *view);

/* Fills in what remains of the first `n` limits. Returns 0 or -EUCLEAN. */
int set_remaining(struct thread_ctx *ctx, weir_set *set, struct weir_remaining *ret, uint32_t n);

#endif

/* SPDX-License-Identifier: MIT */
/* An instance, as the core sees it. */
#ifndef WEIR_CORE_API_INSTANCE_H
#define WEIR_CORE_API_INSTANCE_H

#include "base/clock_tsc.h"
#include "base/stable_array.h"
#include "base/str_map.h"
#include "config/plan.h"
#include "limit/limit_intern.h"
#include "os/os.h"
#include "set/set.h"
#include "set/thread_ctx.h"
#include "shm/region.h"
#include "wait/wait_timer.h"
#include <pthread.h>
#include <stdatomic.h>
#include <weir/weir.h>

/* A pool as configured; handles (struct weir_pool) refer to it. */
struct pool_definition_live {
    struct pool_plan plan;
    weir_set **sets;
    uint32_t sets_n;          /* at least 1 */
    _Atomic uint32_t workers; /* handed out by WEIR_WORKER_AUTO */
};

/* Free records of one size, that no actor has. */
struct depot {
    uint32_t first;          /* of those that were used before */
    uint32_t fresh, fresh_n; /* the others: the first, and how many lie behind one another */
};

struct weir {
    /* Held by: the opener until weir_close, threads that have an actor, pools, acquisitions. */
    _Atomic uint64_t references;
    _Atomic uint32_t closed;
    uint8_t *fork_page; /* its first byte is 1 except in a forked child */
    bool configured;    /* without a configuration every name opens an empty set */

    struct weir_clock clock;     /* now_ns NULL: the system's */
    _Atomic uint64_t clock_seen; /* latest reading of an injected clock */
    struct tsc *tsc;             /* the system's is read by it; NULL: each time */
    bool clock_is_read;          /* the latter, and none is injected */
    _Atomic bool tsc_told;       /* that it is not used any more */
    uint64_t timer_advance_ns;
    void (*log)(void *userdata, enum weir_log_level level, const char *message);
    void *userdata;
    uint64_t seed;
    bool apart;          /* sets that processes would share are its own */
    _Atomic bool shares; /* there is, or was, a set that processes share */
    bool onlooker;       /* it makes no segments */
    char *process_dir;   /* owned; where segments are; NULL: the default of the user */

    pthread_mutex_t lock; /* everything from here to `keeper` */
    struct region region;
    struct plugins *plugins;
    struct limits_table limits; /* of sets */
    struct table sets;          /* by number */
    struct table hidden;        /* live sets of keyed ones, by number: they go with these */
    uint32_t hidden_n;
    _Atomic uint32_t sets_n; /* written under the lock */
    struct pool_definition_live **pools;
    size_t pools_n, pools_capacity;
    struct names set_names;
    struct names pool_names;                  /* and of sets that were opened as pools */
    struct actor *actors;                     /* all */
    struct actor *idle;                       /* of these, the ones without a thread */
    struct depot depot[RECORD_UNITS_MAX + 1]; /* by size in units */
    uint64_t pool_handles;
    struct table queues; /* by number, from 1; closed ones are used again */
    _Atomic uint32_t queues_n;
    struct weir_queue *closed_queues;

    struct actor *spare;        /* for calls that must not fail; prepared for every set in use */
    pthread_mutex_t spare_lock; /* says EDEADLK */

    struct keeper keeper;          /* of acquisitions; its lock is also over their descriptors */
    size_t kept;                   /* acquisitions that may be in its heap; under its lock */
    struct sys_thread *timekeeper; /* NULL: not running; as above */
    _Atomic uint32_t timekeeper_ends;
    _Atomic uint64_t timekeeper_spins_until; /* or until it is told; 0: it does not spin */
    _Atomic bool rings_refused;              /* the program was told that it cannot attach queues */
    _Atomic uint32_t blocked; /* threads that wait in weir_acquire; a futex for weir_close */
};

static inline bool instance_forked(const weir *w)
{
    return w->fork_page[0] != 1;
}

static inline bool instance_closed(weir *w)
{
    return atomic_load_explicit(&w->closed, memory_order_relaxed) != 0;
}

/* This thread's actor, prepared for `set`, or NULL when out of memory. Not in a forked child. */
static inline struct actor *actor_self(weir_set *set)
{
    struct actor *actor = actor_mine;

    if (actor && actor->w == set->w && actor_is_prepared(actor, set->number))
        return actor;
    return actor_find(set);
}

/*
 * The same, but cannot fail: the instance's spare one if need be, locked. Give it back, last of
 * all: if the instance was closed, it may be gone afterwards.
 */
static inline struct actor *actor_borrow(weir_set *set)
{
    struct actor *actor = actor_self(set);

    return actor ? actor : actor_spare(set);
}

static inline void actor_return(struct actor *actor)
{
    if (actor == actor->w->spare || instance_closed(actor->w))
        actor_give_back(actor);
}

/* The set of a number, or an id, that was given out. */
static inline weir_set *instance_set(const weir *w, uint32_t number)
{
    if (number & HIDDEN_SET)
        return *table_at(&w->hidden, number & ~HIDDEN_SET);
    return *table_at(&w->sets, number);
}

/* A free record for this set, or 0 when out of memory; and back. Freeing cannot fail. */
static inline uint32_t record_new(struct actor *actor, const weir_set *set)
{
    struct magazine *magazine = actor_part(actor, set->number)->magazine;

    if (!magazine->n && !magazine_refill(set, magazine))
        return 0;
    return magazine->records[--magazine->n];
}

/* live_leave.c: a record that was entered in this hidden set is free again. */
void live_leave_record(struct actor *actor, weir_set *set);

static inline void record_free(struct actor *actor, const weir_set *set, uint32_t record)
{
    struct magazine *magazine = actor_part(actor, set->number)->magazine;

    if (set_is_hidden(set))
        live_leave_record(actor, instance_set(set->w, set->id));
    if (magazine->n == MAGAZINE_SIZE)
        magazine_empty(set, magazine);
    magazine->records[magazine->n++] = record;
}

void instance_hold(weir *w, uint64_t n);
void instance_drop(weir *w, uint64_t n); /* frees the instance with the last reference */

/* What a clock says that is not the system's or not read each time, and how far the wall clock is ahead. */
uint64_t instance_now_otherwise(weir *w);
int64_t instance_wall_offset(weir *w);

/* The clock, and the instant given to algorithms (with the wall clock only if they read it). */
static inline uint64_t instance_now(weir *w)
{
    return w->clock_is_read ? sys_now_ns() : instance_now_otherwise(w);
}

static inline struct weir_instant instance_instant(weir *w, bool with_wall)
{
    return (struct weir_instant){instance_now(w), with_wall ? instance_wall_offset(w) : 0};
}
/* The same a few milliseconds ago, for what nothing is decided by. */
static inline uint64_t instance_tick(weir *w)
{
    return w->clock.now_ns ? instance_now_otherwise(w) : sys_tick_ns();
}
/* For whoever may have been woken at an instant: no earlier than that. Unless the clock is injected,
 * under any lock. */
uint64_t instance_now_fresh(weir *w);
/* Says once that the clock is no longer read by the counter. Neither under a lock nor within an
 * operation, where that is found out: whoever hears it may ask for something. */
void instance_tell_of_clock(weir *w);
/* Whether there is that to say. */
static inline bool instance_has_news(const weir *w)
{
    return w->tsc && tsc_state(w->tsc) != TSC_WORKS &&
           !atomic_load_explicit(&w->tsc_told, memory_order_relaxed);
}

/* Says something to the log callback. */
__attribute__((format(printf, 3, 4))) void instance_log(weir *w, enum weir_log_level level,
                                                        const char *format, ...);

/*
 * The instance's lock, over names, sets, pools and actors. Whoever adds sets also prepares the
 * spare actor for them, so its lock is taken with it, and first.
 */
void instance_lock(weir *w);
void instance_unlock(weir *w);

/* catalog.c */

/*
 * Adds a set. The caller holds the lock; the plan's parts move into the set. 0, or why it cannot be
 * placed: -ENOMEM, -EOPNOTSUPP.
 */
int instance_add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr);
/* Adds a pool whose sets all exist, without its name. As above. */
int instance_add_pool(weir *w, struct pool_plan *plan, struct pool_definition_live **ret);
/* Adds everything a plan defines, or nothing; `*ret` is its last pool. As above. */
int instance_add_plan(weir *w, struct plan *plan, struct pool_definition_live **ret,
                      struct weir_error *reterr);
/* How many sets and pools there are, to take back everything that was added since. */
struct instance_mark {
    uint32_t sets_n;
    size_t pools_n;
};
struct instance_mark instance_mark(const weir *w);
void instance_remove_since(weir *w, struct instance_mark mark);

/* Frees all sets and pools. */
void catalog_free(weir *w);

/* For plan_resolve: whether a name is taken, and by what. */
bool instance_knows(void *instance, const char *name, bool *ret_is_pool);

#endif

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
struct instance_pool {
    struct pool_plan plan;
    weir_set **sets;
    uint32_t sets_n;          /* at least 1 */
    _Atomic uint32_t workers; /* handed out by WEIR_WORKER_AUTO */
};

/* Free records of one size, that no actor has. */
struct record_depot {
    uint32_t first;          /* of those that were used before */
    uint32_t fresh, fresh_n; /* the others: the first, and how many lie behind one another */
};

struct weir {
    /* Held by: the opener until weir_close, threads that have an actor, pools, acquisitions. */
    _Atomic uint64_t references;
    _Atomic uint32_t closed;
    uint8_t *fork_page; /* its first byte is 1 except in a forked child */
    bool configured;    /* without a configuration every name opens an empty set */

    struct weir_clock clock;        /* now_ns NULL: the system's */
    _Atomic uint64_t clock_last_ns; /* latest reading of an injected clock */
    struct clock_tsc *tsc;          /* the system's is read by it; NULL: each time */
    bool reads_system_clock;        /* the latter, and none is injected */
    _Atomic bool tsc_loss_reported; /* that it is not used any more */
    uint64_t timer_advance_ns;
    void (*log)(void *userdata, enum weir_log_level level, const char *message);
    void *userdata;
    uint64_t seed;
    bool private_only;            /* sets that processes would share are its own */
    _Atomic bool has_shared_sets; /* there is, or was, a set that processes share */
    bool observer_only;           /* it makes no segments */
    char *process_dir;            /* owned; where segments are; NULL: the default of the user */

    pthread_mutex_t lock; /* everything from here to `keeper` */
    struct region region;
    struct plugin_search *plugins;
    struct limit_intern_table limits; /* of sets */
    struct stable_array sets;         /* by number */
    struct stable_array key_sets;     /* live sets of keyed ones, by number: they go with these */
    uint32_t key_sets_n;
    _Atomic uint32_t sets_n; /* written under the lock */
    struct instance_pool **pools;
    size_t pools_n, pools_capacity;
    struct str_map set_names;
    struct str_map pool_names;                       /* and of sets that were opened as pools */
    struct thread_ctx *thread_ctxs;                  /* all */
    struct thread_ctx *idle_ctxs;                    /* of these, the ones without a thread */
    struct record_depot depot[RECORD_UNITS_MAX + 1]; /* by size in units */
    uint64_t pool_handles;
    struct stable_array queues; /* by number, from 1; closed ones are used again */
    _Atomic uint32_t queues_n;
    struct weir_queue *closed_queues;

    struct thread_ctx *spare_ctx; /* for calls that must not fail; prepared for every set in use */
    pthread_mutex_t spare_lock;   /* says EDEADLK */

    struct wait_timer timer;        /* of acquisitions; its lock is also over their descriptors */
    size_t timed_n;                 /* acquisitions that may be in its heap; under its lock */
    struct os_thread *timer_thread; /* NULL: not running; as above */
    _Atomic uint32_t timer_thread_stop;
    _Atomic uint64_t timer_spin_until_ns; /* or until it is told; 0: it does not spin */
    _Atomic bool ring_refusal_reported;   /* the program was told that it cannot attach queues */
    _Atomic uint32_t blocked_n; /* threads that wait in weir_acquire; a futex for weir_close */
};

static inline bool instance_is_forked(const weir *w)
{
    return w->fork_page[0] != 1;
}

static inline bool instance_is_closed(weir *w)
{
    return atomic_load_explicit(&w->closed, memory_order_relaxed) != 0;
}

/* This thread's actor, prepared for `set`, or NULL when out of memory. Not in a forked child. */
static inline struct thread_ctx *thread_ctx_get(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_self;

    if (ctx && ctx->w == set->w && thread_ctx_is_prepared(ctx, set->number))
        return ctx;
    return thread_ctx_find(set);
}

/*
 * The same, but cannot fail: the instance's spare one if need be, locked. Give it back, last of
 * all: if the instance was closed, it may be gone afterwards.
 */
static inline struct thread_ctx *thread_ctx_borrow(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_get(set);

    return ctx ? ctx : thread_ctx_lock_spare(set);
}

static inline void thread_ctx_return(struct thread_ctx *ctx)
{
    if (ctx == ctx->w->spare_ctx || instance_is_closed(ctx->w))
        thread_ctx_return_slow(ctx);
}

/* The set of a number, or an id, that was given out. */
static inline weir_set *instance_set(const weir *w, uint32_t number)
{
    if (number & KEY_SET_ID_BIT)
        return *stable_array_at(&w->key_sets, number & ~KEY_SET_ID_BIT);
    return *stable_array_at(&w->sets, number);
}

/* A free record for this set, or 0 when out of memory; and back. Freeing cannot fail. */
static inline uint32_t record_pool_get(struct thread_ctx *ctx, const weir_set *set)
{
    struct magazine *magazine = thread_ctx_for_set(ctx, set->number)->magazine;

    if (!magazine->n && !magazine_refill(set, magazine))
        return 0;
    return magazine->records[--magazine->n];
}

/* key_set_unbind_if_idle.c: a record that was entered in this hidden set is free again. */
void key_set_record_freed(struct thread_ctx *ctx, weir_set *set);

static inline void record_pool_put(struct thread_ctx *ctx, const weir_set *set, uint32_t record)
{
    struct magazine *magazine = thread_ctx_for_set(ctx, set->number)->magazine;

    if (set_is_key_set(set))
        key_set_record_freed(ctx, instance_set(set->w, set->id));
    if (magazine->n == MAGAZINE_SIZE)
        magazine_drain(set, magazine);
    magazine->records[magazine->n++] = record;
}

void instance_ref(weir *w, uint64_t n);
void instance_unref(weir *w, uint64_t n); /* frees the instance with the last reference */

/* What a clock says that is not the system's or not read each time, and how far the wall clock is ahead. */
uint64_t instance_now_slow(weir *w);
int64_t instance_wall_offset_ns(weir *w);

/* The clock, and the instant given to algorithms (with the wall clock only if they read it). */
static inline uint64_t instance_now(weir *w)
{
    return w->reads_system_clock ? os_now_ns() : instance_now_slow(w);
}

static inline struct weir_instant instance_instant(weir *w, bool with_wall)
{
    return (struct weir_instant){instance_now(w), with_wall ? instance_wall_offset_ns(w) : 0};
}
/* The same a few milliseconds ago, for what nothing is decided by. */
static inline uint64_t instance_now_coarse(weir *w)
{
    return w->clock.now_ns ? instance_now_slow(w) : os_now_coarse_ns();
}
/* For whoever may have been woken at an instant: no earlier than that. Unless the clock is injected,
 * under any lock. */
uint64_t instance_now_fresh(weir *w);
/* Says once that the clock is no longer read by the counter. Neither under a lock nor within an
 * operation, where that is found out: whoever hears it may ask for something. */
void instance_report_tsc_loss(weir *w);
/* Whether there is that to say. */
static inline bool instance_must_report_tsc(const weir *w)
{
    return w->tsc && clock_tsc_state(w->tsc) != TSC_OK &&
           !atomic_load_explicit(&w->tsc_loss_reported, memory_order_relaxed);
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

/* registry.c */

/*
 * Adds a set. The caller holds the lock; the plan's parts move into the set. 0, or why it cannot be
 * placed: -ENOMEM, -EOPNOTSUPP.
 */
int registry_add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr);
/* Adds a pool whose sets all exist, without its name. As above. */
int registry_add_pool(weir *w, struct pool_plan *plan, struct instance_pool **ret);
/* Adds everything a plan defines, or nothing; `*ret` is its last pool. As above. */
int registry_add_plan(weir *w, struct plan *plan, struct instance_pool **ret,
                      struct weir_error *reterr);
/* How many sets and pools there are, to take back everything that was added since. */
struct registry_mark {
    uint32_t sets_n;
    size_t pools_n;
};
struct registry_mark registry_mark(const weir *w);
void registry_remove_since(weir *w, struct registry_mark mark);

/* Frees all sets and pools. */
void registry_free(weir *w);

/* For plan_resolve: whether a name is taken, and by what. */
bool registry_has_name(void *instance, const char *name, bool *ret_is_pool);

#endif

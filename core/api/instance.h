/* SPDX-License-Identifier: MIT */
/* The instance: clocks, the registry of sets and pools, thread contexts and the wait timer. */
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

/* A pool of the instance, as configured; handles (struct weir_pool) refer to it. */
struct instance_pool {
    struct pool_plan plan;
    weir_set **sets;
    uint32_t sets_n;          /* at least 1 */
    _Atomic uint32_t workers; /* next number for WEIR_WORKER_AUTO */
};

/* Free records of one size that no thread context has. */
struct record_depot {
    uint32_t first;          /* of the records used before */
    uint32_t fresh, fresh_n; /* first record never used, and how many follow it */
};

struct weir {
    /* Held by the opener until weir_close, threads with a context, pools and acquisitions. */
    _Atomic uint64_t references;
    _Atomic uint32_t closed;
    uint8_t *fork_page; /* first byte 1; 0 in a forked child */
    bool configured;    /* else every name opens an empty set */

    struct weir_clock clock;        /* now_ns NULL: the system clock */
    _Atomic uint64_t clock_last_ns; /* latest reading of an injected clock */
    struct clock_tsc *tsc;          /* fast clock; NULL: no TSC */
    bool reads_system_clock;        /* neither injected nor by TSC */
    _Atomic bool tsc_loss_reported; /* the end of the TSC's use was logged */
    uint64_t timer_advance_ns;
    void (*log)(void *userdata, enum weir_log_level level, const char *message);
    void *userdata;
    uint64_t seed;
    bool private_only;            /* sets of backend process are private */
    _Atomic bool has_shared_sets; /* there is, or was, a shared set */
    bool observer_only;           /* opens existing segments only */
    char *process_dir;            /* segment directory, owned; NULL: the user's default */

    pthread_mutex_t lock; /* over everything down to `closed_queues` */
    struct region region;
    struct plugin_search *plugins;
    struct limit_intern_table limits; /* interned, of sets */
    struct stable_array sets;         /* by number */
    struct stable_array key_sets;     /* of keyed sets, by number; freed with them */
    uint32_t key_sets_n;
    _Atomic uint32_t sets_n; /* written under the lock */
    struct instance_pool **pools;
    size_t pools_n, pools_capacity;
    struct str_map set_names;
    struct str_map pool_names;                       /* includes sets opened as pools */
    struct thread_ctx *thread_ctxs;                  /* all */
    struct thread_ctx *idle_ctxs;                    /* those without a thread */
    struct record_depot depot[RECORD_UNITS_MAX + 1]; /* by size in units */
    uint64_t pool_handles;
    struct stable_array queues; /* by number, from 1; closed ones are reused */
    _Atomic uint32_t queues_n;
    struct weir_queue *closed_queues;

    struct thread_ctx *spare_ctx; /* for calls that must not fail; prepared for every set in use */
    pthread_mutex_t spare_lock;   /* error-checking; taken before `lock` */

    struct wait_timer timer;        /* of acquisitions; its lock also covers their descriptors */
    size_t timed_n;                 /* acquisitions that may be in its heap; under its lock */
    struct os_thread *timer_thread; /* NULL: not running; under the timer's lock */
    _Atomic uint32_t timer_thread_stop;
    _Atomic uint64_t timer_spin_until_ns; /* 0: no spin; may end earlier by a signal */
    _Atomic bool ring_refusal_reported;   /* attaching is impossible, and that was logged */
    _Atomic uint32_t blocked_n;           /* threads blocked in weir_acquire; futex of weir_close */
};

static inline bool instance_is_forked(const weir *w)
{
    return w->fork_page[0] != 1;
}

/* Relaxed: a late reading only makes the call one that came before weir_close. */
static inline bool instance_is_closed(weir *w)
{
    return atomic_load_explicit(&w->closed, memory_order_relaxed) != 0;
}

/* Returns this thread's context, prepared for `set`, or NULL when out of memory. Not in a forked
 * child. */
static inline struct thread_ctx *thread_ctx_get(weir_set *set)
{
    struct thread_ctx *ctx = thread_ctx_self;

    if (ctx && ctx->w == set->w && thread_ctx_is_prepared(ctx, set->number))
        return ctx;
    return thread_ctx_find(set);
}

/* Returns this thread's context, or the instance's spare one with its lock held. Cannot fail.
 * Return it last: a closed instance may be gone afterwards. */
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

/* Returns the set with a number or id that was given out. */
static inline weir_set *instance_set(const weir *w, uint32_t number)
{
    if (number & KEY_SET_ID_BIT)
        return *stable_array_at(&w->key_sets, number & ~KEY_SET_ID_BIT);
    return *stable_array_at(&w->sets, number);
}

/* Returns a FREE record for this set, or 0 when out of memory. */
static inline uint32_t record_pool_get(struct thread_ctx *ctx, const weir_set *set)
{
    struct magazine *magazine = thread_ctx_for_set(ctx, set->number)->magazine;

    if (!magazine->n && !magazine_refill(set, magazine))
        return 0;
    return magazine->records[--magazine->n];
}

/* Unbinds the key set if nothing else needs it; a record filled in it is free again. Defined in
 * keyed/. */
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

/* Slow readings: an injected clock or the TSC; the wall clock's lead over the clock. */
uint64_t instance_now_slow(weir *w);
int64_t instance_wall_offset_ns(weir *w);

/* Returns the time of the instance's clock. */
static inline uint64_t instance_now(weir *w)
{
    return w->reads_system_clock ? os_now_ns() : instance_now_slow(w);
}

static inline struct weir_instant instance_instant(weir *w, bool with_wall)
{
    return (struct weir_instant){instance_now(w), with_wall ? instance_wall_offset_ns(w) : 0};
}
/* Returns the system clock's last tick, a few milliseconds old at most. Not for decisions. */
static inline uint64_t instance_now_coarse(weir *w)
{
    return w->clock.now_ns ? instance_now_slow(w) : os_now_coarse_ns();
}
/* Returns a reading no earlier than any deadline that has woken this thread. Any lock may be held,
 * unless the clock is injected. */
uint64_t instance_now_fresh(weir *w);
/* Logs once that the TSC is no longer used. Without locks and outside of transactions, which find
 * that out: the log callback may call weir. */
void instance_report_tsc_loss(weir *w);
/* Returns whether the TSC loss is still to be logged. Relaxed: logging exchanges the flag. */
static inline bool instance_must_report_tsc(const weir *w)
{
    return w->tsc && clock_tsc_state(w->tsc) != TSC_OK &&
           !atomic_load_explicit(&w->tsc_loss_reported, memory_order_relaxed);
}

/* Formats a message for the log callback. */
__attribute__((format(printf, 3, 4))) void instance_log(weir *w, enum weir_log_level level,
                                                        const char *format, ...);

/* Locks the registry: names, sets, pools and thread contexts. Takes `spare_lock` first, because
 * adding a set prepares the spare context for it. */
void instance_lock(weir *w);
void instance_unlock(weir *w);

/* ---- registry.c ---- */

/* Adds a set and moves the plan's parts into it. The caller holds the lock. Returns 0, or why it
 * cannot be stored, e.g. -ENOMEM or -EOPNOTSUPP. */
int registry_add_set(weir *w, struct set_plan *plan, weir_set **ret, struct weir_error *reterr);
/* Adds an unnamed pool of existing sets. The caller holds the lock. Returns 0 or -ENOMEM. */
int registry_add_pool(weir *w, struct pool_plan *plan, struct instance_pool **ret);
/* Adds everything that a plan defines, or nothing; `*ret` is its last pool. The caller holds the
 * lock. Returns 0 or the error of the first set or pool that failed. */
int registry_add_plan(weir *w, struct plan *plan, struct instance_pool **ret,
                      struct weir_error *reterr);
/* Numbers of sets and pools, to remove everything that was added since. */
struct registry_mark {
    uint32_t sets_n;
    size_t pools_n;
};
struct registry_mark registry_mark(const weir *w);
void registry_remove_since(weir *w, struct registry_mark mark);

/* Frees all sets and pools. */
void registry_free(weir *w);

/* Returns whether a name is taken, for plan_resolve(). */
bool registry_has_name(void *instance, const char *name, bool *ret_is_pool);

#endif

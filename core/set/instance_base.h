/* SPDX-License-Identifier: MIT */
/*
 * An instance, as far as sets use it. Each layer adds its part: struct weir is the first member of
 * struct instance_wait (wait/wait_timer.h), and that of struct instance (api/instance.h).
 */
#ifndef WEIR_CORE_SET_INSTANCE_BASE_H
#define WEIR_CORE_SET_INSTANCE_BASE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/invariant.h"
#include "base/stable_array.h"
#include "limit/limit.h"
#include "set/hooks.h"
#include "set/set.h"
#include "set/thread_ctx.h"
#include "shm/region.h"
#include "state/version.h"
#include <pthread.h>
#include <stdatomic.h>
#include <weir/event.h>
#include <weir/weir.h>

/* Free records of one size that no thread context has. */
struct record_depot {
    uint32_t first;          /* of the records used before */
    uint32_t fresh, fresh_n; /* first record never used, and how many follow it */
};

_Static_assert(CLOCK_MAX_NS < GRANT_MARKER, "an instant is never taken for a marker");

/* States of an instance, bits. */
enum {
    INSTANCE_HERE = 1u << 0, /* the process is not a forked child */
    INSTANCE_CLOSED = 1u << 1,
    INSTANCE_LISTENED = 1u << 2 /* there is a listener, or was just now (events.h) */
};

/* A listener and how many threads are inside it. */
struct event_listener {
    struct weir_listener listener; /* `event` NULL: none */
    _Atomic uint32_t inside;
};

struct weir {
    /* Held by: the opener until weir_close, threads that have a context, pools, acquisitions. */
    _Atomic uint64_t references;
    _Atomic uint32_t *state; /* INSTANCE_*; a page of its own, zeros in a forked child */
    struct clock clock;
    struct log_sink log;
    uint64_t seed;
    uint64_t nonce_seed; /* random, whatever the program's seed: other instances share key tables */
    bool private_only;   /* sets of backend process are private */
    _Atomic bool has_shared_sets; /* there is, or was, a shared set */
    bool observer_only;           /* opens existing segments only */
    bool is_offline;              /* asks no engine */
    bool leaves_sigbus;           /* installs no handler for its segments */
    char *process_dir;            /* segment directory, owned; NULL: the user's default */

    pthread_mutex_t lock; /* everything from here to `spare_ctx` */
    struct region region;
    struct limit_intern_table limits; /* interned, of sets */
    struct stable_array sets;         /* by number */
    struct stable_array key_sets;     /* key sets, by number: they go with their keyed sets */
    uint32_t key_sets_n;
    struct promised_sets promised;                   /* successors of key sets */
    _Atomic uint32_t sets_n;                         /* written under the lock */
    struct thread_ctx *thread_ctxs;                  /* all */
    struct thread_ctx *idle_ctxs;                    /* those without a thread */
    struct record_depot depot[RECORD_UNITS_MAX + 1]; /* by size in units */

    /* Owner of the places: events.c. */
    struct event_listener listeners[2];
    _Atomic uint32_t listener;     /* the current one */
    _Atomic bool listener_changes; /* a thread is setting it */

    struct remote_engine *engines; /* that keep sets (remote/) */

    struct thread_ctx *spare_ctx; /* for calls that must not fail; prepared for every set in use */
    pthread_mutex_t spare_lock;   /* recursive; taken before `lock` */
    uint32_t spare_depth;         /* how often its thread has taken it */
};

/* Relaxed: a child has one thread at first. */
static inline bool instance_is_forked(const weir *w)
{
    return !(atomic_load_explicit(w->state, memory_order_relaxed) & INSTANCE_HERE);
}

/* Relaxed: a late reading only makes the call one that came before weir_close. */
static inline bool instance_is_closed(weir *w)
{
    return atomic_load_explicit(w->state, memory_order_relaxed) & INSTANCE_CLOSED;
}

/* Returns true if the context is the calling thread's, or the spare one, or was never bound to a
 * thread. For invariants. */
static inline bool thread_ctx_is_usable(const struct thread_ctx *ctx)
{
    for (const struct thread_ctx *own = thread_ctx_self; own; own = own->thread_next)
        if (own == ctx)
            return true;
    return ctx == ctx->w->spare_ctx || !ctx->thread;
}

/* Returns true if the context is of the set's instance and is prepared for the set. For
 * invariants. */
static inline bool thread_ctx_is_ready(const struct thread_ctx *ctx, const weir_set *set)
{
    return ctx->w == set->w && thread_ctx_is_prepared(ctx, set->number);
}

/* Returns true if no thread has a use for the record. Of a shared set, other processes may write
 * it. For invariants. */
static inline bool record_is_unused(const weir_set *set, uint32_t record)
{
    return set->is_robust ||
           record_state(record_load(&set_record(set, record)->word)) == RECORD_FREE;
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

/* Returns true if the end of a use gives back what the context has: it is the spare one, or the
 * instance is closed. */
static inline bool thread_ctx_ends_with_use(const struct thread_ctx *ctx)
{
    return ctx == ctx->w->spare_ctx || instance_is_closed(ctx->w);
}

static inline void thread_ctx_return(struct thread_ctx *ctx)
{
    WEIR_INVARIANT(thread_ctx_is_usable(ctx));
    if (thread_ctx_ends_with_use(ctx))
        thread_ctx_return_slow(ctx);
}

/* Returns the set with a number or id that was given out. */
static inline weir_set *instance_set(const weir *w, uint32_t number)
{
    if (number & KEY_SET_ID_BIT)
        return *stable_array_at(&w->key_sets, number & ~KEY_SET_ID_BIT);
    return *stable_array_at(&w->sets, number);
}

/* Returns when the instance's clock shows what is `at_ns` by the clock of the set. */
static inline uint64_t set_to_instance_ns(const weir_set *set, uint64_t at_ns)
{
    return set->limits.clock_needs & CLOCK_NEEDS_BOOTTIME
               ? clock_from_boottime_ns(&set->w->clock, at_ns)
               : at_ns;
}

/* Returns a FREE record for this set, or 0 when out of memory. */
static inline uint32_t record_pool_get(struct thread_ctx *ctx, weir_set *set)
{
    struct magazine *magazine = thread_ctx_for_set(ctx, set->number)->magazine;

    if (!magazine->n && !magazine_refill(ctx, set, magazine))
        return 0;
    WEIR_INVARIANT(thread_ctx_is_usable(ctx) && magazine->n <= MAGAZINE_SIZE);
    WEIR_INVARIANT(magazine->records[magazine->n - 1]);
    WEIR_INVARIANT(record_is_unused(set, magazine->records[magazine->n - 1]));
    return magazine->records[--magazine->n];
}

/* Of a broken set no record is used again: it may be HELD or WAITING, and peers read its amounts.
 */
static inline void record_pool_put(struct thread_ctx *ctx, const weir_set *set, uint32_t record)
{
    struct magazine *magazine = thread_ctx_for_set(ctx, set->number)->magazine;

    WEIR_INVARIANT(record && record_is_unused(set, record));
    if (set_is_broken(set))
        return;
    WEIR_INVARIANT(!magazine->n || magazine->records[magazine->n - 1] != record);
    if (set_is_key_set(set))
        key_set_unbind_if_idle(ctx, instance_set(set->w, set->id));
    if (magazine->n == MAGAZINE_SIZE)
        magazine_drain(set, magazine);
    WEIR_INVARIANT(magazine->n < MAGAZINE_SIZE);
    magazine->records[magazine->n++] = record;
}

void instance_ref(weir *w, uint64_t n);

/* Returns whether the instance's lock is held, by whichever thread. For invariants: it takes a free
 * lock. */
static inline bool instance_lock_is_held(weir *w)
{
    return pthread_mutex_trylock(&w->lock) != 0;
}

/*
 * The instance's lock, over names, sets, pools and thread contexts. A thread that adds sets also
 * prepares the spare context for them, so its lock is taken with it, and first.
 */
void instance_lock(weir *w);
void instance_unlock(weir *w);

#endif

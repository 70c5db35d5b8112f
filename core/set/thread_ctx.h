/* SPDX-License-Identifier: MIT */
/*
 * An actor: one thread's part in an instance: its boxes, its private copies, its counters, its free
 * records. A thread gets one with its first call and gives it back when it ends or the instance
 * closes.
 */
#ifndef WEIR_CORE_SET_THREAD_CTX_H
#define WEIR_CORE_SET_THREAD_CTX_H

#include "limit/counters.h"
#include "shm/acq_record.h"
#include "shm/key_table.h"
#include "state/version.h"
#include <weir/acquisition.h>

#define MAGAZINE_SIZE  32u
#define THREAD_CREDITS 256u

struct magazine {
    uint32_t n;
    uint32_t records[MAGAZINE_SIZE];
};

/* An actor's part in one set. */
struct thread_set_ctx {
    struct counters *counters; /* NULL: it is not prepared for the set */
    struct magazine *magazine; /* of records of the set's size */
    uint32_t unit;             /* of its struct thread_head in the set's region */
    bool in_segment;           /* in a segment: the magazine is its own, the counters are not */
    bool has_lease;            /* something may be leased; what is, since then: */
    uint8_t dcas_slot;         /* in the set's ledger, from 1; 0: none yet */
    uint64_t lease_ns;
};

struct thread_ctx {
    /* What every call needs. */
    _Alignas(64) weir *w;
    struct thread_set_ctx *set_ctxs; /* by set number */
    uint32_t set_ctxs_n;
    uint32_t unit;                    /* of its struct thread_head in the instance's region */
    uint32_t thread;                  /* kernel id */
    uint32_t cache_n;                 /* unused acquisitions: so many */
    weir_acquisition *cache;          /* the first of them */
    uint64_t credits;                 /* references to the instance that acquisitions may use */
    uint64_t *content, *saved_states; /* private copies of versions */

    struct nonce_source nonce_source; /* of places in tables of keys */
    uint64_t binding;                 /* of a live set, which the call is about (key_set.h) */
    uint32_t content_capacity;        /* words in each */
    struct thread_ctx *thread_next;   /* other instances' actors of the same thread */
    struct thread_ctx *next;          /* all actors of the instance */
    struct thread_ctx *idle_next;
    struct magazine *magazines[RECORD_UNITS_MAX + 1]; /* by size of record in units, if used */
    uint64_t
        granted_amounts[WEIR_LIMITS_MAX]; /* of the record that the operation under way grants */
};

/* The calling thread's actors, one per instance, the last used first. */
extern _Thread_local struct thread_ctx *thread_ctx_self __attribute__((tls_model("initial-exec")));

/*
 * thread_ctx_get(), thread_ctx_borrow() and thread_ctx_return() (instance.h) when the actor is not at hand: it is
 * not the last used, or not prepared for the set; there is no memory for it; the instance is closed,
 * or it was the spare one.
 */
struct thread_ctx *thread_ctx_find(weir_set *set);
struct thread_ctx *thread_ctx_lock_spare(weir_set *set);
void thread_ctx_return_slow(struct thread_ctx *ctx);

/* Makes and prepares the spare actor. The caller holds the instance's lock or is its only user. */
struct thread_ctx *thread_ctx_new(weir *w);
/* Takes no lock. Returns 0, -ENOMEM, or of a set that processes share also -ENOSPC, …. */
int thread_ctx_prepare(struct thread_ctx *ctx, weir_set *set);
/*
 * The spare one, for a set that somebody is about to ask for something: so it can be given back
 * whatever happens. Before that, an idle set needs none of it. The caller holds instance_lock().
 */
int thread_ctx_prepare_spare(weir_set *set);
/* Takes back the preparation for a set that is being removed. */
void thread_ctx_unprepare(struct thread_ctx *ctx, const weir_set *set);
void thread_ctx_free(struct thread_ctx *ctx);

/* The calling thread gives back its actor of this instance, if it has one. */
void thread_ctx_detach(weir *w);

/* Many references to the instance at once, for acquisitions to come; and back. */
void thread_ctx_get_credits(struct thread_ctx *ctx);
void thread_ctx_put_credits(struct thread_ctx *ctx);

/* record_pool_get() and record_pool_put() (instance.h) when the magazine is empty (false: it still is, out of
 * memory), or full. */
bool magazine_refill(const weir_set *set, struct magazine *magazine);
void magazine_drain(const weir_set *set, struct magazine *magazine);

/* References to the instance, one per acquisition, from the actor's credits. */
static inline void thread_ctx_hold_instance(struct thread_ctx *ctx)
{
    if (!ctx->credits)
        thread_ctx_get_credits(ctx);
    ctx->credits--;
}

static inline void thread_ctx_drop_instance(struct thread_ctx *ctx)
{
    if (++ctx->credits > 2 * THREAD_CREDITS)
        thread_ctx_put_credits(ctx);
}

/* Its part in a set that it is prepared for. */
static inline const struct thread_set_ctx *thread_ctx_for_set(const struct thread_ctx *ctx,
                                                              uint32_t set_number)
{
    return &ctx->set_ctxs[set_number];
}

static inline struct counters *thread_ctx_counters(const struct thread_ctx *ctx,
                                                   uint32_t set_number)
{
    return ctx->set_ctxs[set_number].counters;
}

/* Whether it is prepared for the set. By another thread only under the instance's lock. */
static inline bool thread_ctx_is_prepared(const struct thread_ctx *ctx, uint32_t set_number)
{
    return set_number < ctx->set_ctxs_n && ctx->set_ctxs[set_number].counters;
}

#endif

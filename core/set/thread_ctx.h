/* SPDX-License-Identifier: MIT */
/*
 * Thread contexts: what one thread has in an instance: own version blocks, private copies of
 * versions, counters, free records. A thread gets one with its first call, and gives it back when
 * it ends or the instance closes. Free records are cached in magazines in front of a depot (Bonwick
 * and Adams, USENIX 2001).
 */
#ifndef WEIR_CORE_SET_THREAD_CTX_H
#define WEIR_CORE_SET_THREAD_CTX_H

#include "base/compiler.h"
#include "base/invariant.h"
#include "shm/acq_record.h"
#include "state/version.h"
#include <weir/acquisition.h>

struct counters;

#define MAGAZINE_SIZE  32u
#define THREAD_CREDITS 256u

struct magazine {
    uint32_t n;
    uint32_t records[MAGAZINE_SIZE];
};

/* Part of a thread context for one set. */
struct thread_set_ctx {
    struct counters *counters; /* NULL: not prepared for the set */
    struct magazine *magazine; /* of records of the set's size */
    uint32_t unit;             /* of its struct thread_head in the set's region */
    bool in_segment;           /* its magazine is its own, its counters are not */
    bool is_inherited;         /* the spare context's: of a dead thread, not recovered yet */
    bool has_lease;            /* the lease may be more than 0, taken at lease_ns */
    uint8_t dcas_slot;         /* announcement slot, from 1; 0: none yet */
    uint64_t lease_ns;
};

struct thread_ctx {
    /* For every call. */
    _Alignas(64) weir *w;
    struct thread_set_ctx *set_ctxs; /* by set number */
    uint32_t set_ctxs_n;
    uint32_t unit;                    /* of its struct thread_head in the instance's region */
    uint32_t thread;                  /* kernel id */
    uint32_t cache_n;                 /* number of cached acquisitions */
    weir_acquisition *cache;          /* first cached acquisition; each has a reference */
    uint64_t credits;                 /* references to the instance, for other acquisitions */
    uint64_t *content, *saved_states; /* private copies of versions */

    uint64_t nonce_state;      /* of splitmix64_next(): for claims in key tables */
    uint64_t binding;          /* of the key set that the call is about (key_set.h) */
    uint64_t *converted[2];    /* as large: states on their way to a successor of a keyed set */
    uint32_t content_capacity; /* words in each */
    uint32_t copies;           /* 2 or 4 of them: whether there is `converted` */
    struct thread_ctx *thread_next; /* of the thread, in another instance */
    struct thread_ctx *next;        /* of the instance */
    struct thread_ctx *idle_next;
    struct magazine *magazines[RECORD_UNITS_MAX + 1]; /* by units of a record; NULL: unused */
    uint64_t
        granted_amounts[WEIR_LIMITS_MAX]; /* of the record that the current transaction grants */
};

/* The calling thread's contexts, one per instance, the last used first. */
extern _Thread_local struct thread_ctx *thread_ctx_self __attribute__((tls_model("initial-exec")));

/* Slow paths of thread_ctx_get(), thread_ctx_borrow() and thread_ctx_return() (instance.h): the
 * context is not the last used one, or is not prepared for the set; there is no memory for it; the
 * instance is closed, or the context is the spare one. */
struct thread_ctx *thread_ctx_find(weir_set *set);
struct thread_ctx *thread_ctx_lock_spare(weir_set *set);
void thread_ctx_return_slow(struct thread_ctx *ctx);

/* Lock the spare context. The lock nests: a callback of the program may run while its thread has
 * it. What is given back last may be the last reference to the instance. */
void thread_ctx_spare_lock(weir *w);
void thread_ctx_spare_unlock(weir *w);

/* Makes a context. The caller holds the instance's lock or is its only user. */
struct thread_ctx *thread_ctx_new(weir *w);
/* Prepares a context for a set. Takes no lock. Returns 0, -ENOMEM, or as
 * participant_claim_thread(). */
int thread_ctx_prepare(struct thread_ctx *ctx, weir_set *set);
/* Prepares the spare context for a set before its first acquire, so that a release cannot fail. The
 * caller holds instance_lock(). */
int thread_ctx_prepare_spare(weir_set *set);
/* Reverts the preparation for a set that is removed. */
void thread_ctx_unprepare(struct thread_ctx *ctx, uint32_t set_number);
void thread_ctx_free(struct thread_ctx *ctx);

/* Gives back the calling thread's context of this instance, if it has one. */
void thread_ctx_detach(weir *w);

/* Takes references to the instance in bulk, for acquisitions to come; returns such references. */
void thread_ctx_get_credits(struct thread_ctx *ctx);
void thread_ctx_put_credits(struct thread_ctx *ctx);

/* Slow paths of record_pool_get() and record_pool_put() (instance.h): fill an empty magazine
 * (false: out of memory), and drain a full one. */
bool magazine_refill(struct thread_ctx *ctx, weir_set *set, struct magazine *magazine);
void magazine_drain(const weir_set *set, struct magazine *magazine);

/* Takes one reference to the instance from the credits, or returns one to them. */
WEIR_ALWAYS_INLINE void thread_ctx_hold_instance(struct thread_ctx *ctx)
{
    if (!ctx->credits)
        thread_ctx_get_credits(ctx);
    WEIR_INVARIANT(ctx->credits > 0);
    ctx->credits--;
}

WEIR_ALWAYS_INLINE void thread_ctx_drop_instance(struct thread_ctx *ctx)
{
    if (++ctx->credits > 2 * THREAD_CREDITS)
        thread_ctx_put_credits(ctx);
}

/* Returns true if it is prepared for the set. Other threads hold the instance's lock for that. */
static inline bool thread_ctx_is_prepared(const struct thread_ctx *ctx, uint32_t set_number)
{
    return set_number < ctx->set_ctxs_n && ctx->set_ctxs[set_number].counters;
}

/* Returns the part for a set that the context is prepared for. */
static inline const struct thread_set_ctx *thread_ctx_for_set(const struct thread_ctx *ctx,
                                                              uint32_t set_number)
{
    WEIR_INVARIANT(thread_ctx_is_prepared(ctx, set_number));
    return &ctx->set_ctxs[set_number];
}

static inline struct counters *thread_ctx_counters(const struct thread_ctx *ctx,
                                                   uint32_t set_number)
{
    WEIR_INVARIANT(thread_ctx_is_prepared(ctx, set_number));
    return ctx->set_ctxs[set_number].counters;
}

/* Returns how many waits the context has ended in a set, and in its newest definition: waiters of
 * the set are there. */
uint64_t thread_ctx_decided(const struct thread_ctx *ctx, const weir_set *of,
                            const weir_set *newest);

#endif

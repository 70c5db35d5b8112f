/* SPDX-License-Identifier: MIT */
/* Steps of both fast paths: fast_path.c (inline state) and fast_path_block.c (version block). */
#ifndef WEIR_CORE_API_FAST_PATH_COMMON_H
#define WEIR_CORE_API_FAST_PATH_COMMON_H

#include "api/acquisition.h"
#include "base/compiler.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include <errno.h>

/* Returns whether the instance is usable and has no loss of the TSC to report first. */
WEIR_ALWAYS_INLINE bool fast_path_is_open(weir *w)
{
    return !instance_is_forked(w) && !instance_is_closed(w) && !clock_must_report_tsc(&w->clock);
}

/* Returns the cached acquisition that the fast path may grant next, or NULL. */
WEIR_ALWAYS_INLINE weir_acquisition *fast_path_cached(const struct thread_ctx *ctx,
                                                      const weir_set *set)
{
    weir_acquisition *acquisition = ctx ? ctx->cache : NULL;

    if (!acquisition || acquisition->set != set || !fast_path_is_open(set->w))
        return NULL;
    return acquisition;
}

/* Writes into the record which thread is about to hold it. */
WEIR_ALWAYS_INLINE void fast_path_name_thread(const struct thread_ctx *ctx, const weir_set *set,
                                              struct acq_record *r)
{
    WEIR_INVARIANT(ctx->w == set->w);
    record_store(&r->set, (uint64_t)set->id << 32 | ctx->thread);
    SCHED_POINT();
}

/* Fills a cached record, still FREE, with amount, thread and times. Returns its word once HELD. */
WEIR_ALWAYS_INLINE uint64_t fast_path_prepare_record(const struct thread_ctx *ctx,
                                                     const weir_set *set, struct acq_record *r,
                                                     uint64_t amount, uint64_t now_ns)
{
    WEIR_INVARIANT(set_is_shared(set) || record_state(record_load(&r->word)) == RECORD_FREE);
    record_store(&r->amounts[0], amount);
    SCHED_POINT();
    record_store(&r->granted_ns, now_ns);
    SCHED_POINT();
    record_store(&r->enqueued_ns, now_ns);
    SCHED_POINT();
    fast_path_name_thread(ctx, set, r);
    return record_next_word(record_load(&r->word), RECORD_HELD);
}

/* Publishes the record's word with release order, after all other fields. */
WEIR_ALWAYS_INLINE void fast_path_publish_word(struct acq_record *r, uint64_t word)
{
    atomic_store_explicit(&r->word, word, memory_order_release);
    SCHED_POINT();
}

/* Fills a cached record and makes it HELD. */
WEIR_ALWAYS_INLINE void fast_path_hold_record(const struct thread_ctx *ctx, const weir_set *set,
                                              uint32_t record, uint64_t amount, uint64_t now_ns)
{
    struct acq_record *r = record_at(set->region, record);

    fast_path_publish_word(r, fast_path_prepare_record(ctx, set, r, amount, now_ns));
}

/* Returns whether a record of a shared set is held, as far as the segment can be trusted. */
WEIR_ALWAYS_INLINE bool fast_path_is_held(const weir_set *set, uint64_t word)
{
    return record_state(word) == RECORD_HELD && !set_is_broken(set);
}

WEIR_ALWAYS_INLINE void fast_path_cache_pop(struct thread_ctx *ctx, weir_acquisition *acquisition,
                                            bool strict)
{
    WEIR_INVARIANT(ctx->cache == acquisition && ctx->cache_n > 0);
    WEIR_INVARIANT(acquisition->record && acquisition->fd < 0);
    ctx->cache = acquisition->next;
    ctx->cache_n--;
    thread_ctx_hold_instance(ctx);
    acquisition->fast_ctx = ctx;
    /* Relaxed: no other thread knows of the acquisition yet. */
    atomic_store_explicit(&acquisition->queue, NULL, memory_order_relaxed);
    acquisition->strict = strict;
    acquisition->updated_limits = 0;
}

WEIR_ALWAYS_INLINE void fast_path_cache_push(struct thread_ctx *ctx, weir_acquisition *acquisition)
{
    WEIR_INVARIANT(ctx->cache_n < ACQUISITION_CACHE_MAX);
    WEIR_INVARIANT(acquisition->record && acquisition->set->w == ctx->w);
    acquisition->next = ctx->cache;
    ctx->cache = acquisition;
    ctx->cache_n++;
    thread_ctx_drop_instance(ctx);
}

/* Counts a release and caches the acquisition. Returns -EPROTO if `missing` (an update), else 0. */
WEIR_ALWAYS_INLINE int fast_path_finish_release(struct thread_ctx *ctx, const weir_set *set,
                                                weir_acquisition *acquisition, bool missing)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    WEIR_INVARIANT(counters && set == acquisition->set);
    counter_add(&counters->released, 1);
    if (missing)
        counter_add(&counters->missing_update, 1);
    fast_path_cache_push(ctx, acquisition);
    return missing ? -EPROTO : 0;
}

#endif

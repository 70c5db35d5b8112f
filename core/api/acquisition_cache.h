/* SPDX-License-Identifier: MIT */
/*
 * Acquisitions that a thread keeps for its next calls; defined in fast_path.c, which uses them. One
 * that came and went on the fast path stays in its thread's cache with its record. The record is
 * FREE and keeps what does not change from one use to the next: its owner and its wait target.
 * `set` is NULL for cached acquisitions without a record.
 */
#ifndef WEIR_CORE_API_ACQUISITION_CACHE_H
#define WEIR_CORE_API_ACQUISITION_CACHE_H

#include "api/acquisition.h"

/* Returns whether the fast path supports a set: inline state or a small version. */
bool fast_path_supports(const weir_set *set);
/* Marks an acquisition that was granted at once with a record filled by `ctx` for the fast path. */
void acquisition_cache_enable(struct thread_ctx *ctx, weir_acquisition *acquisition);
/* Caches a refused acquisition with a record filled by `ctx`. False: it cannot be cached. */
bool acquisition_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition);

#endif

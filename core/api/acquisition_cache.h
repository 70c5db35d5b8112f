/* SPDX-License-Identifier: MIT */
/* The acquisitions that a thread keeps for its next calls; defined in fast_path.c, which uses them.
 */
#ifndef WEIR_CORE_API_ACQUISITION_CACHE_H
#define WEIR_CORE_API_ACQUISITION_CACHE_H

#include "api/acquisition.h"

/* Marks an acquisition that was granted at once with a record filled by `ctx` for the fast path. */
void fast_path_enable(struct thread_ctx *ctx, weir_acquisition *acquisition);
/* Caches a refused acquisition with a record filled by `ctx`. False: it cannot be cached. */
bool fast_path_cache_put(struct thread_ctx *ctx, weir_acquisition *acquisition);

#endif
